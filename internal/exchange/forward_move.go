package exchange

import (
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// maxEndpoints is how many endpoints of one configuration the proxy tries for a request of which nothing could be sent,
// whatever the rule's retries are.
const maxEndpoints = 3

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
	if f.free && !ex.from.Peer.Meshed() { // a proxy in front waits itself
		wait = m.until.Sub(now)
		if !ex.deadline.IsZero() {
			wait = min(wait, ex.deadline.Sub(now))
		}
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

// unsent reports whether an attempt that ended with err delivered nothing of the request to anybody.
func (ex *Exchange) unsent(err error) bool {
	f, ok := err.(*Failure)
	return ok && (f.unreached || ex.call.Unsent() && f.Reason == telemetry.BackendReset)
}

// Search finds endpoints for what could not be delivered to others. The zero value has tried none.
type Search struct {
	tried [maxEndpoints]*upstream.Endpoint
	n     int
	asked *Snapshot // the configuration that the last of them is from
}

// Next returns an endpoint of the service that was not tried, nil if there is none or too many were tried. failed is the
// one that was tried last, began the configuration that the service is from. The configuration may have changed since: new
// endpoints may have replaced the old ones. If none is left, and wait is not 0, Next waits for so long at most until a
// configuration has another one.
//
// Orchestrators end an endpoint as soon as the next one is ready, and the news of this is some ten milliseconds behind.
// So Next waits for the successor of an endpoint that has served, and has ended a moment ago (Options.Succession). Nothing
// waits for a service that stays away, and no more waits than comes in this moment.
func (s *Search) Next(p *Pipeline, began *Snapshot, service *upstream.Service, failed *upstream.Endpoint, wait time.Duration) *upstream.Endpoint {
	if s.asked == nil {
		s.asked = began
	}
	if s.n < len(s.tried) {
		s.n++
	}
	s.tried[s.n-1] = failed
	full := s.n == len(s.tried)
	var limit *time.Timer
	for {
		snap := p.around.Current()
		now := snap.Service(service)
		if now != nil && now.Protocol == service.Protocol && now.TLS == service.TLS {
			service = now
		}
		if !full || snap != s.asked {
			if e := service.PickOther(s.tried[:s.n]); e != nil {
				s.asked = snap
				return e
			}
		}
		s.asked = snap
		if now == nil || len(now.Endpoints()) == 0 {
			return nil
		}
		if limit == nil {
			ended, ok := failed.Ended()
			d := min(p.Succession-ended, wait)
			if !ok || d <= 0 {
				return nil
			}
			limit = time.NewTimer(d)
			defer limit.Stop()
		}
		select {
		case <-snap.Replaced():
		case <-limit.C:
			return nil
		case <-p.around.Cut:
			return nil
		}
	}
}
