package exchange

import (
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// moves records where a request went that could not be delivered.
type moves struct {
	Search
	until    time.Time // the end of moves and of connecting; zero before the first move
	to       *upstream.Endpoint
	repeated bool // a request that may have arrived was sent once more
	last     bool // no endpoint was quicker than one that is slow to accept: it gets the rest of the time
}

// move reports whether a request whose attempt ended with err goes at once to another endpoint, m.to. There are two
// reasons for it.
//
//   - Nothing was sent, so nothing is lost and nothing can happen twice. All endpoints together get the connect timeout
//     of one. If none is left, and the last one has ended just now, the request waits for its successor. One that does
//     not accept soon, as one whose node has gone, is left for another before that; if there is none that takes the
//     request, it gets the rest of the time.
//   - The connection ended before a byte of the answer, the method is idempotent, and the rule says nothing about
//     retries. This happens once for a request, in case it is the request that ends endpoints.
//
// A move draws on the retry budget if the attempt cost the endpoint something: a request, a connection that it accepted
// and ended, a handshake, or a slow accept.
func (ex *Exchange) move(m *moves, service *upstream.Service, err error) bool {
	f, ok := err.(*Failure)
	if !ok {
		return false
	}
	unsent := ex.unsent(f)
	if !unsent && (!ex.attempt.unanswered || ex.rule.retry != nil || m.repeated) {
		return false
	}
	now := time.Now()
	if m.until.IsZero() {
		since := ex.attempt.start
		if !unsent {
			since = now
		}
		m.until = since.Add(ex.endpoint.ConnectTimeout())
	}
	if !now.Before(m.until) {
		return false
	}
	if ex.stillThere() != nil {
		return false
	}
	wait := time.Duration(0)
	if f.free || unsent && ex.endpoint.Meshed() {
		wait = ex.patience(m.until.Sub(now))
	}
	m.to = m.Next(ex.pipe, ex.from.Snapshot, service, ex.endpoint, wait)
	if ex.stillThere() != nil {
		return false
	}
	if m.to == nil && !unsent {
		m.to = ex.endpoint // it may have closed a connection that it had not looked at
	}
	if m.to == nil || !f.free && !service.Retry() {
		if !ex.attempt.briefly || f.Reason != telemetry.ConnectTimeout {
			return false
		}
		m.to, m.last = ex.endpoint, true
	}
	if !unsent {
		m.repeated = true
		ex.rewind()
	}
	return true
}

// first returns an endpoint of a service that has none, once the configuration has one; nil if it has none in time.
func (ex *Exchange) first(m *moves, service *upstream.Service) *upstream.Endpoint {
	if len(service.Endpoints()) > 0 {
		return nil
	}
	e := m.Next(ex.pipe, ex.from.Snapshot, service, nil, ex.patience(service.ConnectTimeout()))
	if e == nil || ex.stillThere() != nil {
		return nil
	}
	ex.awaited = true
	return e
}

// patience is how long the exchange may wait for an endpoint, at most for d.
func (ex *Exchange) patience(d time.Duration) time.Duration {
	if ex.from.Peer.Meshed() { // a proxy in front waits itself
		return 0
	}
	if !ex.deadline.IsZero() {
		d = min(d, time.Until(ex.deadline))
	}
	return d
}

// unsent reports whether an attempt that ended with err delivered nothing of the request to anybody.
func (ex *Exchange) unsent(err error) bool {
	f, ok := err.(*Failure)
	return ok && (f.unreached || ex.call.Unsent() && f.Reason == telemetry.BackendReset)
}
