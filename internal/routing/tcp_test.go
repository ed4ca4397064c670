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
			Ref: model.Ref{Kind: "TCPRoute", Namespace: "ns", Name: fmt.Sprint("r", i)}, TCP: true,
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
	p := table.Port("", 5432)
	if r := p.Rule(); !p.TCP || r == nil || r.Route.Ref.Name != "r2" {
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
		rule := compiled(t, cfg, nil).Port("", 5432).Rule()
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
		}, `listener "db" is for TCP`},
		"TCPRoute on HTTP": {func(c *model.Config) { c.Listeners[0].Protocol = model.HTTP }, `TCP listener "db" does not exist`},
		"matches":          {func(c *model.Config) { c.Routes[0].Rules[0].Matches = []model.Match{prefix("/")} }, "one rule, without matches"},
		"two rules":        {func(c *model.Config) { c.Routes[0].Rules = append(c.Routes[0].Rules, model.Rule{}) }, "one rule"},
		"a second listener": {func(c *model.Config) {
			c.Listeners = append(c.Listeners, model.Listener{Name: "x", Port: 5432, Protocol: model.HTTP})
		}, "port 5432 has a TCP listener"},
	} {
		cfg := connections(one)
		x.breakIt(cfg)
		if _, left := Compile(cfg, nil); len(left) == 0 || !strings.Contains(left[0].Reason, x.want) {
			t.Errorf("%s: left out %v, want %q", name, left, x.want)
		}
	}
}
