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
	tried    [maxEndpoints]*upstream.Endpoint
	n        int
	asked    *Snapshot // the configuration that the last of them is from; nil: the exchange's
	until    time.Time // the end of moves and of connecting; zero before the first move
	to       *upstream.Endpoint
	repeated bool // a request that may have arrived was sent once more
}

// move reports whether a request whose attempt ended with err goes at once to another endpoint, m.to. There are two
// reasons for it.
//
//   - Nothing was sent, so nothing is lost and nothing can happen twice. All endpoints together get the connect timeout
//     of one. If none is left, and the last one has ended just now, the request waits for its successor.
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
	unsent := f.unreached || ex.call.Unsent() && f.Reason == telemetry.BackendReset
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
	if m.n < len(m.tried) {
		m.n++
	}
	m.tried[m.n-1] = ex.endpoint
	if ex.stillThere() != nil {
		return false
	}
	if m.to = ex.elsewhere(m, service, f.free); m.to == nil && !unsent {
		m.to = ex.endpoint // it may have closed a connection that it had not looked at
	}
	if m.to == nil || !f.free && !service.Retry() {
		return false
	}
	if !unsent {
		m.repeated = true
		ex.rewind()
	}
	return true
}

// elsewhere returns an endpoint that was not tried, nil if there is none. The configuration may have changed since the
// request began: new endpoints may have replaced the old ones. If wait is true, elsewhere waits until they do.
func (ex *Exchange) elsewhere(m *moves, service *upstream.Service, wait bool) *upstream.Endpoint {
	if m.asked == nil {
		m.asked = ex.from.Snapshot
	}
	for {
		snap := ex.pipe.around.Current()
		now := snap.Service(service)
		if now != nil && now.Protocol == service.Protocol && now.TLS == service.TLS {
			service = now
		}
		if m.n < len(m.tried) || snap != m.asked {
			if e := service.PickOther(m.tried[:m.n]); e != nil {
				m.asked = snap
				return e
			}
		}
		if m.asked = snap; !wait || now == nil || len(now.Endpoints()) == 0 || !ex.awaitNews(m, snap) {
			return nil
		}
	}
}

// awaitNews waits for the configuration after snap. It returns false if that does not come in time, or if the request is
// not wanted any more.
//
// Orchestrators end an endpoint as soon as the next one is ready, and the news of this is some ten milliseconds behind.
// So awaitNews waits for the successor of an endpoint that has served, and has ended a moment ago. No request waits for a
// service that stays away, and no more wait than come in this moment.
func (ex *Exchange) awaitNews(m *moves, snap *Snapshot) bool {
	ended, ok := ex.endpoint.Ended()
	d := min(ex.pipe.Succession-ended, time.Until(m.until))
	if !ex.deadline.IsZero() {
		d = min(d, time.Until(ex.deadline))
	}
	if !ok || d <= 0 {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-snap.Replaced():
		return ex.stillThere() == nil
	case <-t.C:
	case <-ex.pipe.around.Cut:
	}
	return false
}
