package routing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

// connections is a TCP listener with a route for each list of backends.
func connections(backends ...[]model.Backend) *model.Config {
	cfg := &model.Config{Listeners: []model.Listener{{Name: "db", Port: 5432, Protocol: model.TCP}}}
	for i, b := range backends {
		cfg.Routes = append(cfg.Routes, model.Route{
			Ref: model.Ref{Kind: "TCPRoute", Namespace: "ns", Name: fmt.Sprint("r", i)}, Kind: model.RouteTCP,
			Created:     time.Date(2026, 1, 10-i, 0, 0, 0, 0, time.UTC),
			Attachments: []model.Attachment{{Listener: "db", Hostnames: []string{"*"}}},
			Rules:       []model.Rule{{Backends: b}},
		})
	}
	return cfg
}

func TestATCPPortHasTheRuleOfTheOldestRoute(t *testing.T) {
	one := []model.Backend{{Service: "ns/root:80", Weight: 1}}
	table := compiled(t, connections(one, one, one), nil)
	p := table.Port("tcp", "", 5432)
	if r := p.Rule(); p.Protocol != model.TCP || r == nil || r.Route.Ref.Name != "r2" {
		t.Errorf("rule = %+v, want that of r2", r)
	}
	if r := compiled(t, connections(), nil).Ports()[0].Rule(); r != nil {
		t.Errorf("without routes the rule is %+v", r)
	}
	if r := compiled(t, splitConfig(), nil).Ports()[0].Rule(); r != nil {
		t.Errorf("a port of HTTP has the rule %+v", r)
	}
}

func TestConnectionsAreSplitExactlyByTheSplitWithoutMatches(t *testing.T) {
	cfg := connections([]model.Backend{{Service: "ns/root:80", Weight: 2}, {Service: "ns/other:80", Weight: 1}})
	ref := func(name string) model.Ref { return model.Ref{Kind: "TrafficSplit", Namespace: "ns", Name: name} }
	cfg.Splits = []model.Split{
		{Ref: ref("matched"), Root: "ns/root:80", Matches: []model.SplitMatch{{Path: "/"}}, Leaves: []model.Leaf{{Service: "ns/never:80", Weight: 1}}},
		{Ref: ref("all"), Root: "ns/root:80", Leaves: leaves(3, 1)},
	}
	count := func() map[string]int {
		got := map[string]int{}
		rule := compiled(t, cfg, nil).Port("tcp", "", 5432).Rule()
		for range 120 {
			b := rule.Pick()
			if l := b.ConnectionLeaf(); l != nil {
				got[l.Service]++
			} else {
				got[b.Backend.Service]++
			}
		}
		return got
	}
	if got := count(); got["ns/leaf0:80"] != 60 || got["ns/leaf1:80"] != 20 || got["ns/other:80"] != 40 {
		t.Errorf("120 connections went to %v, want 60, 20 and 40", got)
	}
	cfg.Splits = cfg.Splits[:1]
	if got := count(); got["ns/root:80"] != 80 || got["ns/other:80"] != 40 {
		t.Errorf("with a split with matches alone 120 connections went to %v, want 80 and 40", got)
	}
}

func TestCompileRefusesRoutesOnListenersOfTheOtherSort(t *testing.T) {
	one := []model.Backend{{Service: "ns/root:80", Weight: 1}}
	for name, x := range map[string]struct {
		breakIt func(*model.Config)
		want    string
	}{
		"requests on TCP": {func(c *model.Config) { c.Routes = []model.Route{on("r", []string{"*"}, prefix("/"))} }, "does not exist"},
		"HTTPRoute on TCP": {func(c *model.Config) {
			c.Routes = []model.Route{on("r", []string{"*"}, prefix("/"))}
			c.Routes[0].Attachments[0].Listener = "db"
		}, `listener "db" has the protocol "tcp", which takes no HTTP route`},
		"TCPRoute on HTTP": {func(c *model.Config) { c.Listeners[0].Protocol = model.HTTP }, `listener "db" has the protocol "http", which takes no TCP route`},
		"matches":          {func(c *model.Config) { c.Routes[0].Rules[0].Matches = []model.Match{prefix("/")} }, "one rule, without matches"},
		"two rules":        {func(c *model.Config) { c.Routes[0].Rules = append(c.Routes[0].Rules, model.Rule{}) }, "one rule"},
		"a second listener": {func(c *model.Config) {
			c.Listeners = append(c.Listeners, model.Listener{Name: "x", Port: 5432, Protocol: model.HTTP})
		}, `port 5432 has a listener of the protocol "tcp"`},
		"a second listener of its protocol": {func(c *model.Config) {
			c.Listeners = append(c.Listeners, model.Listener{Name: "x", Port: 5432, Protocol: model.TCP})
		}, "port 5432 has another listener"},
		"an unknown kind": {func(c *model.Config) { c.Routes[0].Kind = "udp" }, `"udp" is unknown to this version; the route is left out`},
	} {
		cfg := connections(one)
		x.breakIt(cfg)
		if _, left := Compile(cfg, nil); len(left) == 0 || !strings.Contains(left[0].Reason, x.want) {
			t.Errorf("%s: left out %v, want %q", name, left, x.want)
		}
	}
}

// TestEachKindOfRouteIsServed has a listener of each protocol and, one after the other, a route of each kind that it takes.
func TestEachKindOfRouteIsServed(t *testing.T) {
	for _, p := range model.ListenerProtocols() {
		for _, k := range model.RouteKinds() {
			if !p.Takes(k) {
				continue
			}
			route := on("r", []string{"*"})
			route.Kind, route.Attachments[0].Listener = k, "l"
			route.Rules = []model.Rule{{Backends: []model.Backend{{Service: "ns/root:80", Weight: 1}}}}
			if k.Requests() {
				route.Rules[0].Matches = []model.Match{prefix("/")}
			}
			table := compiled(t, &model.Config{Listeners: []model.Listener{{Name: "l", Port: 80, Protocol: p}}, Routes: []model.Route{route}}, nil)
			port := table.Port(p.Network(), "", 80)
			if port == nil || port.Protocol != p {
				t.Fatalf("%s: port %+v", p, port)
			}
			rule := port.Rule()
			if p.Requests() {
				var d Decision
				if rule != nil || !port.Listener("a").Match(&Request{Host: "a", Method: "GET", Path: "/"}, &d) {
					t.Errorf("%s route on %s: no request is matched, or connections are served", k, p)
				}
				rule = d.Rule
			}
			if rule == nil || rule.Pick() == nil {
				t.Errorf("%s route on %s: rule %+v", k, p, rule)
			}
		}
	}
}

func TestARouteOfAnUnknownKindKeepsItsRequestsBack(t *testing.T) {
	cfg := &model.Config{Listeners: []model.Listener{{Name: "l", Port: 80, Protocol: model.HTTP}}}
	for i, path := range []string{"/", "/admin"} {
		r := on(fmt.Sprint("r", i), []string{"*"}, prefix(path))
		r.Attachments[0].Listener = "l"
		cfg.Routes = append(cfg.Routes, r)
	}
	cfg.Routes[1].Kind = "webtransport"
	table, left := Compile(cfg, nil)
	if len(left) != 1 || !strings.Contains(left[0].Reason, "are answered 500") {
		t.Errorf("left out %v", left)
	}
	for path, want := range map[string]string{"/": "", "/admin/x": "InvalidConfiguration"} {
		var d Decision
		if !table.Ports()[0].Listener("a").Match(&Request{Host: "a", Method: "GET", Path: path}, &d) {
			t.Fatalf("%s is not matched", path)
		}
		got := ""
		if f := d.Rule.Rule.Fault; f != nil {
			got = f.Reason
		}
		if got != want {
			t.Errorf("%s: fault %q, want %q", path, got, want)
		}
	}
}

// TestAPortThatDetectsHasRoutesOfBothKinds and is its listener's alone.
func TestAPortThatDetectsHasRoutesOfBothKinds(t *testing.T) {
	cfg := connections([]model.Backend{{Service: "ns/a:80", Weight: 1}})
	cfg.Listeners[0].Protocol, cfg.Listeners[0].Detect = model.HTTP, true
	cfg.Routes = append(cfg.Routes, model.Route{
		Ref: model.Ref{Kind: "HTTPRoute", Namespace: "ns", Name: "requests"}, Attachments: []model.Attachment{{Listener: "db", Hostnames: []string{"*"}}},
		Rules: []model.Rule{{Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}}},
	})
	p := compiled(t, cfg, nil).Ports()[0]
	if !p.Detect || !p.Connections() || p.Rule() == nil || p.Rule().Route.Ref.Name != "r0" {
		t.Errorf("%+v, rule %+v", p, p.Rule())
	}
	var d Decision
	if !p.Listener("a").Match(&Request{Host: "a", Method: "GET", Path: "/"}, &d) || d.Rule.Route.Ref.Name != "requests" {
		t.Errorf("requests get %+v", d.Rule)
	}
	for _, detects := range []bool{true, false} {
		both := *cfg
		both.Listeners = []model.Listener{cfg.Listeners[0], {Name: "other", Port: 5432, Protocol: model.HTTP, Hostname: "a.example", Detect: detects}}
		if detects {
			both.Listeners[0], both.Listeners[1] = both.Listeners[1], both.Listeners[0]
		}
		table, left := Compile(&both, nil)
		if len(left) == 0 || !strings.Contains(left[0].Reason, "has its port alone") || len(table.Listeners()) != 1 {
			t.Errorf("left out %v", left)
		}
	}
}
