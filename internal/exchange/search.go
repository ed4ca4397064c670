package exchange

import (
	"slices"
	"time"

	"github.com/weirmesh/weir/internal/upstream"
)

// maxEndpoints is how many endpoints of one configuration the proxy tries for a request of which nothing could be sent,
// whatever the rule's retries are: a quarter of a service's pods may end at once. Those after the first freeEndpoints each
// draw on the service's retry budget, as all may be away.
const freeEndpoints, maxEndpoints = 3, 8

// Search finds endpoints for what could not be delivered to others. The zero value has tried none.
type Search struct {
	// Wanted, if not nil, is asked now and then while Next waits for a pod's proxy.
	Wanted interface {
		// Wanted is false once an endpoint would be of no use any more.
		Wanted() bool
	}

	tried [maxEndpoints]*upstream.Endpoint
	n     int
	asked *Snapshot // the configuration that the last of them is from
}

// Next returns an endpoint of the service that was not tried, nil if there is none or too many were tried. failed is the
// one that was tried last, nil if the service has none; began is the configuration that the service is from. The
// configuration may have changed since: new endpoints may have replaced the old ones. If none is left, and wait is not 0,
// Next waits for so long at most until a configuration has another one.
//
// Orchestrators end an endpoint as soon as the next one is ready, and the news of this is some ten milliseconds behind.
// So Next waits for the successor of an endpoint that has served, and has ended a moment ago (Options.Succession). A pod's
// proxy that was killed is started again in the same place, so that it is itself its successor (Options.Restart), be it
// that the configuration still has it, or loses it meanwhile. Nothing waits for a service that stays away, and no more
// waits than comes in this moment.
func (s *Search) Next(p *Pipeline, began *Snapshot, service *upstream.Service, failed *upstream.Endpoint, wait time.Duration) *upstream.Endpoint {
	if s.asked == nil {
		s.asked = began
	}
	s.failed(failed)
	full := s.n == len(s.tried)
	var limit *time.Timer
	var again <-chan time.Time
	for {
		snap := p.around.Current()
		now := snap.Service(service)
		if now != nil && now.Protocol == service.Protocol && now.TLS == service.TLS {
			service = now
		}
		if !full || snap != s.asked {
			if e := service.PickOther(s.tried[:s.n]); e != nil {
				if snap != s.asked || s.n < freeEndpoints || service.Retry() {
					s.asked = snap
					return e
				}
				full = true
			}
		}
		s.asked = snap
		if limit == nil {
			d := min(p.patience(now, failed), wait)
			if d <= 0 || !p.gate.beginWait() {
				return nil
			}
			defer p.gate.endWait()
			limit = time.NewTimer(d)
			defer limit.Stop()
			if now.Meshed() {
				t := time.NewTicker(upstream.AskAgain)
				defer t.Stop()
				again = t.C
			}
		}
		select {
		case <-snap.Replaced():
		case <-again:
			if s.Wanted != nil && !s.Wanted.Wanted() {
				return nil
			}
			if failed != nil && slices.Contains(service.Endpoints(), failed) && failed.Again() {
				return failed
			}
		case <-limit.C:
			return nil
		case <-p.around.Cut:
			return nil
		}
	}
}

// failed notes an endpoint that was tried, in place of the last one if there are too many.
func (s *Search) failed(e *upstream.Endpoint) {
	if e == nil || slices.Contains(s.tried[:s.n], e) {
		return
	}
	if s.n < len(s.tried) {
		s.n++
	}
	s.tried[s.n-1] = e
}

// patience is how long to wait for an endpoint of a service that has none left.
func (p *Pipeline) patience(service *upstream.Service, failed *upstream.Endpoint) time.Duration {
	switch {
	case service == nil:
		return 0
	case len(service.Endpoints()) == 0: // Meshed, it has pods, of which none is ready
		if ago, ok := service.Emptied(); ok && service.Meshed() {
			return p.Restart - ago
		}
		return 0
	case failed == nil:
		return 0
	}
	ago, ok := failed.Ended()
	switch {
	case !ok:
		return 0
	case failed.Meshed():
		return p.Restart - ago
	}
	return p.Succession - ago
}
