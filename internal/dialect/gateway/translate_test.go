package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/resource"
)

// many is a set of n routes, each with a hostname of its own, three rules and a mirror, over a hundred Services.
func many(n int) *resource.Set {
	set := tiny()
	set.HTTPRoutes, set.Services = nil, nil
	for i := range 100 {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("s%d", i)}}
		s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		set.Services = append(set.Services, s)
	}
	for i := range n {
		ref := func(j int) gatewayv1.BackendObjectReference {
			return gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(fmt.Sprintf("s%d", (i+j)%100)), Port: to[int32](80)}
		}
		r := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("r%05d", i)}}
		r.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "gw"}}
		r.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("h%d.example", i))}
		for j := range 3 {
			r.Spec.Rules = append(r.Spec.Rules, gatewayv1.HTTPRouteRule{
				Matches: []gatewayv1.HTTPRouteMatch{{
					Path:    &gatewayv1.HTTPPathMatch{Value: to(fmt.Sprintf("/p%d", j))},
					Headers: []gatewayv1.HTTPHeaderMatch{{Name: "X-Env", Value: "test"}},
				}},
				Filters: []gatewayv1.HTTPRouteFilter{{Type: gatewayv1.HTTPRouteFilterRequestMirror,
					RequestMirror: &gatewayv1.HTTPRequestMirrorFilter{BackendRef: ref(j + 7), Percent: to[int32](5)}}},
				BackendRefs: []gatewayv1.HTTPBackendRef{
					{BackendRef: gatewayv1.BackendRef{BackendObjectReference: ref(j), Weight: to[int32](9)}},
					{BackendRef: gatewayv1.BackendRef{BackendObjectReference: ref(j + 3)}},
				},
			})
		}
		set.HTTPRoutes = append(set.HTTPRoutes, r)
	}
	return set
}

func TestTranslateManyRoutes(t *testing.T) {
	out := translate(many(1000))
	if len(out.cfg.Routes) != 1000 || len(out.cfg.Services) != 100 || out.statuses[0].Listeners[0].AttachedRoutes != 1000 {
		t.Errorf("%d routes, %d services, %d attached", len(out.cfg.Routes), len(out.cfg.Services), out.statuses[0].Listeners[0].AttachedRoutes)
	}
	if err := out.cfg.Validate(); err != nil {
		t.Error(err)
	}
}

func BenchmarkTranslate10000Routes(b *testing.B) {
	set := many(10_000)
	for b.Loop() {
		translate(set)
	}
}

// FuzzTranslate holds whatever YAML a user may write to the promises of the translation: it ends, its model is valid
// and does not depend on the order of objects.
func FuzzTranslate(f *testing.F) {
	for _, g := range goldentest.All(f, leastGoldens) {
		var all []string
		for _, p := range g.Inputs() {
			all = append(all, p.Text)
		}
		f.Add(strings.Join(all, "\n---\n"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(text))
		if err != nil {
			t.Skip("the text cannot be read: nothing is translated")
		}
		for _, options := range []gateway.Options{{}, {ProxyPerGateway: true}} {
			out := translateWith(set, options)
			if err := out.cfg.Validate(); err != nil {
				t.Errorf("%+v: the model is not valid: %v", options, err)
			}
			if a, b := goldentest.Marshal(t, out.cfg), goldentest.Marshal(t, translateWith(goldentest.Shuffled(set), options).cfg); a != b {
				t.Errorf("%+v: the order of the objects has an influence:\n%s", options, goldentest.Diff(a, b))
			}
			for name, part := range out.cfg.ByOwner() {
				if err := part.Validate(); err != nil {
					t.Errorf("the part of %s is not valid: %v", name, err)
				}
			}
		}
	})
}
