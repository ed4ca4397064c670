package policy

import (
	"reflect"
	"strings"
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

func TestOnlyAllowedAndUngovernedPass(t *testing.T) {
	for r := Allowed; r < reasons; r++ {
		if want := r == Allowed || r == Ungoverned; r.Passes() != want {
			t.Errorf("%v passes: %t", r, r.Passes())
		}
	}
}

func TestPoliciesOfOtherWorkloadsHideNone(t *testing.T) {
	elsewhere := aPolicy(func(p *model.Policy) { p.Targets[0].Name = "elsewhere" })
	if got := judge(t, web(), cart(), 1, get("/"), elsewhere, aPolicy(nil), elsewhere); got != Allowed {
		t.Error(got)
	}
}

func TestPortsAreToldOnceAndInOrder(t *testing.T) {
	w := web()
	w.Groups = append(w.Groups, model.Group{Kind: "Service", Name: "low", Ports: []int32{80, 8080}})
	p := aPolicy(func(p *model.Policy) {
		p.Targets = []model.Target{{Namespace: "shop", Kind: "Service", Name: "web"}, {Namespace: "shop", Kind: "Service", Name: "low"}}
	})
	if ports, named := Ports(&p, w); !named || !reflect.DeepEqual(ports, []int32{80, 8080, 8081}) {
		t.Errorf("%v %t", ports, named)
	}
}

// What a policy allows takes memory for each of its sources and ports only up to a bound, and none if it is nothing.
func TestTheSizeOfATableIsBounded(t *testing.T) {
	of := func(sources, ports int) model.Policy {
		return aPolicy(func(p *model.Policy) {
			p.Sources = nil
			for i := range sources {
				p.Sources = append(p.Sources, model.Source{Kind: "ServiceAccount", Name: string(rune('a' + i))})
			}
			for i := range ports {
				p.Ports = append(p.Ports, int32(80+i))
			}
		})
	}
	for name, c := range map[string]struct {
		p    model.Policy
		want int
	}{
		"as many as may be copied":           {of(8, maxCopies/8), maxCopies},
		"one port more":                      {of(8, maxCopies/8+1), 8},
		"no method":                          {aPolicy(func(p *model.Policy) { p.Methods = []string{} }), 0},
		"no path":                            {aPolicy(func(p *model.Policy) { p.Paths = []string{} }), 0},
		"no path that compiles":              {aPolicy(func(p *model.Policy) { p.Paths = []string{"("} }), 0},
		"a header field that no value meets": {aPolicy(func(p *model.Policy) { p.Headers = []model.ValueMatch{{Type: model.Regex, Name: "x", Value: "("}} }), 0},
	} {
		if got := len(Compile(web(), []model.Policy{c.p}).grants); got != c.want {
			t.Errorf("%s: %d grants, want %d", name, got, c.want)
		}
	}
	same := aPolicy(func(p *model.Policy) { p.Paths, p.Methods = []string{"/a[0-9]"}, []string{"GET"} })
	root := &Compile(web(), []model.Policy{same, same, same}).grants[key{}].paths
	if len(root.children) != 1 || len(root.children[0].entries) != 1 {
		t.Errorf("three policies that say the same are %+v", root)
	}
	every := aPolicy(func(p *model.Policy) { p.Methods = []string{"GET"} })
	if root := &Compile(web(), []model.Policy{every, every}).grants[key{}].paths; len(root.entries) != 1 {
		t.Errorf("two policies that say the same are %+v", root)
	}
}

func TestAPolicyWithoutPortsDecidesByNoField(t *testing.T) {
	table := Compile(web(), []model.Policy{aPolicy(func(p *model.Policy) {
		p.Ports, p.Headers = []int32{}, []model.ValueMatch{{Type: model.Exact, Name: "X-Team", Value: "a"}}
	})})
	if table.DecidesBy("x-team", func(a, b string) bool { return a == b }) {
		t.Error("it decides by X-Team")
	}
}

// A policy for all paths is not the same as one whose paths are all there are: only the first allows ambiguous ones.
func TestAPolicyForAllPathsIsKeptBesideOneForEveryPath(t *testing.T) {
	ambiguous := &Request{Method: "GET", Path: "/a", Ambiguous: true}
	paths := aPolicy(func(p *model.Policy) { p.Methods, p.Paths = []string{"GET"}, []string{""} })
	all := aPolicy(func(p *model.Policy) { p.Methods = []string{"GET"} })
	if got := judge(t, web(), cart(), 1, ambiguous, paths, all); got != Allowed {
		t.Error(got)
	}
	if got := judge(t, web(), cart(), 1, ambiguous, paths); got != AmbiguousPath {
		t.Errorf("without the policy for all paths: %v", got)
	}
}

// The work of a request may be exactly the bound: then its patterns are still asked, and what they say counts.
func TestWorkMayBeAsMuchAsTheBound(t *testing.T) {
	var pattern string
	for n := 1; ; n++ {
		pattern = "/a" + strings.Repeat("[^x]", n)
		if p, err := model.CompileStartPattern(pattern); err != nil || p.Instructions > 64 {
			t.Fatalf("%s: %v, %+v", pattern, err, p)
		} else if p.Instructions == 64 {
			break
		}
	}
	p := aPolicy(func(p *model.Policy) { p.Paths = []string{pattern} })
	longest := model.MaxMatchWork/64 - 1
	for _, c := range []struct {
		bytes int
		fill  string
		want  Reason
	}{{longest, "b", Allowed}, {longest, "x", NotPermitted}, {longest + 1, "b", TooMuchWork}, {longest + 1, "x", TooMuchWork}} {
		path := "/a" + strings.Repeat(c.fill, c.bytes-2)
		if v := Compile(web(), []model.Policy{p}).Subject(cart(), 1).Judge(get(path)); v.Reason != c.want {
			t.Errorf("%d bytes of %s: %v, want %v", c.bytes, c.fill, v.Reason, c.want)
		}
	}
}

func TestATableKnowsThePortsOfRulesForRequests(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(*model.Policy)
		at80, at443 bool
	}{
		"requests":            {nil, true, true},
		"with conditions":     {func(p *model.Policy) { p.Methods = []string{"GET"} }, true, true},
		"that allow nothing":  {func(p *model.Policy) { p.Void = "paths is empty" }, true, true},
		"at a port":           {func(p *model.Policy) { p.Ports = []int32{80} }, true, false},
		"at no port":          {func(p *model.Policy) { p.Ports = []int32{} }, false, false},
		"of another workload": {func(p *model.Policy) { p.Targets[0].Name = "other" }, false, false},
		"of connections":      {func(p *model.Policy) { p.Traffic = model.TrafficTCP }, false, false},
		"of everything":       {func(p *model.Policy) { p.Traffic = model.TrafficAny }, false, false},
		"of datagrams":        {func(p *model.Policy) { p.Traffic = model.TrafficUDP }, false, false},
	} {
		table := Compile(web(), []model.Policy{aPolicy(c.change)})
		if table.JudgesRequests(80) != c.at80 || table.JudgesRequests(443) != c.at443 {
			t.Errorf("%s: %t, %t", name, table.JudgesRequests(80), table.JudgesRequests(443))
		}
	}
}
