package access_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/explain/access"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
	"github.com/weirmesh/weir/internal/screen"
)

func init() { resource.CheckRules(rules.Compile) }

// cluster is one with sidecars beside some of the pods, and a rule that lets a Gateway and a workload ask another one.
func cluster(t *testing.T) *access.Served {
	t.Helper()
	text := `
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: cart}
spec: {selector: {app: cart}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: old}
spec: {selector: {app: old}, ports: [{port: 80}]}
---
apiVersion: access.smi-spec.io/v1beta1
kind: TrafficRole
metadata: {namespace: shop, name: ask}
rules: [{resources: [{kind: Pod, name: "*"}], methods: [GET], paths: ["*"]}]
---
apiVersion: access.smi-spec.io/v1beta1
kind: TrafficRoleBinding
metadata: {namespace: shop, name: ask}
subjects: [{kind: ServiceAccount, name: web}, {kind: ServiceAccount, name: edge-weir, namespace: infra}]
roleRef: {kind: TrafficRole, name: ask}
`
	for _, pod := range []string{"cart cart sidecar", "old old", "web web sidecar", "bare web"} {
		f := strings.Fields(pod + " none")
		init := ""
		if f[2] == "sidecar" {
			init = "initContainers: [{name: weir-sidecar, restartPolicy: Always}], "
		}
		text += fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {namespace: shop, name: %[1]s, labels: {app: %[1]s}}\nspec: {serviceAccountName: %[2]s, %[3]scontainers: [{name: c, ports: [{containerPort: 80}]}]}\n", f[0], f[1], init)
	}
	set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	o := control.InCluster()
	o.Mesh = true
	r, err := o.Translate(set)
	if err != nil {
		t.Fatal(err)
	}
	return &access.Served{Config: r.Config, Set: set, Mesh: true, Gateways: []access.Gateway{{Namespace: "infra", Name: "edge", Account: "edge-weir"}}}
}

// TestAnswersKnowSidecars: who has none proves no identity, and denies nothing; a Gateway is a client as its account is.
func TestAnswersKnowSidecars(t *testing.T) {
	s := cluster(t)
	for _, c := range []struct {
		who, url string
		verdict  access.Verdict
		reason   string
	}{
		{"pod/shop/web", "http://cart.shop/", access.Allowed, "allowed"},
		{"pod/shop/bare", "http://cart.shop/", access.Denied, "no_identity"},
		{"pod/shop/old", "http://cart.shop/", access.Denied, "no_identity"},
		{"pod/shop/bare", "http://old.shop/", access.Unenforced, "no_identity"},
		{"pod/shop/web", "http://old.shop/", access.Allowed, "allowed"},
		{"gateway/infra/edge", "http://cart.shop/", access.Allowed, "allowed"},
		{"infra/edge-weir", "http://cart.shop/", access.Allowed, "allowed"},
		{"infra/other", "http://cart.shop/", access.Denied, "unknown_source"},
		{"infra/other", "http://old.shop/", access.Unenforced, "unknown_source"},
	} {
		r, err := curl.Parse([]string{c.url})
		if err != nil {
			t.Fatal(err)
		}
		a, err := s.Explain(c.who, r)
		if err != nil {
			t.Errorf("%s to %s: %v", c.who, c.url, err)
			continue
		}
		if a.Verdict != c.verdict || len(a.Targets) != 1 || a.Targets[0].Reason != c.reason {
			t.Errorf("%s to %s: %s, %+v, want %s by %s", c.who, c.url, a.Verdict, a.Targets, c.verdict, c.reason)
		}
		var text bytes.Buffer
		if err := a.Print(&text, screen.Screen{}, s); err != nil || !strings.Contains(text.String(), string(c.verdict)) {
			t.Errorf("%v\n%s", err, &text)
		}
	}
	if _, err := s.Explain("gateway/shop/none", nil); err == nil || !strings.Contains(err.Error(), "Gateway shop/none is none that reaches pods by an identity") {
		t.Errorf("%v", err)
	}
	m, err := s.Matrix(access.Filter{From: "gateway/infra/edge"})
	if err != nil || len(m.Grants) != 4 {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, g := range m.Grants {
		if len(g.Clients) != 1 || g.Clients[0].Kind != "Gateway" || g.Clients[0].Name != "edge" {
			t.Errorf("%+v", g)
		}
	}
	var text bytes.Buffer
	if err := m.Print(&text, screen.Screen{}); err != nil || !strings.Contains(text.String(), "governed, no sidecar") {
		t.Errorf("%v\n%s", err, &text)
	}
}
