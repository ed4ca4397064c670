package diff

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// Outcome is what happens to a request.
type Outcome struct {
	// Answer is what the client gets without a backend: "the port is closed", "404: no rule matches".
	Answer string `json:"answer,omitempty"`
	// Rule takes the request; where it was written is no difference.
	Rule *model.Ref `json:"rule,omitempty"`
	// Backends share the requests; Mirrors get copies.
	Backends []Share `json:"backends,omitempty"`
	Mirrors  []Share `json:"mirrors,omitempty"`
	// Filters are the rule's filters, without mirrors.
	Filters  model.Filters  `json:"filters,omitzero"`
	Timeouts model.Timeouts `json:"timeouts,omitzero"`
	Retry    *model.Retry   `json:"retry,omitempty"`
	Session  *model.Session `json:"session,omitempty"`
}

// Share is a part of the requests.
type Share struct {
	// Service is empty where Answer is given in its stead.
	Service string `json:"service,omitempty"`
	Answer  string `json:"answer,omitempty"`
	// Of is the part of all requests of the rule, 0 to 1, as exact as a float64 is.
	Of float64 `json:"of"`
	// Filters are the backend's own, without mirrors.
	Filters model.Filters `json:"filters,omitzero"`
}

func (s Share) compare(o Share) int {
	return cmp.Or(cmp.Compare(s.Service, o.Service), cmp.Compare(s.Answer, o.Answer), cmp.Compare(o.Of, s.Of))
}

// parts of an outcome, by the name under which a difference is told.
func (o *Outcome) parts() map[string]string {
	text := func(v any) string {
		// Plain data: it always marshals.
		b, _ := json.Marshal(v)
		return string(b)
	}
	return map[string]string{
		"backends": text([]any{o.Answer, o.Backends}), "mirrors": text(o.Mirrors), "filters": text(o.Filters),
		"timeouts": text(o.Timeouts), "retry": text(o.Retry), "session": text(o.Session),
	}
}

// side is one of the two configurations.
type side struct {
	table *routing.Table
	rules map[*routing.Rule]*Outcome // of rules without splits
}

func (s *side) outcome(r *Request) *Outcome {
	port := s.table.Port(r.Scheme.Network(), r.Address, r.Port)
	if port == nil {
		return &Outcome{Answer: "the port is closed"}
	}
	if port.Protocol != r.Scheme {
		return &Outcome{Answer: "the port has another protocol"}
	}
	if !port.Protocol.Requests() {
		rule := port.Rule()
		if rule == nil {
			return &Outcome{Answer: "no route: the connection is reset"}
		}
		return s.rule(rule, nil)
	}
	l := port.Listener(r.Host)
	if l == nil {
		return &Outcome{Answer: "404: no listener has the host"}
	}
	q := routing.Request{Host: r.Host, Method: r.Method, Path: r.Path, Query: r.Query, Fields: r}
	var d routing.Decision
	if !l.Match(&q, &d) {
		return &Outcome{Answer: "404: no rule matches"}
	}
	return s.rule(d.Rule, &q)
}

// rule is the outcome of a request that a rule takes; q is nil for a connection.
func (s *side) rule(r *routing.Rule, q *routing.Request) *Outcome {
	if o := s.rules[r]; o != nil {
		return o
	}
	where := r.Route.Ref
	where.Field = fmt.Sprintf("spec.rules[%d]", r.Index)
	m := r.Rule
	o := &Outcome{Rule: &where, Filters: bare(m.Filters), Timeouts: m.Timeouts, Retry: m.Retry, Session: m.Session}
	fixed := true
	switch {
	case m.Filters.Redirect != nil:
		o.Answer = fmt.Sprintf("%d: redirect", m.Filters.Redirect.Status)
	case m.Fault != nil:
		o.Answer = fault(m.Fault)
	default:
		var sum uint64
		for _, b := range m.Backends {
			sum += uint64(b.Weight)
		}
		if sum == 0 {
			o.Answer = "500: no backend has a weight"
		}
		for _, b := range r.Backends {
			if sum > 0 && b.Backend.Weight > 0 {
				fixed = o.backend(b, float64(b.Backend.Weight)/float64(sum), q) && fixed
			}
		}
		o.Backends = merged(o.Backends)
		fixed = o.copies(r.Mirrors, 1, q) && fixed
		o.Mirrors = merged(o.Mirrors)
	}
	if fixed {
		s.rules[r] = o
	}
	return o
}

// backend adds a backend's share; fixed means that it is the same for all requests of the rule.
func (o *Outcome) backend(b *routing.Backend, part float64, q *routing.Request) (fixed bool) {
	own := bare(b.Backend.Filters)
	var splits []routing.ExplainedSplit
	if q == nil {
		splits = b.ExplainConnectionLeaf()
	} else {
		splits = b.ExplainLeaf(q)
	}
	fixed = len(splits) == 0
	if n := len(splits); n > 0 && splits[n-1].Takes {
		for _, l := range splits[n-1].Leaves {
			if l.Weight > 0 {
				o.Backends = append(o.Backends, share(l.Service, l.Fault, part*l.Probability(), own))
			}
		}
	} else {
		o.Backends = append(o.Backends, share(b.Backend.Service, b.Backend.Fault, part, own))
	}
	return o.copies(b.Mirrors, part, q) && fixed
}

func (o *Outcome) copies(mirrors []*routing.Mirror, part float64, q *routing.Request) (fixed bool) {
	fixed = true
	for _, m := range mirrors {
		of := part * float64(m.Mirror.Numerator) / float64(max(m.Mirror.Denominator, 1))
		splits := m.ExplainLeaf(q)
		fixed = fixed && len(splits) == 0
		if n := len(splits); n > 0 && splits[n-1].Takes {
			for _, l := range splits[n-1].Leaves {
				o.Mirrors = append(o.Mirrors, share(l.Service, l.Fault, of*l.Probability(), model.Filters{}))
			}
		} else {
			o.Mirrors = append(o.Mirrors, share(m.Mirror.Service, nil, of, model.Filters{}))
		}
	}
	return fixed
}

func share(service string, f *model.Fault, of float64, filters model.Filters) Share {
	s := Share{Service: service, Of: of, Filters: filters}
	if f != nil {
		s.Service, s.Answer = "", fault(f)
	}
	return s
}

func fault(f *model.Fault) string { return fmt.Sprintf("%d: %s", f.Status, f.Reason) }

// bare are filters without mirrors, which are compared separately.
func bare(f model.Filters) model.Filters {
	f.Mirrors = nil
	return f
}

// merged adds up the shares of one service, and sorts: their order makes no difference.
func merged(all []Share) []Share {
	slices.SortStableFunc(all, func(a, b Share) int { return a.compare(b) })
	var out []Share
	for _, s := range all {
		if n := len(out); n > 0 && out[n-1].Service == s.Service && out[n-1].Answer == s.Answer && equal(out[n-1].Filters, s.Filters) {
			out[n-1].Of += s.Of
			continue
		}
		out = append(out, s)
	}
	return out
}

func equal(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
