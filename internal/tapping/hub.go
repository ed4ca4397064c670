package tapping

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/telemetry"
)

const (
	// maxTaps is how many taps a replica has at a time, those that other replicas ask it for included: as many as a proxy.
	maxTaps = 8
	// maxOwn is how many of them one user has, so that others have some too.
	maxOwn = maxTaps / 2
	// openings is how many taps may be opened at once, and one each second after that: all proxies hear of each.
	openings = 16
	// fullRate is how many proxies each get the whole rate of a tap; more of them share as much.
	fullRate = 10
	// silence is after how long without a word somebody does not answer; counts come every second.
	silence = 10 * time.Second
)

// Hub is a replica's end of all taps. Connected is required; no field may be changed once a method was called.
type Hub struct {
	// Connected returns how many proxies of Gateways are connected to this replica. Sidecars, if set, returns of how many of
	// these pods the sidecars are.
	Connected func() int
	Sidecars  func(pods telemetry.TapSides) int
	// Peers, if set, returns the other replicas. Call opens a stream to one, which ends with ctx, at ServePeer of its Hub.
	Peers func() []Peer
	Call  func(ctx context.Context, address string) (Stream, error)
	// Who, if set, returns who sent a request, from its context: a text that is nobody else's, "" if that is not known.
	Who func(ctx context.Context) string
	// Logger, if set, logs what proxies and replicas do wrong.
	Logger *slog.Logger

	wrong   loglimit.Limiter
	readers sync.WaitGroup // goroutines that end with their streams
	counts  struct{ opened, lines, rejected atomic.Uint64 }

	mu      sync.Mutex
	opening pacer
	links   map[string]*link // by proxy
	taps    map[uint64]*tap
	last    uint64
}

// Stats are what a Hub has and did.
type Stats struct {
	// Open is how many taps are open now, Opened how many ever were.
	Open   int
	Opened uint64
	// Lines is how many requests came from proxies and replicas, and Rejected how many more that were not asked for.
	Lines, Rejected uint64
}

// Stats returns them.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Stats{len(h.taps), h.counts.opened.Load(), h.counts.lines.Load(), h.counts.rejected.Load()}
}

// Wait waits for goroutines that end with their streams, once no streams are left.
func (h *Hub) Wait() { h.readers.Wait() }

// tap is a tap while it is open. Its telemetry.Tap is the end at which all lines arrive, with the rate of all together.
type tap struct {
	*telemetry.Tap
	hub   *Hub
	id    uint64
	by    string // a text of whoever opened it; "" if that is not known
	query telemetry.TapQuery
	ends  time.Time
	sides atomic.Pointer[telemetry.TapSides]

	// Guarded by hub.mu.
	changed chan struct{} // closed when sides have changed
	links   map[*link]*share
	peers   map[string]*share // by replica
	gone    uint64            // matched at those that are gone
}

// share is what a proxy or a replica has part in a tap.
type share struct {
	seen   time.Time // when it last counted; zero is never, or not any more
	counts telemetry.TapCounts
	// rate is how many requests a second a proxy was asked for, proxies how many a replica has, by its word on the board.
	rate, proxies int
}

func (s *share) answers(now time.Time) bool { return !s.seen.IsZero() && now.Sub(s.seen) < silence }

// errOwn means that a user has as many taps as one may have.
var errOwn = fmt.Errorf("%w: %d of them are yours", telemetry.ErrTaps, maxOwn)

// open opens somebody's tap at all proxies of this replica, those that connect later included.
func (h *Hub) open(by string, q telemetry.TapQuery, sides telemetry.TapSides) (*tap, error) {
	if err := check(by, q, sides); err != nil {
		return nil, err
	}
	t := &tap{hub: h, by: by, query: q, ends: time.Now().Add(q.For), changed: make(chan struct{}), links: map[*link]*share{}, peers: map[string]*share{}}
	t.sides.Store(&sides)
	t.Tap = telemetry.NewTap(q.Rate, func(x *telemetry.Tapped) bool { return q.Wants(x, *t.sides.Load()) })
	h.mu.Lock()
	defer h.mu.Unlock()
	own := 0
	for _, other := range h.taps {
		if by != "" && other.by == by {
			own++
		}
	}
	if own >= maxOwn {
		return nil, errOwn
	}
	if len(h.taps) >= maxTaps || !h.opening.allows(time.Now(), 1, openings*time.Second) {
		return nil, telemetry.ErrTaps
	}
	if h.taps == nil {
		h.taps = map[uint64]*tap{}
	}
	h.last++
	t.id = h.last
	h.taps[t.id] = t
	h.counts.opened.Add(1)
	asked := 0
	for _, l := range h.links {
		if l.concerns(sides) {
			asked++
		}
	}
	for _, l := range h.links {
		if l.concerns(sides) {
			t.ask(l, rateOf(q.Rate, asked))
		}
	}
	return t, nil
}

// check fails if a tap is out of bounds.
func check(by string, q telemetry.TapQuery, sides telemetry.TapSides) error {
	o := newOrder(math.MaxUint64, q, sides)
	o.By = by
	if err := o.check(); err != nil {
		return err
	}
	if len(encode(o)) > MaxOrder {
		return telemetry.ErrTapSides
	}
	return nil
}

// order is what tells a proxy of a tap. A sidecar hears of its own pod alone.
func (t *tap) order(l *link, rate int) []byte {
	o := t.newOrder(t.id, rate)
	if l.sidecar {
		o.Sides = []telemetry.Side{l.at[0]}
	}
	return encode(o)
}

func (t *tap) newOrder(id uint64, rate int) order {
	q := t.query
	q.Rate, q.For = rate, time.Until(t.ends)
	return newOrder(id, q, *t.sides.Load())
}

// rateOf is the rate of each of n proxies.
func rateOf(rate, n int) int { return max(1, min(rate, fullRate*rate/max(n, 1))) }

// ask has a proxy that is new take part. h.mu is held.
func (t *tap) ask(l *link, rate int) {
	t.links[l] = &share{rate: rate}
	l.put(t.order(l, rate))
}

// follow changes whose requests a tap shows.
func (t *tap) follow(sides telemetry.TapSides) error {
	if err := check(t.by, t.query, sides); err != nil {
		return err
	}
	h := t.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if maps.Equal(sides, *t.sides.Load()) {
		return nil
	}
	t.sides.Store(&sides)
	for l := range t.links {
		switch {
		case !l.concerns(sides):
			t.leave(l)
		case !l.sidecar:
			l.put(t.order(l, t.query.Rate)) // of which a proxy that has the tap takes the sides alone
		}
	}
	for _, l := range h.links {
		if t.links[l] == nil && l.concerns(sides) {
			t.ask(l, rateOf(t.query.Rate, len(t.links)+1))
		}
	}
	close(t.changed)
	t.changed = make(chan struct{})
	return nil
}

// leave ends a tap at a proxy; what matched there stays counted. h.mu is held.
func (t *tap) leave(l *link) {
	t.gone += t.links[l].counts.Matched
	delete(t.links, l)
	l.put(encode(order{Tap: t.id, Close: true}))
}

// close ends a tap at all proxies.
func (t *tap) close() {
	h := t.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.taps, t.id)
	b := encode(order{Tap: t.id, Close: true})
	for l := range t.links {
		l.put(b)
	}
	clear(t.links)
}

// Counts implements telemetry.TapSource: all that matched where it was observed, and what was shown of it here.
func (t *tap) Counts() telemetry.TapCounts {
	now := time.Now()
	h := t.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	c := telemetry.TapCounts{Matched: t.gone}
	for _, s := range t.links {
		c.Matched += s.counts.Matched
		if s.answers(now) {
			c.Proxies++
		}
	}
	there := h.Connected()
	if h.Sidecars != nil {
		there += h.Sidecars(*t.sides.Load())
	}
	c.Silent = max(0, there-c.Proxies)
	for _, s := range t.peers {
		c.Matched += s.counts.Matched
		if s.answers(now) {
			c.Proxies, c.Silent = c.Proxies+s.counts.Proxies, c.Silent+s.counts.Silent
		} else {
			c.Silent += s.proxies
		}
	}
	c.Shown = t.Tap.Counts().Shown
	c.Matched = max(c.Matched, c.Shown) // those that were shown and are not counted yet
	return c
}

// say takes a line about a tap from a share of it, which is nil if it has none any more. refused is why it does not take
// part. h.mu is not held.
func (t *tap) say(s *share, l line) (refused string) {
	switch {
	case l.Request != nil:
		t.hub.counts.lines.Add(1)
		t.Offer(l.Request)
	case l.Counts != nil:
		t.hub.mu.Lock()
		s.seen, s.counts = time.Now(), *l.Counts
		t.hub.mu.Unlock()
	case l.Refused != "":
		t.hub.mu.Lock()
		s.seen = time.Time{}
		t.hub.mu.Unlock()
		return l.Refused
	}
	return ""
}

func (h *Hub) logger() *slog.Logger {
	if h.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return h.Logger
}

var errReplaced = errors.New("the proxy has a newer stream")
