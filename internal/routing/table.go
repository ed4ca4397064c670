package routing

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirmesh/weir/internal/model"
)

// Table is one compiled configuration. It is immutable, except for the counters of its samplers, and safe for
// concurrent use. It points into the model.Config from which it was compiled, which must not change afterwards.
type Table struct {
	ports     []*Port
	listeners []*Listener
	rules     []*Rule
	backends  []*Backend
	leaves    []*Leaf
	// mirrorLeaves are the leaves of mirrors.
	mirrorLeaves []*Leaf
	mirrors      []*Mirror

	// samplers may be taken over by the next table.
	samplers    map[samplerKey][]*sampler
	expressions map[string]*model.Pattern
	starts      map[string]*model.Pattern
}

// Ports returns the address and port groups the proxy must bind, by number, then address, then network.
func (t *Table) Ports() []*Port { return t.ports }

// Port returns the port of that network ("tcp"), address ("" is all addresses) and number, or nil.
func (t *Table) Port(network, address string, port int32) *Port {
	for _, p := range t.ports {
		if p.Number == port && p.Address == address && p.Protocol.Network() == network {
			return p
		}
	}
	return nil
}

// Listeners returns all listeners in the order of the model; Listeners()[i].ID == i.
func (t *Table) Listeners() []*Listener { return t.listeners }

// Rules returns all rules; Rules()[i].ID == i.
func (t *Table) Rules() []*Rule { return t.rules }

// Backends returns the backends of all rules; Backends()[i].ID == i.
func (t *Table) Backends() []*Backend { return t.backends }

// Leaves returns the leaves of all backends that lead to the root of a split; Leaves()[i].ID == i. Each backend has
// separate leaves, even if several lead to one root.
func (t *Table) Leaves() []*Leaf { return t.leaves }

// MirrorLeaves returns the leaves that splits lead the copies of mirrors to; element i has ID i.
func (t *Table) MirrorLeaves() []*Leaf { return t.mirrorLeaves }

// Mirrors returns the mirrors of all rules and backends; Mirrors()[i].ID == i.
func (t *Table) Mirrors() []*Mirror { return t.mirrors }

// Port is an address and port and the listeners that share it.
type Port struct {
	Address string
	Number  int32
	// Protocol is what all the listeners speak: requests are for Listener and Match, connections for Rule.
	Protocol  model.Protocol
	Listeners []*Listener
	// Plain means that some listener serves clients without TLS (model.Listener.ServesPlain).
	Plain bool
	// Detect means that nobody knows what the connections carry (model.Listener.Detect).
	Detect bool
	// Redirect is not empty for the socket of a redirect (model.Listener.Redirect): it has no listeners, and each of its
	// connections is for the port that Meant returns.
	Redirect string

	meant map[netip.AddrPort]*Port
	hosts hosts[Listener]
}

// Connections reports whether connections are served that carry no requests: they get Rule.
func (p *Port) Connections() bool { return !p.Protocol.Requests() || p.Detect }

// Meant returns the port that a connection is for whose client meant an address: of a redirect's socket, the one of this
// address and port, else of the port at any address, else of the address, else of anything; nil if there is none. Other
// ports are what they are.
func (p *Port) Meant(to netip.AddrPort) *Port {
	if p == nil || p.Redirect == "" {
		return p
	}
	for _, at := range [...]netip.AddrPort{to, netip.AddrPortFrom(netip.Addr{}, to.Port()), netip.AddrPortFrom(to.Addr(), 0), {}} {
		if m := p.meant[at]; m != nil {
			return m
		}
	}
	return nil
}

// All returns the ports that Meant may return, by number, then address.
func (p *Port) All() []*Port {
	if p.Redirect == "" {
		return []*Port{p}
	}
	return slices.SortedFunc(maps.Values(p.meant), func(a, b *Port) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Address, b.Address))
	})
}

// Listener returns the listener with the most specific hostname for the host (exact, then the longest wildcard, then
// any), or nil. The host is lower-case without a port. Of listeners with equal hostnames the first serves.
func (p *Port) Listener(host string) *Listener {
	l, _ := p.hosts.next(host, firstHost)
	return l
}

// Listener is a listener with the rules attached to it.
type Listener struct {
	ID       int
	Listener *model.Listener

	hosts hosts[hostRules]
	// all are the values in hosts, in order of first attachment.
	all []*hostRules
	// strict: the path policy of some rule is strict. plain: no rule has capital letters, trailing dots or escapes in its path
	// or expression. Then a request's path in which servers read nothing differently cannot lead to another rule. See Refuses.
	strict, plain bool
	// connections is the rule of a listener that takes connections, of the oldest route; age is the route's.
	connections    *Rule
	connectionsAge int
}

// Fields gives access to a request's header fields.
type Fields interface {
	// Field returns the value of the field of that lower-case name; several lines are joined with ", ".
	Field(name string) (value string, ok bool)
}

// Request is the part of a request that matching uses.
type Request struct {
	// Host is lower-case and without a port.
	Host   string
	Method string
	// Path is in the form NormalizePath gives.
	Path string
	// Query is raw, without the question mark.
	Query string
	// Fields may be nil: no fields.
	Fields Fields

	// work is the cost of patterns so far (see model.MaxMatchWork), matched the part of it that Match caused.
	work, matched int
	// shared is the cost of patterns that are counted apart (see model.MaxSharedWork).
	shared int
	excess Excess
}

// Excess is the part of a request that is too long for the patterns it would have to be matched with.
type Excess uint8

const (
	NoExcess Excess = iota
	ExcessPath
	ExcessQuery
	ExcessField
)

// Excess reports whether matching the request, or finding its leaf of a split, was given up because of the cost (see
// model.MaxMatchWork and model.MaxSharedWork). Then the results of Match and Leaf have no meaning: a rule that would have blocked the request
// may not have been tried.
func (r *Request) Excess() Excess { return r.excess }

// matches asks a pattern, unless that would be too much work.
func (r *Request) matches(e *model.Pattern, value string, of Excess, shared bool) bool {
	if r.excess != NoExcess {
		return false
	}
	work, most := &r.work, model.MaxMatchWork
	if shared {
		work, most = &r.shared, model.MaxSharedWork
	}
	if *work += e.Work(len(value)); *work > most {
		r.excess = of
		return false
	}
	return e.MatchString(value)
}

// Decision is the result of Match.
type Decision struct {
	Listener *Listener
	Rule     *Rule
	Match    *model.Match
	// Prefix is the part of the request's path that a prefix match matched. It never ends in a slash and is empty for
	// the prefix "/": the rest of the path is empty or begins with a slash. It is empty for matches of other types.
	Prefix string
}

// Rule is a rule of a route with everything needed to serve it.
type Rule struct {
	ID    int
	Route *model.Route
	Rule  *model.Rule
	// Index is the rule's place in its route.
	Index    int
	Backends []*Backend
	// Mirrors are the rule's own; a backend may have more.
	Mirrors []*Mirror

	split split
}

// Pick draws the next backend. Of every block of draws as long as the sum of the weights (reduced by their greatest
// common divisor) each backend gets exactly its weight. It returns nil when all weights are zero or there are no
// backends.
func (r *Rule) Pick() *Backend {
	i := r.split.pick()
	if i < 0 {
		return nil
	}
	return r.Backends[i]
}

// Backend is a weighted backend of a rule.
type Backend struct {
	ID      int
	Rule    *Rule
	Backend *model.Backend
	Mirrors []*Mirror
	way
}

// Mirror is a mirror of a rule or of a backend.
type Mirror struct {
	ID     int
	Mirror *model.Mirror
	way

	fraction fraction
}

// Sample reports whether the next request that meets the mirror is copied: exactly Numerator of every Denominator are.
func (m *Mirror) Sample() bool { return m.fraction.sample() }
