package telemetry

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/clock"
)

// Tapped is what a Tap shows of a request: where it went and how it ended, and nothing that may be secret, such as header
// fields, bodies or the query of its target.
type Tapped struct {
	// Time is when the request began.
	Time time.Time `json:"time"`
	// At is who observed it, From is who sent it to At, To is whom At sent it to. From is zero for a sidecar's pod's own
	// requests, and To for requests that reached nobody, and behind the sidecar in front of the pod.
	At   Side `json:"at,omitzero"`
	From Side `json:"from,omitzero"`
	To   Side `json:"to,omitzero"`

	// Method, Host and Path, which is without the query, are cut to maxTapped bytes.
	Method   string `json:"method"`
	Host     string `json:"host,omitempty"`
	Path     string `json:"path"`
	Protocol string `json:"protocol"`
	Route    string `json:"route,omitempty"`
	Backend  string `json:"backend,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`

	// Status is 0 if there was no answer. Reason says why the exchange failed.
	Status   int           `json:"status"`
	Reason   Reason        `json:"reason,omitempty"`
	Duration time.Duration `json:"nanos"`
	Attempts int           `json:"attempts,omitempty"`
	BytesIn  int64         `json:"bytesIn"`
	BytesOut int64         `json:"bytesOut"`
}

// Bounds of taps: how many there may be at a time, what each keeps for its reader, and how long what a client wrote may be.
const (
	maxTaps   = 8
	tapQueue  = 256
	maxTapped = 512
)

// Tap receives requests that end while it is open. What its reader does not take in time, and what exceeds its rate, is
// left out and counted: requests never wait for it.
type Tap struct {
	wants func(*Tapped) bool
	queue chan Tapped
	// gap is the least time between two requests on average, for a burst of up to a second's.
	gap     int64
	free    atomic.Int64 // when the next may pass, a clock.Instant
	matched atomic.Uint64
	sent    atomic.Uint64
}

// TapCounts say how much of what matched a tap showed.
type TapCounts struct {
	Matched uint64 `json:"matched"`
	// Shown were given to the reader; the rest exceeded the rate, or came faster than they were read.
	Shown uint64 `json:"shown"`
	// Proxies are how many proxies of a cluster take part now, and Silent how many are connected and do not: they are of
	// an older release, have too many taps, or do not answer. Both are 0 for a tap of one process.
	Proxies int `json:"proxies,omitempty"`
	Silent  int `json:"silent,omitempty"`
}

// TapSides are whose requests a tap shows: those that one of them observed, sent or got.
type TapSides map[Side]bool

// has reports whether a request is of one of the sides.
func (s TapSides) has(x *Tapped) bool { return s[x.At] || s[x.From] || s[x.To] }

// ErrTaps means that there are as many taps as there may be.
var ErrTaps = errors.New("too many taps are open: close one, or try again later")

// ErrTapSides means that a tap would be of more pods than it may be.
var ErrTapSides = errors.New("it has too many pods for a tap: tap some of what it contains")

// taps are those that are open. Requests read the list without a lock.
type taps struct {
	mu  sync.Mutex
	all atomic.Pointer[[]*Tap]
}

// NewTap returns a tap of no Registry: it receives what it is offered. Its arguments are those of Registry.Tap.
func NewTap(perSecond int, wants func(*Tapped) bool) *Tap {
	return &Tap{wants: wants, queue: make(chan Tapped, tapQueue), gap: int64(time.Second) / int64(max(perSecond, 1))}
}

// Tap opens a tap for the requests that wants accepts, at most perSecond a second; more pass for a moment. wants is called
// while requests end, by many at a time: it must not block, nor keep what it is given. CloseTap ends it.
func (r *Registry) Tap(perSecond int, wants func(*Tapped) bool) (*Tap, error) {
	t := NewTap(perSecond, wants)
	r.taps.mu.Lock()
	defer r.taps.mu.Unlock()
	var open []*Tap
	if all := r.taps.all.Load(); all != nil {
		open = *all
	}
	if len(open) >= maxTaps {
		return nil, ErrTaps
	}
	open = append(slices.Clone(open), t)
	r.taps.all.Store(&open)
	return t, nil
}

// CloseTap ends a tap. A request that ends at this moment may still reach its queue, which nobody reads any more.
func (r *Registry) CloseTap(t *Tap) {
	r.taps.mu.Lock()
	defer r.taps.mu.Unlock()
	all := r.taps.all.Load()
	if all == nil {
		return
	}
	open := slices.DeleteFunc(slices.Clone(*all), func(o *Tap) bool { return o == t })
	if len(open) == 0 {
		r.taps.all.Store(nil)
		return
	}
	r.taps.all.Store(&open)
}

// Taps are the open ones; usually none, and then nothing needs to be put together for them.
func (r *Registry) Taps() []*Tap {
	if all := r.taps.all.Load(); all != nil {
		return *all
	}
	return nil
}

// Offer gives a tap a request that ended, whose strings it copies.
func (t *Tap) Offer(x *Tapped) {
	if !t.wants(x) {
		return
	}
	t.matched.Add(1)
	if !t.admits(clock.Instant(time.Now())) {
		return
	}
	select {
	case t.queue <- x.clone():
		t.sent.Add(1)
	default:
	}
}

// admits reports whether the rate allows one more: it keeps the time at which all that passed is paid for.
func (t *Tap) admits(now int64) bool {
	for {
		free := t.free.Load()
		next := max(free, now-int64(time.Second)) + t.gap
		if next > now {
			return false
		}
		if t.free.CompareAndSwap(free, next) {
			return true
		}
	}
}

// Requests are those that the tap received, in no particular order.
func (t *Tap) Requests() <-chan Tapped { return t.queue }

// Counts are those until now.
func (t *Tap) Counts() TapCounts { return TapCounts{Matched: t.matched.Load(), Shown: t.sent.Load()} }

// clone is a copy that shares no memory with the request.
func (x *Tapped) clone() Tapped {
	c := *x
	c.Method, c.Host, c.Path, c.Protocol = tapped(x.Method), tapped(x.Host), tapped(x.Path), strings.Clone(x.Protocol)
	return c
}

// tapped is a copy of what a client wrote, cut to maxTapped bytes.
func tapped(s string) string { return valid(strings.Clone(s[:min(len(s), maxTapped)])) }
