package model

import (
	"slices"
)

// UnsupportedProtocol is the reason of the fault of a service to which connections can be sent, but not requests.
const UnsupportedProtocol = "UnsupportedProtocol"

// carries checks that a route is attached to listeners of its own kind, and that a route for TCP has none of the
// settings for requests.
func (v *validator) carries(r *Route) {
	for i, a := range r.Attachments {
		if v.listeners[a.Listener] && v.tcp[a.Listener] != r.TCP {
			v.fail(r.Ref, v.at("attachments", i)+".listener", "listener %q and the route must both be for TCP, or neither", a.Listener)
		}
	}
	if !r.TCP {
		return
	}
	if len(r.Rules) != 1 || r.GRPC {
		v.fail(r.Ref, "rules", "a TCP route must have one rule and cannot be a gRPC route")
	}
	if r.PathPolicy != "" {
		v.fail(r.Ref, "pathPolicy", "is set on a route for TCP")
	}
	for i, rule := range r.Rules {
		field := v.at("rules", i)
		if len(rule.Matches) > 0 || !rule.Filters.empty() || rule.Timeouts != (Timeouts{}) || rule.Retry != nil || rule.Session != nil {
			v.fail(r.Ref, field, "a TCP rule cannot have matches, filters, timeouts, retries or sessions")
		}
		if slices.ContainsFunc(rule.Backends, func(b Backend) bool { return !b.Filters.empty() }) {
			v.fail(r.Ref, field+".backends", "a TCP backend cannot have filters")
		}
	}
}

func (f *Filters) empty() bool {
	return f.RequestHeaders == nil && f.ResponseHeaders == nil && f.Redirect == nil && f.Rewrite == nil && f.CORS == nil && len(f.Mirrors) == 0
}
