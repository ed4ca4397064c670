package model

import (
	"slices"
)

// UnsupportedProtocol is the reason of the fault of a service to which connections can be sent, but not requests.
const UnsupportedProtocol = "UnsupportedProtocol"

// carries checks that a route is attached to listeners that take its kind, and that one for connections has nothing that
// only requests have.
func (v *validator) carries(r *Route) {
	if !r.Kind.Known() {
		v.fail(r.Ref, "kind", "%s is unknown to this version", r.Kind)
		return
	}
	for i, a := range r.Attachments {
		v.takes(r, v.at("attachments", i), a)
	}
	if r.Kind.Requests() {
		return
	}
	if len(r.Rules) != 1 {
		v.fail(r.Ref, "rules", "a %s route must have one rule", r.Kind)
	}
	if r.PathPolicy != "" {
		v.fail(r.Ref, "pathPolicy", "is set on a %s route", r.Kind)
	}
	for i, rule := range r.Rules {
		field := v.at("rules", i)
		if len(rule.Matches) > 0 || !rule.Filters.empty() || rule.Timeouts != (Timeouts{}) || rule.Retry != nil || rule.Session != nil {
			v.fail(r.Ref, field, "a %s rule cannot have matches, filters, timeouts, retries or sessions", r.Kind)
		}
		if slices.ContainsFunc(rule.Backends, func(b Backend) bool { return !b.Filters.empty() }) {
			v.fail(r.Ref, field+".backends", "a %s backend cannot have filters", r.Kind)
		}
	}
}

// takes checks that the listener of an attachment takes the route.
func (v *validator) takes(r *Route, field string, a Attachment) {
	if l := v.listeners[a.Listener]; l != nil && !l.Takes(r.Kind) {
		v.fail(r.Ref, field+".listener", "listener %q has the protocol %q, which takes no %s route", a.Listener, l.Protocol, r.Kind)
	}
}

func (f *Filters) empty() bool {
	return f.RequestHeaders == nil && f.ResponseHeaders == nil && f.Redirect == nil && f.Rewrite == nil && f.CORS == nil && len(f.Mirrors) == 0
}
