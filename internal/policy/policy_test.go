package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

// web is a workload with the groups that a pod of a Deployment has.
func web() *model.Workload {
	return &model.Workload{
		Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "web-1"}, Account: "web",
		Groups: []model.Group{
			{Kind: "Pod", Name: "web-1"}, {Kind: "ReplicaSet", Name: "web-5d"}, {Kind: "Deployment", Name: "web"},
			{Kind: "ServiceAccount", Name: "web"}, {Kind: "Service", Name: "web", Ports: []int32{8080, 8081}},
		},
	}
}

func cart() *Peer {
	return &Peer{ID: "spiffe://t/ns/shop/sa/cart", Namespace: "shop", Account: "cart", Pod: "cart-1", Owners: []Owner{{"ReplicaSet", "cart-7"}, {"Deployment", "cart"}}}
}

type fields map[string]string

func (f fields) Field(name string) (string, bool) { v, ok := f[name]; return v, ok }

// policy is one for Deployment shop/web and everybody; change makes it another.
func aPolicy(change func(*model.Policy)) model.Policy {
	p := model.Policy{
		Ref: model.Ref{Kind: "TrafficRole", Namespace: "shop", Name: "r"}, Traffic: model.TrafficHTTP,
		Targets: []model.Target{{Namespace: "shop", Kind: "Deployment", Name: "web"}}, Sources: []model.Source{{}},
	}
	if change != nil {
		change(&p)
	}
	return p
}

func get(path string) *Request { return &Request{Method: "GET", Path: path} }

func judge(t *testing.T, w *model.Workload, p *Peer, port int32, r *Request, policies ...model.Policy) Reason {
	t.Helper()
	table := Compile(w, policies)
	v := table.Subject(p, port).Judge(r)
	if (v.Reason == Allowed) != (v.Policy != nil) {
		t.Errorf("%v with policy %v", v.Reason, v.Policy)
	}
	checkAgainstExplain(t, table, p, port, r, v)
	return v.Reason
}

// checkAgainstExplain holds a verdict to what each policy says by itself.
func checkAgainstExplain(t *testing.T, table *Table, p *Peer, port int32, r *Request, v Verdict) {
	t.Helper()
	all := table.Explain(p, port, r)
	allowed := len(all) > 0 && all[0].Allows()
	known := slices.ContainsFunc(all, func(e Explained) bool { return e.Source != nil })
	if table.Governed() && allowed != (v.Reason == Allowed) {
		t.Fatalf("Judge: %v, Explain: %+v for %+v %d %+v", v.Reason, all, p, port, r)
	}
	if v.Reason == Allowed && !slices.ContainsFunc(all, func(e Explained) bool { return e.Allows() && e.Policy == v.Policy }) {
		t.Fatalf("Judge names %+v, which does not allow it", v.Policy)
	}
	if table.Governed() && p.ID != "" && known != (v.Reason != UnknownSource) {
		t.Fatalf("Judge: %v, Explain: %+v", v.Reason, all)
	}
}

func TestAPolicyIsJudgedWhole(t *testing.T) {
	peer := cart()
	for _, c := range []struct {
		name   string
		change func(*model.Policy)
		port   int32
		r      *Request
		want   Reason
	}{
		{"everything", nil, 1, get("/"), Allowed},
		{"no sources", func(p *model.Policy) { p.Sources = nil }, 1, get("/"), UnknownSource},
		{"void", func(p *model.Policy) { p.Void = "methods is empty" }, 1, get("/"), NotPermitted},
		{"method", func(p *model.Policy) { p.Methods = []string{"POST", "GET"} }, 1, get("/"), Allowed},
		{"other method", func(p *model.Policy) { p.Methods = []string{"POST"} }, 1, get("/"), NotPermitted},
		{"methods have a case", func(p *model.Policy) { p.Methods = []string{"get"} }, 1, get("/"), NotPermitted},
		{"no method", func(p *model.Policy) { p.Methods = []string{} }, 1, get("/"), NotPermitted},
		{"path", func(p *model.Policy) { p.Paths = []string{`/authors/\d+`} }, 1, get("/authors/12"), Allowed},
		{"paths are anchored at the start alone", func(p *model.Policy) { p.Paths = []string{`/authors/\d+`} }, 1, get("/authors/12/edit"), Allowed},
		{"not in the middle", func(p *model.Policy) { p.Paths = []string{`/authors/\d+`} }, 1, get("/x/authors/12"), NotPermitted},
		{"an alternative is anchored, too", func(p *model.Policy) { p.Paths = []string{"/a|/b"} }, 1, get("/x/b"), NotPermitted},
		{"the other alternative", func(p *model.Policy) { p.Paths = []string{"/a|/b"} }, 1, get("/b"), Allowed},
		{"another path", func(p *model.Policy) { p.Paths = []string{"/x", "/health$"} }, 1, get("/health"), Allowed},
		{"ends there", func(p *model.Policy) { p.Paths = []string{"/health$"} }, 1, get("/healthz"), NotPermitted},
		{"no paths", func(p *model.Policy) { p.Paths = []string{} }, 1, get("/"), NotPermitted},
		{"one pattern does not compile", func(p *model.Policy) { p.Paths = []string{"(", "/x"} }, 1, get("/x"), Allowed},
		{"no pattern compiles", func(p *model.Policy) { p.Paths = []string{"("} }, 1, get("/x"), NotPermitted},
		{"ambiguous", func(p *model.Policy) { p.Paths = []string{"/.*"} }, 1, &Request{Method: "GET", Path: "/a", Ambiguous: true}, AmbiguousPath},
		{"ambiguous, where every path is allowed", func(p *model.Policy) { p.Methods = []string{"GET"} }, 1, &Request{Method: "GET", Path: "/a", Ambiguous: true}, Allowed},
		{"port", func(p *model.Policy) { p.Ports = []int32{80} }, 80, get("/"), Allowed},
		{"other port", func(p *model.Policy) { p.Ports = []int32{80} }, 81, get("/"), NotPermitted},
		{"no port", func(p *model.Policy) { p.Ports = []int32{} }, 81, get("/"), NotPermitted},
		{"a Service's port", func(p *model.Policy) { p.Targets[0] = model.Target{Namespace: "shop", Kind: "Service", Name: "web"} }, 8081, get("/"), Allowed},
		{"a port that is not the Service's", func(p *model.Policy) { p.Targets[0] = model.Target{Namespace: "shop", Kind: "Service", Name: "web"} }, 9090, get("/"), NotPermitted},
		{"a Service's port, but not the policy's", func(p *model.Policy) {
			p.Targets[0] = model.Target{Namespace: "shop", Kind: "Service", Name: "web"}
			p.Ports = []int32{8080, 9090}
		}, 8081, get("/"), NotPermitted},
		{"two targets", func(p *model.Policy) {
			p.Targets = append(p.Targets, model.Target{Namespace: "shop", Kind: "Service", Name: "web"})
		}, 9090, get("/"), Allowed},
		{"header", func(p *model.Policy) {
			p.Headers = []model.ValueMatch{{Type: model.Regex, Name: "X-Role", Value: "a|b"}}
		}, 1,
			&Request{Method: "GET", Path: "/", Fields: fields{"x-role": "b"}}, Allowed},
		{"header matches whole", func(p *model.Policy) {
			p.Headers = []model.ValueMatch{{Type: model.Regex, Name: "X-Role", Value: "a|b"}}
		}, 1,
			&Request{Method: "GET", Path: "/", Fields: fields{"x-role": "b, c"}}, NotPermitted},
		{"header is absent", func(p *model.Policy) {
			p.Headers = []model.ValueMatch{{Type: model.Regex, Name: "X-Role", Value: ".*"}}
		}, 1,
			&Request{Method: "GET", Path: "/", Fields: fields{}}, NotPermitted},
		{"exact header", func(p *model.Policy) { p.Headers = []model.ValueMatch{{Type: model.Exact, Name: "x", Value: "a"}} }, 1,
			&Request{Method: "GET", Path: "/", Fields: fields{"x": "a"}}, Allowed},
		{"another header", func(p *model.Policy) { p.Headers = []model.ValueMatch{{Type: model.Exact, Name: "x", Value: "a"}} }, 1,
			&Request{Method: "GET", Path: "/", Fields: fields{"x": "A"}}, NotPermitted},
		{"a pattern of a header does not compile", func(p *model.Policy) { p.Headers = []model.ValueMatch{{Type: model.Regex, Name: "x", Value: "("}} }, 1,
			&Request{Method: "GET", Path: "/", Fields: fields{"x": "a"}}, NotPermitted},
		{"TCP of a rule for requests", nil, 1, &Request{Protocol: TCP}, NotPermitted},
		{"UDP of a rule for requests", nil, 1, &Request{Protocol: UDP}, NotPermitted},
		{"TCP", func(p *model.Policy) { p.Traffic = model.TrafficTCP }, 1, &Request{Protocol: TCP}, Allowed},
		{"requests over TCP", func(p *model.Policy) { p.Traffic = model.TrafficTCP }, 1, get("/"), Allowed},
		{"UDP of a rule for TCP", func(p *model.Policy) { p.Traffic = model.TrafficTCP }, 1, &Request{Protocol: UDP}, NotPermitted},
		{"UDP", func(p *model.Policy) { p.Traffic = model.TrafficUDP }, 1, &Request{Protocol: UDP}, Allowed},
		{"requests over UDP's port", func(p *model.Policy) { p.Traffic = model.TrafficUDP }, 1, get("/"), NotPermitted},
		{"anything, TCP", func(p *model.Policy) { p.Traffic = model.TrafficAny }, 1, &Request{Protocol: TCP}, Allowed},
		{"anything, UDP", func(p *model.Policy) { p.Traffic = model.TrafficAny }, 1, &Request{Protocol: UDP}, Allowed},
		{"unknown traffic", func(p *model.Policy) { p.Traffic = "quic" }, 1, get("/"), NotPermitted},
		{"another namespace", func(p *model.Policy) { p.Targets[0].Namespace = "other" }, 1, get("/"), Ungoverned},
		{"another Deployment", func(p *model.Policy) { p.Targets[0].Name = "webs" }, 1, get("/"), Ungoverned},
		{"another kind", func(p *model.Policy) { p.Targets[0].Kind = "StatefulSet" }, 1, get("/"), Ungoverned},
		{"no targets", func(p *model.Policy) { p.Targets = nil }, 1, get("/"), Ungoverned},
		{"every pod", func(p *model.Policy) { p.Targets[0] = model.Target{Kind: "Pod"} }, 1, get("/"), Allowed},
		{"every Deployment", func(p *model.Policy) { p.Targets[0] = model.Target{Kind: "Deployment"} }, 1, get("/"), Allowed},
		{"every StatefulSet", func(p *model.Policy) { p.Targets[0] = model.Target{Kind: "StatefulSet"} }, 1, get("/"), Ungoverned},
	} {
		if got := judge(t, web(), peer, c.port, c.r, aPolicy(c.change)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAMethodThatAFieldNamesMustBeAllowedToo(t *testing.T) {
	for _, name := range []string{"x-http-method-override", "x-http-method", "x-method-override"} {
		for value, want := range map[string]Reason{"DELETE": NotPermitted, "delete": NotPermitted, "GET, DELETE": NotPermitted, "": NotPermitted, "GET": Allowed, "post": Allowed} {
			p := aPolicy(func(p *model.Policy) { p.Methods, p.Paths = []string{"GET", "POST"}, []string{"/a"} })
			r := &Request{Method: "POST", Path: "/a", Fields: fields{name: value}}
			if got := judge(t, web(), cart(), 8080, r, p); got != want {
				t.Errorf("%s: %q is %v, want %v", name, value, got, want)
			}
			p.Methods = nil
			if got := judge(t, web(), cart(), 8080, r, p); got != Allowed {
				t.Errorf("%s: %q is %v by a policy for all methods", name, value, got)
			}
		}
	}
}

func TestATableKnowsTheFieldsThatDecide(t *testing.T) {
	table := Compile(web(), []model.Policy{
		aPolicy(func(p *model.Policy) {
			p.Headers = []model.ValueMatch{{Name: "X-Team", Value: "a"}, {Name: "X-Team", Value: "b"}}
		}),
		aPolicy(func(p *model.Policy) {
			p.Targets[0].Name = "elsewhere"
			p.Headers = []model.ValueMatch{{Name: "X-Else", Value: "a"}}
		}),
	})
	open := Compile(&model.Workload{}, nil)
	for name, want := range map[string]bool{"X-Team": true, "x-team": true, "X_Team": false, "X-Else": false, "X-HTTP-Method": true, "": false} {
		if got := table.DecidesBy(name, strings.EqualFold); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
		if open.DecidesBy(name, strings.EqualFold) {
			t.Errorf("%s decides where nothing is governed", name)
		}
	}
}

func TestPartsOfTwoPoliciesAllowNothingTogether(t *testing.T) {
	other := func(p *model.Policy) {
		p.Sources = []model.Source{{Kind: "ServiceAccount", Namespace: "shop", Name: "other"}}
	}
	policies := []model.Policy{
		aPolicy(func(p *model.Policy) { p.Methods, p.Paths = []string{"GET"}, []string{"/a"} }),
		aPolicy(func(p *model.Policy) { p.Methods, p.Paths = []string{"POST"}, []string{"/b"} }),
		aPolicy(func(p *model.Policy) { other(p); p.Paths = []string{"/c"} }),
	}
	for want, requests := range map[Reason][]*Request{
		Allowed:      {get("/a"), {Method: "POST", Path: "/b"}},
		NotPermitted: {get("/b"), {Method: "POST", Path: "/a"}, get("/c")},
	} {
		for _, r := range requests {
			if got := judge(t, web(), cart(), 1, r, policies...); got != want {
				t.Errorf("%s %s: %v, want %v", r.Method, r.Path, got, want)
			}
		}
	}
}

func TestSources(t *testing.T) {
	for _, c := range []struct {
		source model.Source
		yes    []string // of the peers below
	}{
		{model.Source{}, []string{"cart", "root", "cartInOther", "node", "bare"}},
		{model.Source{Namespace: "shop"}, []string{"cart", "root", "bare"}},
		{model.Source{Kind: "ServiceAccount", Namespace: "shop", Name: "cart"}, []string{"cart", "bare"}},
		{model.Source{Kind: "ServiceAccount", Name: "cart"}, []string{"cart", "cartInOther", "bare"}},
		{model.Source{Kind: "ServiceAccount", Namespace: "shop"}, []string{"cart", "root", "bare"}},
		{model.Source{Kind: "ServiceAccount"}, []string{"cart", "root", "cartInOther", "bare"}},
		{model.Source{Kind: "Pod", Name: "root"}, []string{"root"}},
		{model.Source{Kind: "Pod"}, []string{"cart", "root", "cartInOther"}},
		{model.Source{Kind: "Pod", Namespace: "shop", Name: "cart-1"}, []string{"cart"}},
		{model.Source{Kind: "Deployment", Namespace: "shop", Name: "cart"}, []string{"cart"}},
		{model.Source{Kind: "ReplicaSet", Name: "cart-7"}, []string{"cart", "cartInOther"}},
		{model.Source{Kind: "Deployment", Namespace: "other"}, []string{"cartInOther"}},
		{model.Source{Kind: "Node"}, []string{"node"}},
		{model.Source{Kind: "Node", Name: "n1"}, []string{"node"}},
		{model.Source{Kind: "Node", Name: "n2"}, nil},
		{model.Source{Kind: "Node", Namespace: "shop", Name: "n1"}, []string{"node"}}, // neither a node nor an ID has a namespace
		{model.Source{Kind: "Node", Namespace: "shop"}, []string{"node"}},
		{model.Source{Kind: model.KindSPIFFE, Namespace: "shop", Name: "spiffe://far/ns/shop/sa/cart"}, []string{"foreign"}},
		{model.Source{Kind: model.KindSPIFFE, Name: "spiffe://far/ns/shop/sa/cart"}, []string{"foreign"}},
		{model.Source{Kind: model.KindSPIFFE, Name: "spiffe://t/ns/shop/sa/cart"}, []string{"cart", "bare"}},
	} {
		other := cart()
		other.ID, other.Namespace = "spiffe://t/ns/other/sa/cart", "other"
		foreign := cart()
		foreign.ID, foreign.Foreign = "spiffe://far/ns/shop/sa/cart", true
		nobody := cart()
		nobody.ID = ""
		for name, p := range map[string]*Peer{
			"cart": cart(), "cartInOther": other, "foreign": foreign, "unverified": nobody,
			"root": {ID: "spiffe://t/ns/shop/sa/r", Namespace: "shop", Account: "r", Pod: "root"},
			"node": {ID: "spiffe://t/node/n1", Node: "n1"},
			"bare": {ID: "spiffe://t/ns/shop/sa/cart", Namespace: "shop", Account: "cart"},
		} {
			want := UnknownSource
			switch {
			case p.ID == "":
				want = NoIdentity
			case slices.Contains(c.yes, name):
				want = Allowed
			}
			if got := judge(t, web(), p, 1, get("/"), aPolicy(func(p *model.Policy) { p.Sources = []model.Source{c.source} })); got != want {
				t.Errorf("%s by %s: %v, want %v", c.source.String(), name, got, want)
			}
		}
	}
}

func TestDenyByDefault(t *testing.T) {
	w := web()
	if got := judge(t, w, &Peer{}, 1, get("/")); got != Ungoverned {
		t.Error("without policies:", got)
	}
	if got := judge(t, w, &Peer{}, 1, get("/"), aPolicy(nil)); got != NoIdentity {
		t.Error("a policy for all identities, without one:", got)
	}
	w.Deny = model.DenyAll
	if got := judge(t, w, cart(), 1, get("/")); got != UnknownSource {
		t.Error("everything is denied:", got)
	}
	if got := judge(t, w, cart(), 1, get("/"), aPolicy(nil)); got != Allowed {
		t.Error("everything is denied but this:", got)
	}
}

func TestLongValuesAreRefusedRatherThanPassed(t *testing.T) {
	p := aPolicy(func(p *model.Policy) {
		for i := range 40 {
			p.Paths = append(p.Paths, fmt.Sprintf("(?:[^x]{0,900}){%d}z", i%3+1))
		}
	})
	if v := Compile(web(), []model.Policy{p}).Subject(cart(), 1).Judge(get("/" + strings.Repeat("a", 30000))); v.Reason != TooMuchWork {
		t.Error(v.Reason)
	}
}

// TestJudgeIsWhatEachPolicySaysByItself compares Judge with Explain, which has no index, on random policies.
func TestJudgeIsWhatEachPolicySaysByItself(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	one := func(all ...string) string { return all[random.IntN(len(all))] }
	some := func(n int, all ...string) (out []string) {
		for range random.IntN(n + 1) {
			out = append(out, one(all...))
		}
		return out
	}
	allowed, denied := 0, 0
	for range size.Of(3000, 100000) {
		w := web()
		if random.IntN(4) == 0 {
			w.Deny = model.DenyAll
		}
		var policies []model.Policy
		for range random.IntN(6) {
			p := aPolicy(func(p *model.Policy) {
				p.Sources = nil
				for range random.IntN(3) {
					p.Sources = append(p.Sources, model.Source{Kind: one("", "ServiceAccount", "Pod", "Deployment", "Node"), Namespace: one("", "shop", "other"), Name: one("", "cart", "cart-1")})
				}
				if random.IntN(20) == 0 {
					for i := range 80 {
						p.Sources = append(p.Sources, model.Source{Kind: "ServiceAccount", Name: fmt.Sprintf("a%d", i)})
					}
				}
				for range random.IntN(2) {
					p.Targets = append(p.Targets, model.Target{Namespace: one("", "shop", "other"), Kind: one("", "Pod", "Service", "Deployment"), Name: one("", "web", "api")})
				}
				p.Traffic = model.Traffic(one("http", "http", "http", "tcp", "udp", "any"))
				for range random.IntN(3) {
					p.Ports = append(p.Ports, int32(8080+random.IntN(3)))
				}
				if p.Traffic == model.TrafficHTTP {
					p.Methods = some(2, "GET", "POST")
					p.Paths = some(4, "/a", "/ab", "/a/b", "/.*x", "/a[b-d]", "/b|/ab", "", "^/a", "(?i)/A", "(")
					if random.IntN(5) == 0 {
						p.Headers = []model.ValueMatch{{Type: model.MatchType(one("exact", "regex")), Name: "X", Value: one("a", "a|b")}}
					}
				}
				if random.IntN(10) == 0 {
					p.Void = "for a test"
				}
			})
			policies = append(policies, p)
		}
		table := Compile(w, policies)
		for range 8 {
			peer := cart()
			switch random.IntN(5) {
			case 0:
				peer.Namespace = "other"
			case 1:
				*peer = Peer{ID: "spiffe://t/node/cart", Node: "cart"}
			case 2:
				peer.ID = ""
			case 3:
				peer.Account = "a7"
			}
			r := &Request{Protocol: Protocol(random.IntN(4) % 3), Method: one("GET", "POST", "PUT"), Path: one("/", "/a", "/ab", "/a/b/c", "/b", "/ac", "/qx", "/B"), Ambiguous: random.IntN(6) == 0}
			if random.IntN(2) == 0 {
				r.Fields = fields{"x": one("a", "b", "")}
			}
			port := int32(8080 + random.IntN(4))
			v := table.Subject(peer, port).Judge(r)
			checkAgainstExplain(t, table, peer, port, r, v)
			if v.Reason == Allowed {
				allowed++
			} else {
				denied++
			}
		}
	}
	if allowed < 1000 || denied < 1000 {
		t.Errorf("%d allowed, %d denied: the random policies show too little", allowed, denied)
	}
}

func TestAPeerIsWhatExplainSays(t *testing.T) {
	for _, s := range []model.Source{{}, {Kind: "Node"}, {Kind: "Deployment", Name: "cart"}, {Kind: "Deployment", Namespace: "other"}, {Kind: model.KindSPIFFE, Name: cart().ID}} {
		p := aPolicy(func(p *model.Policy) { p.Sources = []model.Source{s} })
		explained := Compile(web(), []model.Policy{p}).Explain(cart(), 1, get("/"))
		if is := cart().Is(&s); is != (explained[0].Source != nil) {
			t.Errorf("%v: %v", s, is)
		}
	}
	if (&Peer{}).Is(&model.Source{}) {
		t.Error("nobody is somebody")
	}
}

func TestAWorkloadsPodsAreThePeerThatItsGroupsSay(t *testing.T) {
	w := &model.Workload{Ref: model.Ref{Kind: "Deployment", Namespace: "shop", Name: "cart"}, Account: "till", Groups: []model.Group{
		{Kind: "Deployment", Name: "cart"}, {Kind: "Service", Name: "s"}, {Kind: "IdentityBinding", Name: "i"}, {Kind: "ServiceAccount", Name: "till"}}}
	p := PeerOf(w, "t")
	for _, s := range []model.Source{{}, {Namespace: "shop"}, {Kind: "Pod"}, {Kind: "ReplicaSet", Namespace: "shop"}, {Kind: "Deployment", Name: "cart"},
		{Kind: "ServiceAccount", Namespace: "shop", Name: "till"}, {Kind: model.KindSPIFFE, Name: "spiffe://t/ns/shop/sa/till"}} {
		if !p.Is(&s) {
			t.Errorf("it is not %v", s)
		}
	}
	for _, s := range []model.Source{{Kind: "Pod", Name: "cart"}, {Kind: "Service", Name: "s"}, {Kind: "IdentityBinding", Name: "i"}, {Kind: "Node"}, {Kind: "Deployment", Namespace: "other"}} {
		if p.Is(&s) {
			t.Errorf("it is %v", s)
		}
	}
}

// many returns policies for one workload, each with another path, n for one source and as many for others.
func many(n int) []model.Policy {
	var out []model.Policy
	for i := range n {
		out = append(out, aPolicy(func(p *model.Policy) {
			p.Methods = []string{"GET"}
			p.Paths = []string{fmt.Sprintf(`/service%d/items/\d+$`, i)}
			p.Sources = []model.Source{{Kind: "Deployment", Namespace: "shop", Name: "cart"}, {Kind: "ServiceAccount", Namespace: "shop", Name: fmt.Sprintf("other%d", i)}}
		}))
	}
	return out
}

func TestJudgeAllocatesNothing(t *testing.T) {
	s := Compile(web(), many(1000)).Subject(cart(), 8080)
	r := &Request{Method: "GET", Path: "/service500/items/12", Fields: fields{}}
	if n := testing.AllocsPerRun(100, func() {
		if s.Judge(r).Reason != Allowed {
			t.Error("denied")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkJudge(b *testing.B) {
	for _, n := range []int{10, 1000, 100000} {
		s := Compile(web(), many(n)).Subject(cart(), 8080)
		for name, r := range map[string]*Request{
			"allowed": {Method: "GET", Path: fmt.Sprintf("/service%d/items/12", n/2)},
			"denied":  {Method: "GET", Path: fmt.Sprintf("/service%d/other/12", n/2)},
		} {
			b.Run(fmt.Sprintf("%s/policies=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					s.Judge(r)
				}
			})
		}
	}
}
