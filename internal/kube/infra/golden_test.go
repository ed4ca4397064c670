package infra_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

var options = infra.Options{
	Controller: "weir-controller.weir-system.svc:18000", Image: "weir-proxy:dev", ImagePullPolicy: "IfNotPresent",
	CA: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
}

// TestPlanGoldens writes down the objects of each Gateway, and its status while none of them exists.
func TestPlanGoldens(t *testing.T) {
	for path, g := range goldentest.All(t, 10) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".golden"), func(t *testing.T) {
			set := goldentest.Load(t, g)
			for _, f := range set.Findings {
				if f.Severity == resource.Error {
					t.Errorf("the input is wrong: %s", f)
				}
			}
			text := g.Compare(t, path, outputs(t, set))
			for range 3 {
				if other := g.Compare(t, path, outputs(t, goldentest.Shuffled(set))); other != text {
					t.Errorf("the order of the objects has an influence:\n%s", goldentest.Diff(text, other))
				}
			}
		})
	}
}

func outputs(t *testing.T, set *resource.Set) []goldentest.Part {
	result, err := control.Options{ProxyPerGateway: true}.Translate(set)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, p := range options.Plans(set, gateway.ControllerName, result.Config, result.Statuses) {
		text.WriteString("# Gateway " + string(p.Gateway))
		if p.Keep {
			text.WriteString(" is left as it is")
		}
		text.WriteString("\n")
		for _, o := range p.Objects {
			y, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			text.WriteString("---\n" + string(y))
		}
	}
	fleet := infra.Fleet{ControllerName: gateway.ControllerName}
	statuses := fleet.Overlay(set, result.Statuses, func(model.Owner) infra.State { return infra.State{Version: "1"} })
	return []goldentest.Part{{Name: "objects", Text: text.String()}, {Name: "statuses", Text: goldentest.StatusText(statuses)}}
}

// TestProxiesKnowTheirTrustDomain if it is not the one that they take by themselves.
func TestProxiesKnowTheirTrustDomain(t *testing.T) {
	g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "weir"}}
	for domain, want := range map[string]bool{"": false, "mesh.example": true} {
		o := options
		o.TrustDomain = domain
		text, err := yaml.Marshal(infra.Render(o, g, infra.Parameters{}, []int32{80}, nil, true))
		if err != nil {
			t.Fatal(err)
		}
		if got := regexp.MustCompile(`name: WEIR_TRUST_DOMAIN\n\s+value: mesh\.example\n`).Match(text); got != want {
			t.Errorf("%q:\n%s", domain, text)
		}
	}
}
