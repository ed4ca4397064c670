package upstream

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// hinted is a service of endpoints "address nodes zones"; names of nodes begin with n.
func hinted(local bool, endpoints ...string) *model.Config {
	s := service("ns/svc:80")
	s.NodeLocal = local
	for _, text := range endpoints {
		f := strings.Fields(text)
		e := model.Endpoint{Address: f[0] + ":80"}
		for _, each := range f[1:] {
			if strings.HasPrefix(each, "n") {
				e.Nodes = each
			} else {
				e.Zones = each
			}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return &model.Config{Services: []model.Service{s}}
}

// picked are the endpoints that a service picks, by the last number of their addresses.
func picked(svc *Service, avoid *Endpoint) string {
	set := map[string]bool{}
	for range 200 {
		name := "none"
		if e := svc.Pick(avoid); e != nil {
			name = strings.TrimSuffix(strings.TrimPrefix(e.Address, "10.0.0."), ":80")
		}
		set[name] = true
	}
	var all []string
	for name := range set {
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestEndpointsAreUsedWhereTheyAreMeantFor(t *testing.T) {
	zones := []string{"10.0.0.1 za", "10.0.0.2 za", "10.0.0.3 zb", "10.0.0.4 zb,zc"}
	nodes := []string{"10.0.0.1 n1 za", "10.0.0.2 n2 za", "10.0.0.3 n3 zb"}
	for name, x := range map[string]struct {
		node, zone string
		local      bool
		endpoints  []string
		want       string
	}{
		"nowhere":                        {endpoints: zones, want: "1 2 3 4"},
		"a zone":                         {zone: "za", endpoints: zones, want: "1 2"},
		"one of two zones":               {zone: "zc", endpoints: zones, want: "4"},
		"part of a name is no name":      {zone: "z", endpoints: zones, want: "1 2 3 4"},
		"a zone that no endpoint is for": {zone: "zd", endpoints: zones, want: "1 2 3 4"},
		"a node":                         {node: "n1", zone: "za", endpoints: nodes, want: "1"},
		"a node that no endpoint is for": {node: "n4", zone: "za", endpoints: nodes, want: "1 2"},
		"neither":                        {node: "n4", zone: "zd", endpoints: nodes, want: "1 2 3"},
		"no hints":                       {node: "n1", zone: "za", endpoints: []string{"10.0.0.1", "10.0.0.2"}, want: "1 2"},
		"local":                          {node: "n2", local: true, endpoints: []string{"10.0.0.1 n1", "10.0.0.2 n2", "10.0.0.3"}, want: "2"},
		"local, none":                    {node: "n4", local: true, endpoints: []string{"10.0.0.1 n1", "10.0.0.2 n2"}, want: "none"},
		"local, node not known":          {local: true, endpoints: []string{"10.0.0.1 n1", "10.0.0.2 n2"}, want: "1 2"},
	} {
		t.Run(name, func(t *testing.T) {
			svc := apply(t, newSet(t, Options{Node: x.node, Zone: x.zone}), hinted(x.local, x.endpoints...))
			if got := picked(svc, nil); got != x.want {
				t.Errorf("picked %s, want %s", got, x.want)
			}
		})
	}
}

// TestEndpointsElsewhereTakeOver when none here is healthy, has room, or may be tried again; and only then.
func TestEndpointsElsewhereTakeOver(t *testing.T) {
	svc := apply(t, newSet(t, Options{Zone: "za"}), hinted(false, "10.0.0.1 za", "10.0.0.2 za", "10.0.0.3 zb", "10.0.0.4 zb", "10.0.0.5 zb"))
	e := svc.Endpoints()
	other := func(want string, tried ...*Endpoint) {
		t.Helper()
		got := svc.PickOther(tried)
		if got == nil || got.Address != want+":80" {
			t.Errorf("tried %d, then %v, want %s", len(tried), got, want)
		}
	}
	if got := picked(svc, e[0]); got != "2" {
		t.Errorf("a retry comes to %s", got)
	}
	e[1].Succeeded()
	other("10.0.0.2", e[0])
	sicken(e[1])
	if got := picked(svc, nil); got != "1" {
		t.Errorf("one is sick: %s", got)
	}
	if got := picked(svc, e[0]); got != "3 4 5" {
		t.Errorf("one is sick, one to be avoided: %s", got)
	}
	other("10.0.0.5", e[0], e[2], e[3])
	e[0].inFlight.Add(e[0].maxInFlight.Load())
	if got := picked(svc, nil); got != "3 4 5" {
		t.Errorf("one is sick, one is full: %s", got)
	}
	for _, far := range e[2:] {
		sicken(far)
	}
	if got := picked(svc, nil); got != "none" {
		t.Errorf("the only healthy one is full: %s", got)
	}
	sicken(e[0])
	if got := picked(svc, nil); got != "2 3 4 5" {
		t.Errorf("none is healthy: %s", got)
	}
	e[0].health.failing.Store(false)
	e[0].inFlight.Store(0)
	if got := picked(svc, nil); got != "1" {
		t.Errorf("one has room again: %s", got)
	}
}

// TestEndpointsNearAreFoundAgain after the ejection of all of them ends: one request proves each.
func TestEndpointsNearAreFoundAgain(t *testing.T) {
	svc := apply(t, newSet(t, Options{Zone: "za"}), hinted(false, "10.0.0.1 za", "10.0.0.2 zb", "10.0.0.3 zb"))
	near := svc.Endpoints()[0]
	eject(near)
	if got := picked(svc, nil); got != "2 3" {
		t.Fatalf("ejected: %s", got)
	}
	near.health.until.Store(svc.set.now() - 1)
	if got := svc.Pick(nil); got != near {
		t.Fatalf("its time is over: %v", got)
	}
	if got := picked(svc, nil); got != "2 3" {
		t.Errorf("while it proves itself: %s", got)
	}
	near.Succeeded()
	if got := picked(svc, nil); got != "1" {
		t.Errorf("it has proved itself: %s", got)
	}
}
