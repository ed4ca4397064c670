package diff

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/test/size"
)

// meshOf is two workloads, each a Deployment with an account of its own, and policies.
func meshOf(policies ...model.Policy) *model.Config {
	c := &model.Config{Policies: policies}
	for _, name := range []string{"a", "b"} {
		c.Workloads = append(c.Workloads, model.Workload{Ref: model.Ref{Kind: "Deployment", Namespace: "shop", Name: name}, Account: name, Groups: []model.Group{
			{Kind: "Deployment", Name: name}, {Kind: "ServiceAccount", Name: name}, {Kind: "Service", Name: name, Ports: []int32{80, 81}}}})
	}
	return c
}

func allow(change func(*model.Policy)) model.Policy {
	p := model.Policy{Ref: model.Ref{Kind: "TrafficRole", Namespace: "shop", Name: "r", Field: "rules[0]"}, Traffic: model.TrafficHTTP,
		Targets: []model.Target{{Namespace: "shop", Kind: "Deployment", Name: "a"}}, Sources: []model.Source{{Kind: "Deployment", Namespace: "shop", Name: "b"}}}
	if change != nil {
		change(&p)
	}
	return p
}

func TestChangesOfAccessAreTold(t *testing.T) {
	moved := allow(func(p *model.Policy) {
		p.Ref.Name, p.Binding = "other", model.Ref{Kind: "TrafficRoleBinding", Name: "x"}
	})
	account := allow(func(p *model.Policy) {
		p.Sources[0] = model.Source{Kind: "ServiceAccount", Namespace: "shop", Name: "b"}
	})
	audited := meshOf(allow(func(p *model.Policy) { p.Void = "for a test" }))
	audited.Workloads[0].Audit = true
	lone := meshOf()
	lone.Workloads = lone.Workloads[:1]
	for name, c := range map[string]struct {
		before, after *model.Config
		want          string
	}{
		"nothing":                           {meshOf(allow(nil)), meshOf(allow(nil)), "[]"},
		"a rule of another name":            {meshOf(allow(nil)), meshOf(moved), "[]"},
		"a rule that allows nothing new":    {meshOf(allow(nil)), meshOf(allow(nil), moved), "[]"},
		"the same clients by their account": {meshOf(allow(nil)), meshOf(account), "[]"},
		"the first rule":                    {meshOf(), meshOf(allow(nil)), "[allowed>denied [Deployment shop/a] by [Deployment shop/a any other client a client without an identity Deployment shop/b]]"},
		"the last rule, and all workloads":  {meshOf(allow(nil)), &model.Config{}, "[denied>allowed [Deployment shop/a] by [Deployment shop/a any other client a client without an identity Deployment shop/b]]"},
		"a method":                          {meshOf(allow(nil)), meshOf(allow(func(p *model.Policy) { p.Methods = []string{"GET"} })), "[allowed>denied [Deployment shop/a] by [Deployment shop/b]]"},
		"a path":                            {meshOf(allow(nil)), meshOf(allow(func(p *model.Policy) { p.Paths = []string{"/.*"} })), "[allowed>denied [Deployment shop/a] by [Deployment shop/b]]"},
		"an anchor": {
			meshOf(allow(func(p *model.Policy) { p.Paths = []string{"/x"} })), meshOf(allow(func(p *model.Policy) { p.Paths = []string{"/x$"} })),
			"[allowed>denied [Deployment shop/a] by [Deployment shop/b]]"},
		"audit": {meshOf(allow(func(p *model.Policy) { p.Void = "for a test" })), audited,
			"[denied>audited [Deployment shop/a] by [Deployment shop/a any other client a client without an identity Deployment shop/b]]"},
		"a workload that is new": {lone, meshOf(allow(func(p *model.Policy) { p.Targets[0].Name = "b" })), "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Compare(c.before, c.after, domain)
			got := []string{}
			for _, a := range r.Access {
				got = append(got, fmt.Sprintf("%s>%s %v by %v", a.Before.Verdict, a.After.Verdict, a.Workloads, a.Clients))
			}
			if fmt.Sprint(got) != c.want || r.Same() != (c.want == "[]") {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestNoChangeOfAccessEscapes compares random policies of which every call can be asked: what is judged differently is
// told.
func TestNoChangeOfAccessEscapes(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	one := func(all ...string) string { return all[random.IntN(len(all))] }
	some := func() model.Policy {
		return allow(func(p *model.Policy) {
			p.Targets = []model.Target{{Namespace: "shop", Kind: one("", "Deployment", "Service", "ServiceAccount"), Name: one("a", "b")}}
			if p.Targets[0].Kind == "" {
				p.Targets[0].Name = ""
			}
			p.Sources = nil
			for range random.IntN(3) {
				p.Sources = append(p.Sources, model.Source{Kind: one("ServiceAccount", "Deployment", "Pod", "Node"), Namespace: one("", "shop", "else"), Name: one("", "a", "b", "c")})
			}
			if random.IntN(8) == 0 {
				p.Sources = append(p.Sources, model.Source{Kind: model.KindSPIFFE, Name: one("spiffe://far.example/x", policy.AccountID(domain, "shop", "a"))}, model.Source{Namespace: one("", "shop")})
			}
			if p.Traffic = model.Traffic(one("http", "http", "http", "tcp", "udp", "any")); p.Traffic == model.TrafficHTTP {
				for range random.IntN(3) {
					p.Methods = append(p.Methods, one("GET", "POST"))
				}
				for range random.IntN(3) {
					p.Paths = append(p.Paths, one("/a", "/a/b$", "/c.*", "/[0-9]+$"))
				}
				if random.IntN(4) == 0 {
					p.Headers = []model.ValueMatch{{Type: model.MatchType(one("exact", "regex")), Name: "X-User", Value: one("1", "2")}}
				}
			}
			if random.IntN(4) == 0 {
				p.Ports = []int32{int32(80 + random.IntN(3))}
			}
		})
	}
	peers := []*policy.Peer{{}, {ID: "spiffe://far.example/x", Foreign: true}, {ID: "spiffe://" + domain + "/node/c", Node: "c"}}
	for _, w := range meshOf().Workloads {
		peers = append(peers, policy.PeerOf(&w, domain))
	}
	different, pairs := 0, size.Of(80, 3000)
	for range pairs {
		var policies []model.Policy
		for range 1 + random.IntN(4) {
			policies = append(policies, some())
		}
		before := meshOf(policies...)
		after := meshOf(append([]model.Policy{some()}, policies[1:]...)...)
		report := Compare(before, after, domain)
		if report.Thinned {
			continue
		}
		var found string
		for i := range before.Workloads {
			x, y := policy.Compile(&before.Workloads[i], before.Policies), policy.Compile(&after.Workloads[i], after.Policies)
			for _, p := range peers {
				for _, port := range []int32{80, 81, 82, 8080} {
					old, now := x.Subject(p, port), y.Subject(p, port)
					for _, path := range []string{"/a", "/a/b", "/a/x", "/c", "/cx", "/1", "/z"} {
						for _, method := range []string{"GET", "POST", "PUT"} {
							for _, user := range []string{"", "1", "2"} {
								for _, protocol := range []policy.Protocol{policy.HTTP, policy.TCP, policy.UDP} {
									c := &Call{Method: method, Path: path}
									if user != "" {
										c.Headers = []model.HeaderValue{{Name: "x-user", Value: user}}
									}
									r := &policy.Request{Protocol: protocol, Method: method, Path: path, Fields: c}
									if a, b := old.Judge(r), now.Judge(r); a.Reason.Passes() != b.Reason.Passes() {
										found = fmt.Sprint(before.Workloads[i].Ref, *p, port, protocol, *c, a.Reason, b.Reason)
									}
								}
							}
						}
					}
				}
			}
		}
		if found != "" {
			different++
		}
		if found != "" && len(report.Access) == 0 {
			t.Fatalf("%s differs, and nothing is told:\n%+v\n%+v", found, before.Policies, after.Policies)
		}
		for _, c := range report.Access {
			if c.Before.Verdict == c.After.Verdict || c.Calls < len(c.Examples) || len(c.Clients) == 0 {
				t.Fatalf("%+v is no difference", c)
			}
		}
	}
	if different < pairs/4 || different > pairs*9/10 {
		t.Errorf("%d of %d pairs differ: too few or too many to show anything", different, pairs)
	}
}

func TestManyWorkloadsAreComparedWithinBounds(t *testing.T) {
	big := func(path string) *model.Config {
		c := &model.Config{}
		for i := range size.Of(60, 300) {
			name := fmt.Sprintf("w%d", i)
			c.Workloads = append(c.Workloads, model.Workload{Ref: model.Ref{Kind: "Deployment", Namespace: "shop", Name: name}, Account: name, Groups: []model.Group{{Kind: "Deployment", Name: name}}})
			c.Policies = append(c.Policies, allow(func(p *model.Policy) {
				p.Ref.Field = fmt.Sprintf("rules[%d]", i)
				p.Targets[0].Name, p.Sources[0].Name, p.Paths, p.Methods = name, fmt.Sprintf("w%d", i+1), []string{path}, []string{"GET", "POST"}
			}))
		}
		return c
	}
	r := Compare(big("/a"), big("/b"), domain)
	if len(r.Access) == 0 || len(r.Access) > maxChanges || r.AccessAsked > maxCalls {
		t.Errorf("%d changes of %d calls", len(r.Access), r.AccessAsked)
	}
	for _, c := range r.Access {
		if len(c.Clients) > maxNamed || len(c.Workloads) > maxNamed || len(c.Examples) > maxExamples {
			t.Errorf("%+v tells too much", c)
		}
	}
}
