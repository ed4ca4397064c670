package feed

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// TestDestinationsMayDifferByNamespace has three namespaces, one of which has routes of its own: a change of these is for its proxies
// alone, and what is the same for the others is encoded once.
func TestDestinationsMayDifferByNamespace(t *testing.T) {
	s := &Server{Destinations: true}
	s.init()
	to := destinationAt(7)
	direct := func(all, office int) {
		of := map[string]*model.Config{"": mesh(10, all)("", to), "office": mesh(10, office)("office", to)}
		s.Direct(func(clients string, _ netip.AddrPort) *model.Config {
			if clients != "office" {
				clients = ""
			}
			return of[clients]
		})
	}
	direct(1, 2)
	sessions, uses := map[string]*session{}, map[string]*destination{}
	for _, namespace := range []string{"shop", "elsewhere", "office"} {
		x := s.open(t.Context(), model.WorkloadOwner(namespace, "web-1"), namespace+"/web-1", nil, func() {})
		defer s.close(x)
		x.mu.Lock()
		of, err := s.directory.enter(x, to)
		x.mu.Unlock()
		if err != nil || of == nil {
			t.Fatal(namespace, of, err)
		}
		sessions[namespace], uses[namespace] = x, of
	}
	at := func(namespace string) string {
		for _, p := range uses[namespace].current.Load().parts {
			if len(p.content.Services) > 0 {
				return p.content.Services[0].Endpoints[0].Address
			}
		}
		return ""
	}
	if at("shop") != "10.1.0.1:80" || at("elsewhere") != "10.1.0.1:80" || at("office") != "10.1.0.2:80" {
		t.Fatal(at("shop"), at("elsewhere"), at("office"))
	}
	if uses["shop"].current.Load() != uses["elsewhere"].current.Load() {
		t.Error("the same was encoded twice")
	}
	direct(1, 3)
	if at("shop") != "10.1.0.1:80" || at("office") != "10.1.0.3:80" {
		t.Error(at("shop"), at("office"))
	}
	direct(4, 3)
	if at("shop") != "10.1.0.4:80" || at("elsewhere") != "10.1.0.4:80" || at("office") != "10.1.0.3:80" || uses["shop"].current.Load() != uses["elsewhere"].current.Load() {
		t.Error(at("shop"), at("elsewhere"), at("office"))
	}
	for _, x := range sessions {
		s.directory.leave(x, to)
	}
	if len(s.directory.used) != 0 {
		t.Errorf("still used: %v", s.directory.used)
	}
}

// TestAProxyLagsUntilItServesWhatItAskedFor has a proxy that is slow to apply a change of a destination, and one that does not use it.
func TestAProxyLagsUntilItServesWhatItAskedFor(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.Destinations = true
	address, stop := w.serve(s, "")
	defer stop()
	s.Direct(mesh(10, 1))
	own, common := base(t)
	cart, asks := w.asking("cart-1", address)
	_, others := w.asking("pay-1", address)
	w.feed(s, "cart-1", own, common)
	w.feed(s, "pay-1", own, common)
	if err := errors.Join(asks.Find(t.Context(), destinationAt(7)), others.Find(t.Context(), destinationAt(8))); err != nil {
		t.Fatal(err)
	}
	of := func(i int) string {
		return s.Lagging(func(c *model.Config) bool { return c.Services[0].Name == fmt.Sprintf("n/s%d:80", i) })
	}
	until(t, "all serve the first", func() bool { return of(7) == "" && of(8) == "" })
	changed := *own
	changed.Listeners = append(slices.Clone(own.Listeners), own.Listeners[0])
	changed.Listeners[1].Name, changed.Listeners[1].Port = "second", 8081
	w.feed(s, "cart-1", &changed, common)
	until(t, "its own change is served, too", func() bool { c := cart.last(); return c != nil && len(c.Listeners) == 2 })
	until(t, "none is behind, though it uses a destination", func() bool { return w.late(s) == 0 })
	cart.mu.Lock() // it applies nothing
	s.Direct(mesh(10, 2))
	if got := of(7); got != "cart-1" {
		t.Errorf("%q lags", got)
	}
	until(t, "it is behind", func() bool { return w.late(s) == 1 })
	until(t, "who does not use it is none of it", func() bool { return of(8) == "" })
	if of(7) == "" {
		t.Error("nobody lags, and the change is not applied")
	}
	if of(9) != "" {
		t.Error("somebody lags at what nobody uses")
	}
	cart.mu.Unlock()
	until(t, "it serves the second", func() bool { return of(7) == "" && cart.endpoint(7) == "10.1.0.2:80" })
	until(t, "none is behind", func() bool { return w.late(s) == 0 })
}
