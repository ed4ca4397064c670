package model

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Omission is a part of a configuration that is left out, because it cannot be served, and why.
type Omission struct {
	// Ref is the object; its Field is the part, as a path inside of the object or, where that is not known, of the model.
	Ref Ref `json:"ref"`
	// Reason is what is wrong, and what happens to the part.
	Reason string `json:"reason"`
}

// String is "Kind namespace/name field: reason".
func (o Omission) String() string { return o.Ref.String() + ": " + o.Reason }

// invalidPart is the reason of the faults that replace parts that are left out.
const invalidPart = "InvalidConfiguration"

// Sound returns the part of the configuration that can be served, and a list of what it left out. It returns c itself
// if Validate accepts it, and never changes c. It is for configurations that front ends never produce: one that came
// over the wire from another release, or one that a bug in Weir produced. An error in one part must not hold up the
// others, and must not open what a user closed:
//
//   - A match that is not valid is left out, with the last of them its rule. A rule that has anything else wrong with it answers 500, a
//     backend, a leaf or a service for its share; a mirror is left out.
//   - A listener is left out with the attachments to it, a route with the last of them. So is one of a protocol that is unknown.
//   - A route of an unknown kind answers 500 to the requests it matches; it is left out where connections would come to it. A route without its
//     client certificate answers 500.
//   - A split is left out with its last match, or where its leaves mean nothing: its root's own endpoints serve.
//
// The result is valid. Valid parts are not changed and share memory with c.
func (c *Config) Sound() (*Config, []Omission) {
	if c.Validate() == nil {
		return c, nil
	}
	v := newValidator()
	v.telling = true
	s := sounder{v: v}
	out := &Config{}
	for _, l := range Lists {
		l.sound(&s, out, c)
	}
	return out, s.left
}

// sounder makes a configuration sound. It goes through it in the order of validator.config, so that a part is judged
// after everything that it refers to.
type sounder struct {
	v    *validator
	left []Omission
	// quiet are listeners that are left out; their attachments are not reported again.
	quiet map[string]bool
}

// ok runs a check and reports whether it found nothing wrong. Otherwise it notes the error, and what happens to the
// part.
func (s *sounder) ok(ref Ref, check func(), instead string) bool {
	from := len(s.v.errs)
	check()
	found := s.v.errs[from:]
	s.v.errs = s.v.errs[:from]
	if len(found) == 0 {
		return true
	}
	reason := strings.TrimPrefix(strings.TrimPrefix(found[0].Error(), ref.String()+": "), ".")
	if len(found) > 1 {
		reason += fmt.Sprintf(" (and %d more)", len(found)-1)
	}
	s.left = append(s.left, Omission{ref, reason + "; " + instead})
	return false
}

func (s *sounder) certificate(out *Config, x Certificate) {
	v := s.v
	known := v.certificates[x.Name]
	if s.ok(Ref{Kind: "Certificate", Name: x.Name}, func() { v.certificate(&x) }, "it is left out") {
		out.Certificates = append(out.Certificates, x)
	} else {
		v.certificates[x.Name] = known
	}
}

func (s *sounder) service(out *Config, x Service) {
	v := s.v
	if x.Name == "" || v.services[x.Name] {
		s.ok(x.Ref, func() { v.service(&x) }, "it is left out")
		return
	}
	if !s.ok(x.Ref, func() { v.resilience(x.Ref, &x) }, "its limits, ejection and health check are left out") {
		x.Limits, x.Ejection, x.HealthCheck = nil, nil, nil
	}
	bad := func(e Endpoint) bool { return CheckEndpoint(e.Address) != nil }
	if slices.ContainsFunc(x.Endpoints, bad) {
		x.Endpoints = slices.Clone(x.Endpoints)
		x.Endpoints = slices.DeleteFunc(x.Endpoints, func(e Endpoint) bool {
			err := CheckEndpoint(e.Address)
			if err != nil {
				s.left = append(s.left, Omission{x.Ref, err.Error() + "; the endpoint is left out"})
			}
			return err != nil
		})
	}
	if !s.ok(x.Ref, func() { v.service(&x) }, "its requests are answered 500") {
		x = Service{Name: x.Name, Ref: x.Ref, Protocol: HTTP, Fault: notValid("the service is not valid")}
	}
	v.services[x.Name] = true
	out.Services = append(out.Services, x)
}

func notValid(message string) *Fault {
	return &Fault{Status: http.StatusInternalServerError, Reason: invalidPart, Message: message}
}

func (s *sounder) listener(out *Config, l Listener) {
	v := s.v
	if t := l.TLS; t != nil && l.Protocol.TLS() {
		missing := func(name string) bool { return !v.hasCertificate(name) }
		if n := slices.IndexFunc(t.Certificates, missing); n >= 0 && slices.ContainsFunc(t.Certificates, func(name string) bool { return !missing(name) }) {
			s.left = append(s.left, Omission{l.Ref, fmt.Sprintf("certificate %q does not exist; the listener presents its others", t.Certificates[n])})
			some := *t
			some.Certificates = slices.DeleteFunc(slices.Clone(t.Certificates), missing)
			l.TLS = &some
		}
	}
	if l.Protocol.Requests() {
		s.pathPolicy(l.Ref, &l.PathPolicy)
	}
	good := s.ok(l.Ref, func() {
		switch {
		case l.Name == "":
			v.fail(l.Ref, "name", "is empty")
		case v.hasListener(l.Name):
			v.fail(l.Ref, "name", "listener %q occurs twice", l.Name)
		}
		v.listener(&l)
	}, "it is left out")
	if good {
		good = s.ok(l.Ref, func() {
			if !v.accepted.add(l) {
				v.fail(l.Ref, "hostname", "listener %q clashes with another on port %d", l.Name, l.Port)
			}
		}, "it is left out")
	}
	if !good {
		if s.quiet == nil {
			s.quiet = map[string]bool{}
		}
		s.quiet[l.Name] = true
		return
	}
	v.listeners[l.Name] = &l
	out.Listeners = append(out.Listeners, l)
}

// pathPolicy replaces an unknown policy by the strict one: its author cannot have wanted to refuse nothing.
func (s *sounder) pathPolicy(ref Ref, p *PathPolicy) {
	if !s.ok(ref, func() { s.v.pathPolicy(ref, *p) }, string(PathStrict)+" holds") {
		*p = PathStrict
	}
}

func (s *sounder) route(out *Config, r Route) {
	v := s.v
	unnamed := func() {
		if r.Ref.Name == "" {
			v.fail(r.Ref, "ref", "has no name")
		}
	}
	if !s.ok(r.Ref, unnamed, "the route is left out") {
		return
	}
	before := len(s.left)
	if !r.Kind.Known() && !s.keepBack(&r) {
		return
	}
	s.pathPolicy(r.Ref, &r.PathPolicy)
	given := len(r.Attachments)
	r.Attachments = s.attachments(&r)
	if given > 0 && len(r.Attachments) == 0 {
		return
	}
	if !r.Kind.Requests() {
		whole := r
		if !s.ok(r.Ref, func() { v.carries(&whole) }, "the route is left out") {
			return
		}
	}
	bare := !s.ok(r.Ref, func() { v.clientCertificate(&r) }, "the route's requests are answered 500")
	if bare {
		r.ClientCertificate = ""
	}
	var patterns PatternBudget
	rules := make([]Rule, 0, len(r.Rules))
	for i, rule := range r.Rules {
		if s.rule(&r, i, &rule, &patterns) {
			if bare {
				rule = Rule{Ref: rule.Ref, Name: rule.Name, Matches: rule.Matches, Fault: notValid("the route's client certificate does not exist")}
			}
			rules = append(rules, rule)
		}
	}
	if n := len(rules); !r.Kind.Requests() && n != 1 || n == 0 && len(r.Rules) > 0 {
		return
	}
	if len(s.left) > before {
		r.Rules = rules
	}
	out.Routes = append(out.Routes, r)
}

// keepBack puts in the place of a route of an unknown kind one that keeps its requests back. It reports false if there is none.
func (s *sounder) keepBack(r *Route) bool {
	withheld, left := r.Withheld(func(listener string) Protocol {
		if l := s.v.listeners[listener]; l != nil {
			return l.Protocol
		}
		return ""
	})
	s.left = append(s.left, left)
	if withheld != nil {
		*r = *withheld
	}
	return withheld != nil
}

// attachments returns those of a route that are sound.
func (s *sounder) attachments(r *Route) []Attachment {
	v := s.v
	var all []Attachment
	changed := false
	for i, a := range r.Attachments {
		field := FieldAt("attachments", i)
		if s.quiet[a.Listener] && !v.hasListener(a.Listener) {
			changed = true
			continue
		}
		if slices.ContainsFunc(a.Hostnames, validHost) && !allHosts(a.Hostnames) {
			s.ok(r.Ref, func() { v.attachment(r.Ref, field, a) }, "the hostname is left out")
			a.Hostnames = slices.DeleteFunc(slices.Clone(a.Hostnames), func(h string) bool { return !validHost(h) })
			changed = true
		}
		good := s.ok(r.Ref, func() {
			v.attachment(r.Ref, field, a)
			v.takes(r, field, a)
		}, "the route is not attached there")
		if changed = changed || !good; good {
			all = append(all, a)
		}
	}
	if !changed {
		return r.Attachments
	}
	return all
}

func allHosts(hostnames []string) bool {
	return !slices.ContainsFunc(hostnames, func(h string) bool { return !validHost(h) })
}

// rule makes a rule sound, and reports whether anything is left of it.
func (s *sounder) rule(r *Route, i int, rule *Rule, patterns *PatternBudget) bool {
	v := s.v
	field := FieldAt("rules", i)
	ref := rule.Ref
	if ref.Field == "" {
		ref = r.Ref
		ref.Field = field
	}
	if r.Kind.Requests() {
		var matches []Match
		for j, m := range rule.Matches {
			check := func() { v.match(ref, FieldAt("matches", j), m, patterns) }
			if s.ok(ref, check, "the match is left out") {
				matches = append(matches, m)
			}
		}
		if len(matches) == 0 {
			if len(rule.Matches) == 0 {
				s.ok(ref, func() { v.fail(ref, "matches", "is empty") }, "the rule is left out")
			}
			return false
		}
		if len(matches) < len(rule.Matches) {
			rule.Matches = matches
		}
	}
	s.mirrors(ref, "filters", &rule.Filters)
	cloned := false // the backends
	for j := range rule.Backends {
		b := rule.Backends[j]
		at := FieldAt("backends", j)
		count := len(b.Filters.Mirrors)
		s.mirrors(ref, at+".filters", &b.Filters)
		bad := !s.ok(ref, func() { v.backend(ref, at, &b) }, "the backend's share is answered 500")
		if !bad && len(b.Filters.Mirrors) == count {
			continue
		}
		if bad {
			b = Backend{Ref: b.Ref, Weight: b.Weight, Fault: notValid("the backend is not valid")}
		}
		if !cloned {
			rule.Backends, cloned = slices.Clone(rule.Backends), true
		}
		rule.Backends[j] = b
	}
	if !s.ok(ref, func() { v.rule(ref, "", rule) }, "the rule's requests are answered 500") {
		*rule = Rule{Ref: rule.Ref, Name: rule.Name, Matches: rule.Matches, Fault: notValid("the rule is not valid")}
	}
	return true
}

// mirrors leaves out invalid mirrors.
func (s *sounder) mirrors(ref Ref, field string, f *Filters) {
	var good []Mirror
	for i, m := range f.Mirrors {
		if s.ok(ref, func() { s.v.mirror(ref, FieldAt(field+".mirrors", i), m) }, "the mirror is left out") {
			good = append(good, m)
		}
	}
	if len(good) < len(f.Mirrors) {
		f.Mirrors = good
	}
}

type splitKey struct {
	ref  Ref
	root string
}

func (s *sounder) split(out *Config, x Split) {
	v := s.v
	var patterns PatternBudget
	var matches []SplitMatch
	for i, m := range x.Matches {
		ref := m.Ref
		if ref.Kind == "" {
			ref = x.Ref
		}
		if s.ok(ref, func() { v.splitMatch(ref, FieldAt("matches", i), m, &patterns) }, "the match is left out") {
			matches = append(matches, m)
		}
	}
	if len(x.Matches) > 0 && len(matches) == 0 {
		return // without matches it would take all requests
	}
	if len(matches) < len(x.Matches) {
		x.Matches = matches
	}
	cloned := false
	for i, l := range x.Leaves {
		if s.ok(x.Ref, func() { v.leaf(x.Ref, FieldAt("leaves", i), l) }, "the leaf's share is answered 500") {
			continue
		}
		if !cloned {
			x.Leaves, cloned = slices.Clone(x.Leaves), true
		}
		x.Leaves[i] = Leaf{Ref: l.Ref, Weight: l.Weight, Fault: notValid("the leaf is not valid")}
	}
	if s.ok(x.Ref, func() { v.split(&x) }, "the split is left out") {
		out.Splits = append(out.Splits, x)
	}
}

// compareOmissions orders omissions by object.
func compareOmissions(a, b Omission) int {
	return cmp.Or(a.Ref.Compare(b.Ref), cmp.Compare(a.Reason, b.Reason))
}

// SortOmissions sorts by object, and drops duplicates.
func SortOmissions(all []Omission) []Omission {
	slices.SortStableFunc(all, compareOmissions)
	return slices.Compact(all)
}
