package exchange

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/clock"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// gate decides which work the proxy takes on. A refusal costs next to nothing: the gate answers before the proxy does
// any work for the request.
type gate struct {
	max     int64 // exchanges in flight
	crowded int64 // beyond it, no service may have more than half of max

	strain atomic.Int64 // until then, requests may be waiting too long for the proxy
	scarce atomic.Int64 // until then, places are scarce
	delay  atomic.Int64 // nanoseconds that the last measured request had waited

	refused  atomic.Uint64 // exchanges, for max
	shed     atomic.Uint64 // exchanges, for their wait
	shared   atomic.Uint64 // exchanges, for the part of their client
	silenced atomic.Uint64 // exchanges ended because their client was silent

	ending  atomic.Int64 // of the exchanges that were ended so, those still in flight
	shares  Shares
	silence silence

	waiting atomic.Int64 // exchanges and connections that wait for an endpoint

	_        [64]byte
	inFlight atomic.Int64
	_        [56]byte
}

// admission is an exchange's place among those in flight.
type admission struct {
	entered bool          // it has a place
	crowded bool          // few places are left
	share   *atomic.Int32 // its client's count; nil if it is not counted
	streams *atomic.Int32 // its connection's count, of HTTP/2
}

// retryAfter is drawn for each client's connection, so that clients do not all come back at once. gRPC gets the same in
// milliseconds.
var (
	retryAfter    = [...]string{"1", "2", "3"}
	retryPushback = [...]string{"1000", "2000", "3000"}
)

var (
	failOverload   = &Failure{Status: 503, Reason: telemetry.Overload, Detail: "the proxy is at its limit of requests", Later: true}
	FailShare      = &Failure{Status: 503, Reason: telemetry.ClientOverload, Detail: "the client has its part of the proxy's requests, and few are left", Later: true}
	failSilent     = &Failure{Status: 503, Reason: telemetry.ClientOverload, Detail: "the request's body did not come, and others need the request's place", Later: true}
	failOverdue    = &Failure{Status: 503, Reason: telemetry.Overload, Detail: "the request waited too long for the proxy", Later: true}
	FailBusy       = &Failure{Status: 503, Reason: telemetry.BackendOverload, Detail: "as many requests as allowed are under way to the backend", Later: true}
	failFull       = &Failure{Status: 503, Reason: telemetry.BackendOverload, Detail: FailBusy.Detail, Later: true} // at the endpoint that was chosen
	failConnecting = &Failure{Status: 503, Reason: telemetry.BackendOverload, Detail: "as many connections as allowed are being opened to the backend", Later: true}
	failShortage   = &Failure{Status: 503, Reason: telemetry.Overload, Detail: "the proxy has no connection to spare", Later: true}
)

// bound sets how many exchanges may be in flight; 0 means no bound.
func (g *gate) bound(max int) {
	if g.max = int64(max); max <= 0 {
		g.max = math.MaxInt64
	}
	g.crowded = g.max / 4 * 3
	g.shares.Init()
}

// unbound is true if there is no bound.
func (g *gate) unbound() bool { return g.max == math.MaxInt64 }

// scarceFor is how long places are scarce after a request found none.
const scarceFor = 5 * time.Second

// Scarce reports whether a request found no place lately. Clients that are slow, and hold places, get less time then.
func (p *Pipeline) Scarce() bool {
	until := p.gate.scarce.Load()
	return until != 0 && clock.Instant(time.Now()) < until
}

// enter claims a place for the exchange, or returns why there is none. leave returns the place.
func (ex *Exchange) enter() error {
	g := &ex.pipe.gate
	if g.full(ex.from.Peer.Address) {
		g.shared.Add(1)
		return FailShare
	}
	n := g.inFlight.Add(1)
	ex.entered = true
	if n > g.max+g.ending.Load() && !(g.makeRoom(nil) && n <= g.max+g.ending.Load()) {
		ex.leave()
		g.refused.Add(1)
		g.scarce.Store(clock.Instant(time.Now()) + int64(scarceFor))
		return failOverload
	}
	ex.crowded = n > g.crowded
	if err := ex.overdue(); err != nil {
		ex.leave()
		return err
	}
	return nil
}

// These constants control how the proxy sheds load. Work beyond the proxy's capacity waits in sockets: in connections
// not yet accepted, and in connections with unread bytes. The system knows how long it waited. The proxy asks the
// system about one request in lookSeldom. It asks about every request while one was found lately that waited for more
// than half of Options.MaxQueueDelay. It refuses requests beyond that delay, which costs little, until it reaches
// requests whose clients can still be expected to wait. So the requests it does serve are answered in time.
const (
	lookSeldom = 32 // a power of two
	lookLonger = time.Second
)

// overdue refuses a request that has waited too long for the proxy, or whose client has left in the meantime.
func (ex *Exchange) overdue() error {
	g, most := &ex.pipe.gate, ex.pipe.MaxQueueDelay
	if most <= 0 || !ex.pipe.LookAtAll && rand.Uint32()%lookSeldom != 0 && !g.strained() {
		return nil
	}
	waited, left := ex.waited()
	g.delay.Store(int64(waited))
	if waited < most/2 {
		return nil
	}
	now := clock.Instant(time.Now())
	if g.strain.Swap(now+int64(lookLonger)) < now {
		ex.pipe.Logger.Warn("overload: requests wait for the processor", "waited", waited, "refused_from", most)
	}
	switch {
	case left:
		return failClientClosed
	case waited > most:
		g.shed.Add(1)
		return failOverdue
	}
	return nil
}

// waited returns how long the request lay unread after it arrived, as far as that is known, and whether its client has
// closed its side since.
func (ex *Exchange) waited() (d time.Duration, left bool) {
	now := time.Now()
	age, left, known := ex.from.Client.Waited()
	if ex.req.HTTP2 {
		return max(age, now.Sub(ex.from.Start)), ex.from.Client.Gone()
	}
	if !known {
		return 0, false
	}
	if !ex.from.Since.IsZero() {
		age = min(age, now.Sub(ex.from.Since)) // it arrived while its predecessor was served
	}
	return age, left
}

func (ex *Exchange) leave() {
	if ex.entered {
		ex.entered = false
		ex.unclaim()
		ex.pipe.gate.inFlight.Add(-1)
		if ex.silent.ended {
			ex.silent.ended = false
			ex.pipe.gate.ending.Add(-1)
		}
		ex.giveBack()
	}
}

// begin claims a place for the exchange at its service; service.End returns it. A client, or a service that is stuck,
// must not take all places from the others.
func (ex *Exchange) begin(s *upstream.Service) error {
	g := &ex.pipe.gate
	if err := ex.claim(); err != nil {
		return err
	}
	stuck := ex.crowded && len(ex.from.Snapshot.Upstream) > 1 && int64(s.InFlight()) > g.max/2
	if stuck && !g.makeRoom(s) || !s.Begin() && !(g.makeRoom(s) && s.Force()) {
		s.Rejected(upstream.LimitRequests)
		return FailBusy
	}
	return nil
}

// nowhere is Nowhere for an exchange. If clients that are silent hold the service's places, some of them end.
func (ex *Exchange) nowhere(s *upstream.Service) error {
	err := Nowhere(s)
	if err == FailBusy {
		ex.pipe.gate.makeRoom(s)
	}
	return err
}

// Nowhere returns why there was no endpoint to choose.
func Nowhere(s *upstream.Service) error {
	if len(s.Endpoints()) == 0 {
		return failNoEndpoint
	}
	s.Rejected(upstream.LimitEndpoints)
	return FailBusy
}

// beginWait claims a place among those who wait for an endpoint, until endWait; false if there is none: the others must
// not lack places because one service is away.
func (g *gate) beginWait() bool {
	if g.waiting.Add(1) > max(g.max/4, 1) {
		g.waiting.Add(-1)
		return false
	}
	return true
}

func (g *gate) endWait() { g.waiting.Add(-1) }

// strained reports whether requests wait so long that measured times say little about endpoints.
func (g *gate) strained() bool {
	until := g.strain.Load()
	return until != 0 && clock.Instant(time.Now()) < until
}
