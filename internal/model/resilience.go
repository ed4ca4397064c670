package model

import "strings"

// Limits bound what a service gets at the same time. Requests beyond them are answered 503. Zero fields mean the
// proxy's own bounds.
type Limits struct {
	// Requests bounds the requests in flight to the service.
	Requests int `json:"requests,omitempty"`
	// EndpointRequests bounds the requests to each of its endpoints.
	EndpointRequests int `json:"endpointRequests,omitempty"`
	// Connecting bounds the connections to each endpoint that are being opened.
	Connecting int `json:"connecting,omitempty"`
	// RetryPercent is how many of a hundred requests in flight may be retries; nil is the proxy's default.
	RetryPercent *int `json:"retryPercent,omitempty"`
}

// Ejection says when an endpoint is not chosen for a while, because of how requests to it ended. Nil and zero fields
// mean the proxy's defaults.
type Ejection struct {
	// Failures is the number of consecutive failures to connect or to get a well-formed answer; less than 0 is never.
	Failures int `json:"failures,omitempty"`
	// GatewayErrors is the number of consecutive answers 502, 503 and 504, and of answers that did not come in time; 0 is
	// never.
	GatewayErrors int `json:"gatewayErrors,omitempty"`
	// MaxPercent is how many of a hundred endpoints may be ejected at once; nil is the proxy's default.
	MaxPercent *int `json:"maxPercent,omitempty"`
}

// HealthCheckType is how an endpoint is asked whether it is well.
type HealthCheckType string

const (
	// CheckHTTP is a GET whose answer has one of some statuses.
	CheckHTTP HealthCheckType = "http"
	// CheckGRPC is grpc.health.v1.Health/Check, to be answered SERVING.
	CheckGRPC HealthCheckType = "grpc"
	// CheckTCP is a connection, over TLS if the service is.
	CheckTCP HealthCheckType = "tcp"
)

// HealthCheck asks each endpoint of a service again and again whether it is well.
type HealthCheck struct {
	Type HealthCheckType `json:"type"`
	// Path is the target of a CheckHTTP, with a query perhaps.
	Path string `json:"path,omitempty"`
	// Host is the Host of a CheckHTTP; empty is the endpoint's address (with TLS, its server name).
	Host string `json:"host,omitempty"`
	// Service is the service that a CheckGRPC asks for; empty is the server as a whole.
	Service string `json:"service,omitempty"`
	// Statuses are the ones a CheckHTTP expects; empty is 200 to 299.
	Statuses []StatusRange `json:"statuses,omitempty"`
	// Interval is the time from the beginning of a check to that of the next, Timeout how long each may take.
	Interval Duration `json:"interval"`
	Timeout  Duration `json:"timeout"`
	// Healthy and Unhealthy are how many checks in a row change an endpoint's state.
	Healthy   int `json:"healthy"`
	Unhealthy int `json:"unhealthy"`
}

// StatusRange is the status codes From to To.
type StatusRange struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Expects is true for a status that means that the endpoint is healthy.
func (h *HealthCheck) Expects(status int) bool {
	if len(h.Statuses) == 0 {
		return status >= 200 && status <= 299
	}
	for _, r := range h.Statuses {
		if r.From <= status && status <= r.To {
			return true
		}
	}
	return false
}

func (v *validator) resilience(where Ref, s *Service) {
	percent := func(field string, p *int) {
		if p != nil && (*p < 0 || *p > 100) {
			v.fail(where, field, "%d is not between 0 and 100", *p)
		}
	}
	if l := s.Limits; l != nil {
		if l.Requests < 0 || l.EndpointRequests < 0 || l.Connecting < 0 {
			v.fail(where, "limits", "is negative")
		}
		percent("limits.retryPercent", l.RetryPercent)
	}
	if e := s.Ejection; e != nil {
		if e.GatewayErrors < 0 {
			v.fail(where, "ejection.gatewayErrors", "is negative")
		}
		percent("ejection.maxPercent", e.MaxPercent)
	}
	h := s.HealthCheck
	if h == nil {
		return
	}
	if h.Type != CheckHTTP && h.Type != CheckGRPC && h.Type != CheckTCP {
		v.fail(where, "healthCheck.type", "%q is not %q, %q or %q", h.Type, CheckHTTP, CheckGRPC, CheckTCP)
	}
	if h.Type == CheckHTTP && !ValidCheckPath(h.Path) {
		v.fail(where, "healthCheck.path", "%q is not a path", h.Path)
	}
	if h.Host != "" && CheckHostname(h.Host, true) != nil {
		v.fail(where, "healthCheck.host", "%q is not a host name", brief(h.Host))
	}
	if h.Interval <= 0 || h.Timeout <= 0 {
		v.fail(where, "healthCheck", "has no interval or no timeout")
	}
	if h.Healthy < 1 || h.Unhealthy < 1 {
		v.fail(where, "healthCheck", "has a threshold below 1")
	}
	for _, r := range h.Statuses {
		if r.From < 100 || r.To > 599 || r.From > r.To {
			v.fail(where, "healthCheck.statuses", "%d-%d is not a range of status codes", r.From, r.To)
		}
	}
}

// ValidCheckPath is true for a valid target of a health check: a path as it is sent (see TargetPath), with or without a
// query, and without a fragment.
func ValidCheckPath(path string) bool {
	path, query, _ := strings.Cut(path, "?")
	if sent, err := TargetPath(path); err != nil || sent != path || path == "" {
		return false
	}
	for i := 0; i < len(query); i++ {
		switch c := query[i]; {
		case c <= ' ' || c >= 0x7f || c == '#':
			return false
		case c == '%':
			if len(query)-i < 3 {
				return false
			}
			if _, ok := Unhex(query[i+1], query[i+2]); !ok {
				return false
			}
		}
	}
	return true
}
