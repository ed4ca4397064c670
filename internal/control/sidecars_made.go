package control

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weirmesh/weir/internal/model"
)

// madeBefore remembers what Sidecars.To returned, from one set to the next: what changes most often are EndpointSlices, and most
// destinations have none of those that changed.
type madeBefore struct {
	mu    sync.Mutex
	all   map[madeFor]*madeTo
	asked bool
}

// madeFor is a destination, for the clients of a namespace that has routes of its own for it, or of all others.
type madeFor struct {
	to      netip.AddrPort
	clients string
}

// madeTo is what is at a destination, and the EndpointSlices of its Services by which it was made.
type madeTo struct {
	config *model.Config
	slices []servedBy
	asked  bool // for this set
}

type servedBy struct {
	namespace, name string
	slices          []*discoveryv1.EndpointSlice
}

// take takes what an earlier one made of a set that differs in EndpointSlices alone. What nobody asked for any more is left.
func (m *madeBefore) take(s, earlier *Sidecars) {
	m.all = map[madeFor]*madeTo{}
	if !s.SameInbound(earlier) || !slices.EqualFunc(s.configs, earlier.configs, sameSplits) {
		return
	}
	e := &earlier.made
	e.mu.Lock()
	defer e.mu.Unlock()
	for to, x := range e.all {
		if x.asked || !e.asked {
			m.all[to] = &madeTo{config: x.config, slices: x.slices}
		}
	}
}

// sameSplits compares what two sets say of splits, and of services that extend others: EndpointSlices alone do not say that.
func sameSplits(a, b model.Config) bool {
	over := func(all []model.Service) (out []model.Service) {
		for i := range all {
			if all[i].Extends != "" {
				out = append(out, all[i])
			}
		}
		return out
	}
	x, y := model.Config{Splits: a.Splits, Services: over(a.Services)}, model.Config{Splits: b.Splits, Services: over(b.Services)}
	return x.Equal(&y)
}

// to returns what make makes of a destination, or made before of the same.
func (m *madeBefore) to(s *Sidecars, to madeFor, make func() *model.Config) *model.Config {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = true
	if x := m.all[to]; x != nil && !slices.ContainsFunc(x.slices, func(by servedBy) bool {
		return !slices.Equal(by.slices, s.set.EndpointSlicesOf(by.namespace, by.name))
	}) {
		x.asked = true
		return x.config
	}
	x := &madeTo{config: make(), asked: true}
	if x.config == nil {
		delete(m.all, to)
		return nil
	}
	for i := range x.config.Services {
		namespace, rest, _ := strings.Cut(x.config.Services[i].Name, "/")
		name, _, _ := strings.Cut(rest, ":")
		x.slices = append(x.slices, servedBy{namespace, name, s.set.EndpointSlicesOf(namespace, name)})
	}
	if m.all == nil {
		m.all = map[madeFor]*madeTo{}
	}
	m.all[to] = x
	return x.config
}
