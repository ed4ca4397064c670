package upstream

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/weirmesh/weir/internal/model"
)

// Service is a named set of endpoints. It never changes; its endpoints are shared with other snapshots.
type Service struct {
	// Name is "namespace/name:port".
	Name string
	// ClientCertificate is the name of the one that is presented to the endpoints over TLS; empty for none.
	ClientCertificate string
	// Protocol is model.HTTP or model.H2C. Over TLS model.HTTP is HTTP/1.1 through Get and HTTP/2 through Open, the caller's choice:
	// HTTP/1.1 unless the request needs HTTP/2 (gRPC).
	Protocol model.Protocol
	// TLS is true when the endpoints are spoken to over TLS.
	TLS bool
	// Fault, when set, is the answer to give instead of using the service, which has no endpoints then. Its reason
	// model.UnsupportedProtocol is for requests only: connections can be made.
	Fault *model.Fault

	endpoints    []*Endpoint
	near         []*Endpoint // of them, those that are meant for clients where this process runs; nil: all, or none
	pods         []string    // of the endpoints; nil if none is known
	meshed       bool
	sticky       bool
	maxEjected   int
	maxRequests  int64 // 0 for no bound
	maxRelays    int64
	retryPercent int64
	set          *Set
	use          *use
	meant        func(address string) *Endpoint // nil unless Meant
}

// Meshed reports whether proxies of the mesh answer at endpoints of the service (Endpoint.Meshed).
func (s *Service) Meshed() bool { return s.meshed }

// Meant means that the service has no endpoints, but At.
func (s *Service) Meant() bool { return s.meant != nil }

// At returns the endpoint of an address that a client meant, "ip:port", for one connection: nothing of it is kept, be it
// idle connections or its health. It is only for a service that is Meant.
func (s *Service) At(address string) *Endpoint {
	e := s.meant(address)
	e.drained = true
	return e
}

// Own is At for the requests of one client's connection: an idle connection is kept for these, until the caller calls
// Endpoint.Leave. It is one alone, so that a client cannot have more connections rest than it has itself.
func (s *Service) Own(address string) *Endpoint {
	e := s.meant(address)
	e.keeps = min(e.keeps, 1)
	return e
}

// Endpoints returns the endpoints in the model's order, each once; read-only.
func (s *Service) Endpoints() []*Endpoint { return s.endpoints }

// Pod returns the name of the pod that an endpoint is, in the Service's namespace; empty if that is not known. ok is
// false if the endpoint is not of the service.
func (s *Service) Pod(e *Endpoint) (name string, ok bool) {
	i := slices.Index(s.endpoints, e)
	if i < 0 {
		return "", false
	}
	if s.pods == nil {
		return "", true
	}
	return s.pods[i], true
}

// Pick chooses an endpoint: of two random healthy ones, the one with less in flight. avoid, which may be nil, is the
// endpoint that a retry comes from: it is only chosen if no other is healthy. An ejected endpoint whose time is over
// gets one request to prove itself. If no endpoint is healthy, they are used as if all were. An endpoint with as many
// exchanges in flight as allowed is never chosen; if others take its last place in the same instant, Get, Dial and Open
// fail with ConnectFull. Where some endpoints are meant for clients in the node or zone of this process, the others are only
// chosen if none of these, avoid apart, is healthy and has room. It returns nil if no endpoint is left. It takes no lock and
// allocates nothing.
func (s *Service) Pick(avoid *Endpoint) *Endpoint {
	if len(s.near) > 0 {
		if e := pick(s.near, avoid, true); e != nil {
			return e
		}
	}
	return pick(s.endpoints, avoid, false)
}

// pick is Pick among some endpoints; if only good, it returns nil in place of avoid and of one that is not healthy.
func pick(endpoints []*Endpoint, avoid *Endpoint, good bool) *Endpoint {
	n := uint64(len(endpoints))
	switch n {
	case 0:
		return nil
	case 1:
		if e := endpoints[0]; e.Room() {
			if !good {
				return e
			}
			return scan(endpoints, avoid, 0, good)
		}
		return nil
	}
	r := rand.Uint64()
	i := r & 0xffffffff * n >> 32
	j := r >> 32 * (n - 1) >> 32
	if j >= i {
		j++
	}
	a, b := endpoints[i], endpoints[j]
	aOK, bOK := false, false
	if a != avoid && a.Room() {
		ok, probe := a.admit()
		if probe {
			return a
		}
		aOK = ok
	}
	if b != avoid && b.Room() {
		ok, probe := b.admit()
		if probe {
			return b
		}
		bOK = ok
	}
	switch {
	case aOK && bOK:
		return lighter(a, b)
	case aOK:
		return a
	case bOK:
		return b
	}
	return scan(endpoints, avoid, int(i), good)
}

// scan looks at all endpoints, if neither of the two random ones can be used. It returns the healthy one with the least
// in flight, from a random start so that ties spread; else avoid if it is healthy; else, if none is healthy, any,
// preferably not avoid. If only good, it is the first or nil.
func scan(endpoints []*Endpoint, avoid *Endpoint, start int, good bool) *Endpoint {
	var best, spare, bad *Endpoint
	healthy := false
	for k := range endpoints {
		e := endpoints[(start+k)%len(endpoints)]
		room := e.Room()
		if e == avoid || !room {
			if e.Healthy() {
				if healthy = true; room {
					spare = e
				}
			}
			continue
		}
		ok, probe := e.admit()
		if probe {
			return e
		}
		if ok {
			if healthy = true; best == nil {
				best = e
			} else {
				best = lighter(best, e)
			}
		} else if bad == nil {
			bad = e
		} else {
			bad = lighter(bad, e)
		}
	}
	switch {
	case best != nil || good:
		return best
	case healthy:
		return spare
	case bad == nil && avoid != nil && avoid.Room():
		return avoid
	}
	return bad
}

// PickOther is Pick for a request that could not be sent to the endpoints in tried: it chooses none of them, and
// returns nil if no other is left. It prefers endpoints that answered last: of pods that end at once, each has failed one
// request at most before.
func (s *Service) PickOther(tried []*Endpoint) *Endpoint {
	if len(s.near) > 0 {
		if e := pickOther(s.near, tried, true); e != nil {
			return e
		}
	}
	return pickOther(s.endpoints, tried, false)
}

// pickOther is PickOther among some endpoints; if only good, it returns none but one that answered last.
func pickOther(endpoints, tried []*Endpoint, good bool) *Endpoint {
	var best, unknown, bad *Endpoint
	for k, start := 0, rand.IntN(max(len(endpoints), 1)); k < len(endpoints); k++ {
		e := endpoints[(start+k)%len(endpoints)]
		if slices.Contains(tried, e) || !e.Room() {
			continue
		}
		place := &bad
		if ok, probe := e.admit(); probe {
			return e
		} else if ok && e.health.lost.Load() == answering {
			place = &best
		} else if ok {
			place = &unknown
		}
		if *place == nil {
			*place = e
		} else {
			*place = lighter(*place, e)
		}
	}
	if good {
		return best
	}
	return cmp.Or(best, unknown, bad)
}

// lighter returns the one with less in flight, a if they are equal.
func lighter(a, b *Endpoint) *Endpoint {
	if b.inFlight.Load() < a.inFlight.Load() {
		return b
	}
	return a
}
