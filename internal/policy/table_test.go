package policy

import (
	"reflect"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// A Service that leads to no port of the pods opens none, however it is combined.
func TestAGroupWithoutPortsOpensNone(t *testing.T) {
	w := web()
	w.Groups = append(w.Groups, model.Group{Kind: "Service", Name: "nowhere", Ports: []int32{}})
	nowhere := model.Target{Namespace: "shop", Kind: "Service", Name: "nowhere"}
	for name, p := range map[string]model.Policy{
		"alone":      aPolicy(func(p *model.Policy) { p.Targets = []model.Target{nowhere} }),
		"with ports": aPolicy(func(p *model.Policy) { p.Targets, p.Ports = []model.Target{nowhere}, []int32{8080} }),
	} {
		if got := judge(t, w, cart(), 8080, get("/"), p); got != NotPermitted {
			t.Errorf("%s: %v", name, got)
		}
	}
	both := aPolicy(func(p *model.Policy) {
		p.Targets = []model.Target{{Namespace: "shop", Kind: "Service", Name: "web"}, nowhere}
	})
	if got := judge(t, w, cart(), 8080, get("/"), both); got != Allowed {
		t.Errorf("beside a Service with ports: %v", got)
	}
	// Ports of several groups come in any order, and with many sources are looked up by halving.
	w.Groups = append(w.Groups, model.Group{Kind: "Service", Name: "low", Ports: []int32{80}})
	many := aPolicy(func(p *model.Policy) {
		p.Targets = []model.Target{{Namespace: "shop", Kind: "Service", Name: "web"}, {Namespace: "shop", Kind: "Service", Name: "low"}}
		for range maxCopies {
			p.Sources = append(p.Sources, model.Source{Kind: "ServiceAccount", Name: "x"})
		}
	})
	for _, port := range []int32{80, 8080, 8081} {
		if got := judge(t, w, cart(), port, get("/"), many); got != Allowed {
			t.Errorf("port %d: %v", port, got)
		}
	}
	if got := judge(t, w, cart(), 81, get("/"), many); got != NotPermitted {
		t.Errorf("port 81: %v", got)
	}
}

func TestASubjectIsOfOneTableAndPort(t *testing.T) {
	a, b := Compile(web(), nil), Compile(web(), nil)
	s := a.Subject(cart(), 80)
	if !s.Of(a, 80) || s.Of(a, 81) || s.Of(b, 80) || s.Of(b, 81) {
		t.Errorf("%t %t %t %t", s.Of(a, 80), s.Of(a, 81), s.Of(b, 80), s.Of(b, 81))
	}
}

func TestATableIsTheOneOfEqualWorkloadsAndPolicies(t *testing.T) {
	policies := func(method string) []model.Policy {
		return []model.Policy{aPolicy(func(p *model.Policy) { p.Methods = []string{method} })}
	}
	table := Compile(web(), policies("GET"))
	other := web()
	other.Audit = true
	for name, c := range map[string]struct {
		w    *model.Workload
		p    []model.Policy
		want bool
	}{
		"equal": {web(), policies("GET"), true}, "another workload": {other, policies("GET"), false}, "other policies": {web(), policies("PUT"), false},
		"both": {other, policies("PUT"), false}, "fewer": {web(), nil, false},
	} {
		if got := table.Is(c.w, c.p); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestEqualConditionsOfTwoPathsAreBothKept(t *testing.T) {
	policies := []model.Policy{
		aPolicy(func(p *model.Policy) { p.Paths = []string{"/a[0-9]"} }),
		aPolicy(func(p *model.Policy) { p.Paths = []string{"/a[b-c]"} }),
		aPolicy(func(p *model.Policy) { p.Paths, p.Methods = []string{"/a[b-c]"}, []string{"PUT"} }),
		aPolicy(func(p *model.Policy) {
			p.Paths, p.Headers = []string{"/a[d-e]"}, []model.ValueMatch{{Type: model.Exact, Name: "x", Value: "1"}}
		}),
		aPolicy(func(p *model.Policy) {
			p.Paths, p.Headers = []string{"/a[d-e]"}, []model.ValueMatch{{Type: model.Exact, Name: "x", Value: "2"}}
		}),
	}
	for _, r := range []*Request{get("/a7"), get("/ab"), {Method: "GET", Path: "/ad", Fields: fields{"x": "1"}}, {Method: "GET", Path: "/ad", Fields: fields{"x": "2"}}} {
		if got := judge(t, web(), cart(), 1, r, policies...); got != Allowed {
			t.Errorf("%+v: %v", r, got)
		}
	}
}

func TestTheNearestPolicyIsToldFirst(t *testing.T) {
	table := Compile(web(), []model.Policy{
		aPolicy(func(p *model.Policy) {
			p.Ref.Field, p.Sources = "of another client", []model.Source{{Kind: "ServiceAccount", Name: "other"}}
		}),
		aPolicy(func(p *model.Policy) {
			p.Ref.Field, p.Methods, p.Paths = "far", []string{"PUT"}, []string{"/b"}
		}),
		aPolicy(func(p *model.Policy) {
			p.Ref.Field, p.Headers = "near", []model.ValueMatch{{Type: model.Exact, Name: "X-A", Value: "1"}, {Type: model.Exact, Name: "X-B", Value: "1"}}
		}),
		aPolicy(func(p *model.Policy) { p.Ref.Field = "allows" }),
	})
	var got []string
	var header string
	for _, e := range table.Explain(cart(), 1, &Request{Method: "GET", Path: "/a", Fields: fields{"x-a": "1"}}) {
		got = append(got, e.Policy.Ref.Field)
		header += e.Header
	}
	if want := []string{"allows", "near", "far", "of another client"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if header != "X-B" {
		t.Errorf("the field that does not hold is %q", header)
	}
}

func TestThePeerOfAWorkload(t *testing.T) {
	got := PeerOf(web(), "t")
	if got.Pod != "web-1" || got.Account != "web" || got.Namespace != "shop" || got.ID != "spiffe://t/ns/shop/sa/web" || !reflect.DeepEqual(got.Owners, []Owner{{"ReplicaSet", "web-5d"}, {"Deployment", "web"}}) {
		t.Errorf("%+v", got)
	}
	of := &model.Workload{Ref: model.Ref{Kind: "Deployment", Namespace: "shop", Name: "web"}, Account: "web", Groups: []model.Group{{Kind: "Deployment", Name: "web"}, {Kind: "Service", Name: "web"}}}
	if got := PeerOf(of, "t"); got.Pod != UnknownName || !reflect.DeepEqual(got.Owners, []Owner{{"Deployment", "web"}, {"ReplicaSet", UnknownName}}) {
		t.Errorf("%+v", got)
	}
}
