package upstream

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// sticky is a service of so many endpoints that keeps clients where they are.
func sticky(n int) *model.Config {
	s := service("ns/svc:80")
	s.ClientAffinity = true
	for i := range n {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i+1)})
	}
	return &model.Config{Services: []model.Service{s}}
}

func clients(n int) (all []netip.Addr) {
	for i := range n {
		all = append(all, netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}))
	}
	return all
}

// chosen is which endpoint each client gets.
func chosen(svc *Service, all []netip.Addr, avoid *Endpoint) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, c := range all {
		out[c] = svc.PickFor(c, avoid).Address
	}
	return out
}

func TestClientsStayAtTheirEndpoint(t *testing.T) {
	all := clients(4000)
	svc := apply(t, newSet(t, Options{}), sticky(4))
	before := chosen(svc, all, nil)
	for _, e := range svc.Endpoints() {
		e.inFlight.Add(int64(len(e.Address))) // whatever their load
	}
	for range 3 {
		for c, e := range chosen(svc, all, nil) {
			if e != before[c] {
				t.Fatalf("%s goes to %s, then to %s", c, before[c], e)
			}
		}
	}
	each := map[string]int{}
	for _, e := range before {
		each[e]++
	}
	for address, n := range each {
		if n < 880 || n > 1120 { // four standard deviations
			t.Errorf("%s has %d of 4000 clients", address, n)
		}
	}
	// Another process, and one that reads addresses in the other form, chooses the same.
	other := apply(t, newSet(t, Options{}), sticky(4))
	for _, c := range all {
		if got := other.PickFor(netip.AddrFrom16(c.As16()), nil).Address; got != before[c] {
			t.Fatalf("%s goes to %s and to %s", c, before[c], got)
		}
	}
	// One that comes takes its part of each of the others, and moves nobody else.
	moved := 0
	for c, e := range chosen(apply(t, newSet(t, Options{}), sticky(5)), all, nil) {
		if e != before[c] {
			if moved++; e != "10.0.0.5:80" {
				t.Fatalf("%s moved from %s to %s", c, before[c], e)
			}
		}
	}
	if moved < 690 || moved > 910 {
		t.Errorf("%d of 4000 clients moved to one of five", moved)
	}
}

// TestClientsMoveOnlyFromWhatCannotServe them, and come back.
func TestClientsMoveOnlyFromWhatCannotServe(t *testing.T) {
	all := clients(400)
	svc := apply(t, newSet(t, Options{}), sticky(3))
	before, bad := chosen(svc, all, nil), svc.Endpoints()[1]
	differ := func(what string, avoid *Endpoint) {
		t.Helper()
		elsewhere := map[string]bool{}
		for c, e := range chosen(svc, all, avoid) {
			if before[c] == bad.Address {
				elsewhere[e] = true
			} else if e != before[c] {
				t.Errorf("%s: %s moved from %s to %s", what, c, before[c], e)
			}
		}
		if elsewhere[bad.Address] || len(elsewhere) != 2 {
			t.Errorf("%s: its clients go to %v", what, elsewhere)
		}
	}
	differ("to be avoided", bad)
	sicken(bad)
	differ("sick", nil)
	bad.health.failing.Store(false)
	bad.inFlight.Add(bad.maxInFlight.Load())
	differ("full", nil)
	bad.inFlight.Store(0)
	for c, e := range chosen(svc, all, nil) {
		if e != before[c] {
			t.Fatalf("%s did not come back", c)
		}
	}
	for _, e := range svc.Endpoints() {
		sicken(e)
	}
	for c, e := range chosen(svc, all, nil) {
		if e != before[c] {
			t.Fatalf("%s moved, and no endpoint is healthy", c)
		}
	}
	one := apply(t, newSet(t, Options{}), sticky(1))
	if only := one.Endpoints()[0]; one.PickFor(all[0], only) != only || one.PickFor(netip.Addr{}, nil) != only {
		t.Error("the only endpoint is not chosen")
	}
	if e := apply(t, newSet(t, Options{}), sticky(0)).PickFor(all[0], nil); e != nil {
		t.Errorf("picked %v of none", e)
	}
}

// TestClientsOfAZoneStayInIt, each at its endpoint.
func TestClientsOfAZoneStayInIt(t *testing.T) {
	cfg := hinted(false, "10.0.0.1 za", "10.0.0.2 za", "10.0.0.3 zb")
	cfg.Services[0].ClientAffinity = true
	svc := apply(t, newSet(t, Options{Zone: "za"}), cfg)
	each := map[string]int{}
	for _, e := range chosen(svc, clients(100), nil) {
		each[e]++
	}
	if len(each) != 2 || each["10.0.0.3:80"] > 0 {
		t.Errorf("clients go to %v", each)
	}
	if n := testing.AllocsPerRun(100, func() { svc.PickFor(netip.AddrFrom4([4]byte{192, 0, 2, 1}), svc.Endpoints()[0]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
