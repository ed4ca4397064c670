package upstream

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

// Bounds if the service's model.Limits set none.
const (
	defaultMaxInFlight   = 16384
	defaultMaxConnecting = 1024
	defaultRetryPercent  = 20
)

// The retry budget: of the requests that may be retried, of about the last retryWindow, a share; in any case retryLeast a second.
const (
	retryWindow = 10 * time.Second
	retryLeast  = 10
)

// Limit is the limit for which a request was refused.
type Limit int

const (
	// LimitRequests: as many requests as allowed are in flight to the service.
	LimitRequests Limit = iota
	// LimitEndpoints: each endpoint that could be used has as many in flight as allowed.
	LimitEndpoints
	// LimitConnecting: as many connections as allowed are being opened.
	LimitConnecting
	// LimitRetries: the retry budget was spent, so that a failure was final.
	LimitRetries

	numLimits
)

// String is the label in metrics.
func (l Limit) String() string {
	return [numLimits]string{"requests", "endpoint_requests", "connecting", "retry_budget"}[l]
}

// use is the state of a service that does not depend on the configuration.
type use struct {
	active   atomic.Int64 // only counted while there is a bound
	relayed  atomic.Int64 // only counted while there is none
	tried    atomic.Int64 // requests that may be retried, of late
	retried  atomic.Int64 // and retries
	emptied  atomic.Int64 // Set.now when its last endpoint went; filled while it has some, 0 before it had any
	rejected [numLimits]atomic.Uint64
}

// filled is use.emptied of a service that has endpoints.
const filled = -1

// has notes whether the service has endpoints now.
func (u *use) has(endpoints bool, now int64) {
	if endpoints {
		u.emptied.Store(filled)
	} else {
		u.emptied.CompareAndSwap(filled, max(now, 1))
	}
}

// Emptied is how long ago the service lost the last of its endpoints. It is false if it has some, or never had.
func (s *Service) Emptied() (ago time.Duration, ok bool) {
	at := s.use.emptied.Load()
	return time.Duration(s.set.now() - at), at > 0
}

// ConnectTimeout is that of Options.
func (s *Service) ConnectTimeout() time.Duration { return s.set.opt.ConnectTimeout }

// Begin claims a place for a request, until End; false if there is none.
func (s *Service) Begin() bool {
	if s.maxRequests == 0 {
		return true
	}
	if s.use.active.Add(1) > s.maxRequests {
		s.use.active.Add(-1)
		return false
	}
	return true
}

// BeginRelay claims a place for a connection that is relayed as it is, until EndRelay; false if there is none. The bound is that of requests, or
// without one Options.MaxRelays.
func (s *Service) BeginRelay() bool {
	if s.maxRequests != 0 {
		return s.Begin()
	}
	if s.use.relayed.Add(1) > s.maxRelays {
		s.use.relayed.Add(-1)
		return false
	}
	return true
}

// Force claims a place beyond the bound, until End: one of those that have it is about to end. It returns true.
func (s *Service) Force() bool {
	if s.maxRequests != 0 {
		s.use.active.Add(1)
	}
	return true
}

// EndRelay returns the place that BeginRelay claimed.
func (s *Service) EndRelay() {
	if s.maxRequests != 0 {
		s.End()
		return
	}
	s.use.relayed.Add(-1)
}

// End returns the place that Begin or Force claimed.
func (s *Service) End() {
	if s.maxRequests != 0 {
		s.use.active.Add(-1)
	}
}

// Rejected counts a request that a limit kept from the service.
func (s *Service) Rejected(l Limit) { s.use.rejected[l].Add(1) }

// InFlight is the number of exchanges and connects under way at the service's endpoints.
func (s *Service) InFlight() (n int) {
	for _, e := range s.endpoints {
		n += e.InFlight()
	}
	return n
}

// Retryable counts a request that may be retried: the retry budget is a share of them.
func (s *Service) Retryable() { s.use.tried.Add(1) }

// Retry claims a retry of the budget; false if it is spent, which is counted.
func (s *Service) Retry() bool {
	u := s.use
	if s.retryPercent == 0 || u.retried.Add(1) > max(retryLeast*int64(retryWindow/time.Second), u.tried.Load()*s.retryPercent/100) {
		if s.retryPercent != 0 {
			u.retried.Add(-1)
		}
		s.Rejected(LimitRetries)
		return false
	}
	return true
}

// age reduces the counts that Retry uses by the share of one second.
func (u *use) age() {
	for _, n := range []*atomic.Int64{&u.tried, &u.retried} {
		v := n.Load()
		part := int64(retryWindow / time.Second)
		n.Add(-(v + part - 1) / part)
	}
}

// Room is true while another exchange may begin at the endpoint. Others may take the room in the meantime: enter decides.
func (e *Endpoint) Room() bool { return e.inFlight.Load() < e.maxInFlight.Load() }

// enter counts an exchange in flight, until leave, or fails with ConnectFull.
func (e *Endpoint) enter() error {
	if e.inFlight.Add(1) > e.maxInFlight.Load() {
		e.leave()
		return &ConnectError{Address: e.Address, Reason: ConnectFull, Err: errFull}
	}
	return nil
}

// leave ends what enter began.
func (e *Endpoint) leave() { e.inFlight.Add(-1) }

// limit sets the endpoint's bounds; nil is the defaults.
func (e *Endpoint) limit(l *model.Limits) {
	inFlight, connecting := int64(e.set.opt.MaxInFlightPerEndpoint), int64(defaultMaxConnecting)
	if l != nil && l.EndpointRequests > 0 {
		inFlight = int64(l.EndpointRequests)
	}
	if l != nil && l.Connecting > 0 {
		connecting = int64(l.Connecting)
	}
	e.maxInFlight.Store(inFlight)
	e.maxConnecting.Store(connecting)
}

var (
	errConnecting = errors.New("as many connections as allowed are being opened to the endpoint")
	errFull       = errors.New("as many exchanges as allowed are under way at the endpoint")
	errOpen       = errors.New("as many connections as allowed are open to all endpoints")
)

// mayOpen claims one of the connections that all endpoints may have together. If needed, it closes an idle one for it.
func (s *Set) mayOpen() bool {
	if s.open.Add(1) <= s.opt.MaxConnections {
		return true
	}
	if s.closeIdle(evict) {
		return true
	}
	s.open.Add(-1)
	return false
}

// evict is how many idle connections are closed when there are too many.
const evict = 16

// closeIdle closes up to n connections that have been idle longest at their endpoint; false if there was none.
func (s *Set) closeIdle(n int) bool {
	var victims []*Conn
	s.mu.Lock()
	for _, e := range s.endpoints {
		if len(victims) >= n {
			break
		}
		e.mu.Lock()
		k := min(len(e.idle), n-len(victims))
		victims = append(victims, e.idle[:k]...)
		e.idle = slices.Delete(e.idle, 0, k)
		e.mu.Unlock()
	}
	s.mu.Unlock()
	for _, c := range victims {
		c.closeGently()
	}
	return len(victims) > 0
}

// ServiceStats are a service's counters and gauges.
type ServiceStats struct {
	// Rejected are the requests kept from it, by Limit.
	Rejected [numLimits]uint64
	// Full is true while no request can begin.
	Full bool
}

// Limits are all there are.
func Limits() iter.Seq[Limit] {
	return func(yield func(Limit) bool) {
		for l := range numLimits {
			if !yield(l) {
				return
			}
		}
	}
}

// Stats reads the counters.
func (s *Service) Stats() (st ServiceStats) {
	for l := range numLimits {
		st.Rejected[l] = s.use.rejected[l].Load()
	}
	st.Full = s.maxRequests > 0 && s.use.active.Load() >= s.maxRequests ||
		len(s.endpoints) > 0 && !slices.ContainsFunc(s.endpoints, (*Endpoint).Room)
	return st
}

// Services returns the services, by name and client certificate.
func (s *Snapshot) Services() []*Service {
	return slices.SortedFunc(maps.Values(s.services), func(a, b *Service) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ClientCertificate, b.ClientCertificate))
	})
}
