package exchange

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/clock"
)

// Shares count the places of each client, so that no client keeps all others out. A client is an address, or over IPv6
// the network of shareBits that a subscriber gets. Clients that hash alike share a count: there are far more slots than
// clients that an attacker has addresses for, and the hash is secret.
//
// The counts are consulted only while more than three quarters of the places are taken.
type Shares struct {
	seed    maphash.Seed
	clients atomic.Int64 // slots with a place, when they were last counted
	counted atomic.Int64 // when that was
	asked   atomic.Int64 // how often it was asked since
	slots   [shareSlots]atomic.Int32
}

const (
	shareSlots = 1 << 14
	shareBits  = 56
	// ShareLeast is the least part of a client, of all places: a 32nd. Without it, each of many clients could have only
	// one request in flight.
	ShareLeast = 32
	// shareFree is the part of all places that clients leave free for others, a 16th, if there are several.
	shareFree = 16
	// shareEvery is how often the clients are counted, unless many come at once.
	shareEvery = 10 * time.Millisecond
)

// Init must come first.
func (s *Shares) Init() { s.seed = maphash.MakeSeed() }

// Slot is where a client's places are counted.
func (s *Shares) Slot(a netip.Addr) *atomic.Int32 {
	b := a.As16() // of IPv4 mapped to IPv6 (RFC 4291 §2.5.5.2)
	n := len(b)
	if a.Is6() && !a.Is4In6() {
		n = shareBits / 8
	}
	return &s.slots[maphash.Bytes(s.seed, b[:n])%shareSlots]
}

// Active is the number of clients that had places at most shareEvery ago, and before at most a ShareLeast-th of all
// places was asked for: clients that come all at once are no fewer than others.
func (s *Shares) Active(places int64) int64 {
	now := clock.Instant(time.Now())
	last := s.counted.Load()
	if s.asked.Add(1) <= places/ShareLeast && now-last < int64(shareEvery) || !s.counted.CompareAndSwap(last, now) {
		return s.clients.Load()
	}
	s.asked.Store(0)
	return s.count()
}

// count counts the clients that have places.
func (s *Shares) count() (n int64) {
	for i := range s.slots {
		if s.slots[i].Load() > 0 {
			n++
		}
	}
	s.clients.Store(n)
	return n
}

// part is how many of the places a client may have while few are left: all of them if it is alone, else an equal part of
// what newcomers need not find free.
func (g *gate) part() int64 {
	clients := g.shares.Active(g.max)
	if clients <= 1 {
		return max(g.max, 1)
	}
	return max((g.max-g.max/shareFree)/clients, g.max/ShareLeast, 1)
}

// full reports whether few places are left and the client has its part of them. It is asked before the request takes a
// place, since several clients that ask without end would otherwise take many for as long as it takes to refuse them. Requests
// that a trusted proxy reports a client for are not counted under the proxy's address: claim judges them.
func (g *gate) full(client netip.Addr) bool {
	if g.inFlight.Load() <= g.crowded || !client.IsValid() || g.unbound() {
		return false
	}
	part := g.part()
	return part < g.max && int64(g.shares.Slot(client).Load()) >= part
}

// claim counts the exchange among its client's. It fails if few places are left, others have some too, and the client or
// its connection would have more than its part. leave ends it. The streams of a trusted proxy's connection are those of
// many clients.
func (ex *Exchange) claim() error {
	g, peer := &ex.pipe.gate, ex.from.Peer
	a := peer.Address
	if ex.reported != nil {
		a = ex.reported.client
	}
	if !a.IsValid() || g.unbound() {
		return nil
	}
	if ex.req.HTTP2 && ex.reported == nil {
		ex.streams = &peer.streams
		ex.streams.Add(1) // before its client's, so that all of a client's are never more than its only connection's
	}
	ex.share = g.shares.Slot(a)
	n := int64(ex.share.Add(1))
	if ex.crowded && (n > g.part() || ex.tooMany()) {
		g.shared.Add(1)
		return FailShare
	}
	return nil
}

// tooMany reports whether the connection has more than half of all places, beside others of the same client: many
// clients may have one address.
func (ex *Exchange) tooMany() bool {
	if ex.streams == nil {
		return false
	}
	all := ex.share.Load()
	streams := ex.streams.Load()
	return int64(streams) > ex.pipe.gate.max/2 && streams < all
}

// unclaim returns what claim counted, except what makeRoom has returned.
func (ex *Exchange) unclaim() {
	if ex.share != nil {
		if !ex.silent.ended {
			ex.share.Add(-1)
		}
		ex.share = nil
	}
	if ex.streams != nil {
		ex.streams.Add(-1)
		ex.streams = nil
	}
}
