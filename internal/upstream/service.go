package upstream

import (
	"math/rand/v2"

	"github.com/weirmesh/weir/internal/model"
)

// Service is a named set of endpoints. It never changes; its endpoints are shared with other snapshots.
type Service struct {
	// Name is "namespace/name:port".
	Name string
	// Protocol is model.HTTP or model.H2C. Over TLS model.HTTP is HTTP/1.1 through Get and HTTP/2 through HTTP2, the caller's choice:
	// HTTP/1.1 unless the request needs HTTP/2 (gRPC).
	Protocol model.Protocol
	// TLS is true when the endpoints are spoken to over TLS.
	TLS bool
	// Fault, when set, is the answer to give instead of using the service, which has no endpoints then. Its reason
	// model.UnsupportedProtocol is for requests only: connections can be made.
	Fault *model.Fault

	endpoints []*Endpoint
}

// Endpoints returns the endpoints in the model's order, each once; read-only.
func (s *Service) Endpoints() []*Endpoint { return s.endpoints }

// Pick chooses an endpoint: of two random healthy ones that with less in flight. avoid, which may be nil, is the endpoint a retry comes
// from: it is chosen only if no other is healthy. An ejected endpoint whose time is up is given one request to prove itself. When all
// are ejected they are used as if all were healthy. It returns nil if the service has no endpoints. No lock is taken, nothing allocated.
func (s *Service) Pick(avoid *Endpoint) *Endpoint {
	n := uint64(len(s.endpoints))
	switch n {
	case 0:
		return nil
	case 1:
		return s.endpoints[0]
	}
	r := rand.Uint64()
	i := r & 0xffffffff * n >> 32
	j := r >> 32 * (n - 1) >> 32
	if j >= i {
		j++
	}
	a, b := s.endpoints[i], s.endpoints[j]
	aOK, bOK := false, false
	if a != avoid {
		ok, probe := a.admit()
		if probe {
			return a
		}
		aOK = ok
	}
	if b != avoid {
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
	if e := s.scan(avoid, int(i)); e != nil {
		return e
	}
	switch avoid { // all are ejected
	case a:
		return b
	case b:
		return a
	}
	return lighter(a, b)
}

// scan looks at all endpoints, for when the two drawn are of no use: the healthy one with the least in flight, from a random start so
// that ties spread; else avoid if it is healthy; else nil.
func (s *Service) scan(avoid *Endpoint, start int) *Endpoint {
	var best, spare *Endpoint
	for k := range s.endpoints {
		e := s.endpoints[(start+k)%len(s.endpoints)]
		if e == avoid {
			if e.Healthy() {
				spare = e
			}
			continue
		}
		ok, probe := e.admit()
		if probe {
			return e
		}
		if ok && (best == nil || e.inFlight.Load() < best.inFlight.Load()) {
			best = e
		}
	}
	if best == nil {
		return spare
	}
	return best
}

func lighter(a, b *Endpoint) *Endpoint {
	if b.inFlight.Load() < a.inFlight.Load() {
		return b
	}
	return a
}
