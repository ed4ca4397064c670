package model

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Validate reports everything that prevents the configuration from being compiled. Each error names the reference it
// came from and the field. Translators never produce such a configuration, whatever the user wrote. One that came over
// the wire or was written by hand may be invalid.
func (c *Config) Validate() error {
	quick := newValidator()
	if quick.config(c); !quick.failed {
		return nil
	}
	v := newValidator()
	v.telling = true
	v.config(c)
	return errors.Join(v.errs...)
}

func newValidator() *validator {
	return &validator{services: map[string]bool{}, certificates: map[string]bool{}, listeners: map[string]*Listener{}, splits: map[splitKey]bool{}}
}

func (v *validator) config(c *Config) {
	for _, l := range Lists {
		l.validate(v, c)
	}
}

// validator looks for errors. It only composes messages if somebody will read them, since that costs more than
// everything else.
type validator struct {
	telling, failed        bool
	errs                   []error
	services, certificates map[string]bool
	listeners              map[string]*Listener
	accepted               listenerSet
	splits                 map[splitKey]bool
}

func (v *validator) fail(where Ref, field, format string, args ...any) {
	v.failed = true
	if v.telling {
		v.errs = append(v.errs, fmt.Errorf("%s: %s: %w", where, field, fmt.Errorf(format, args...)))
	}
}

// at is FieldAt, or empty if nobody will read it.
func (v *validator) at(list string, i int) string {
	if !v.telling {
		return ""
	}
	return FieldAt(list, i)
}

func (v *validator) certificate(x *Certificate) {
	where := Ref{Kind: "Certificate", Name: x.Name}
	switch {
	case x.Name == "":
		v.fail(where, "name", "is empty")
	case strings.HasPrefix(x.Name, IdentityPrefix):
		v.fail(where, "name", "begins with %q, which is reserved for identities", IdentityPrefix)
	case v.certificates[x.Name]:
		v.fail(where, "name", "is used twice")
	case x.Chain == "":
		v.fail(where, "chain", "is empty")
	case x.Key == "":
		v.fail(where, "key", "is empty")
	}
	v.certificates[x.Name] = true
}

func (v *validator) service(s *Service) {
	where := s.Ref
	if s.Name == "" {
		v.fail(where, "name", "is empty")
	} else if v.services[s.Name] {
		v.fail(where, "name", "service %q occurs twice", s.Name)
	}
	v.services[s.Name] = true
	if s.Extends != "" {
		v.fail(where, "extends", "service %q is not merged with %q", s.Name, s.Extends)
	}
	if s.Protocol != HTTP && s.Protocol != H2C {
		v.fail(where, "protocol", "%q is neither %q nor %q", s.Protocol, HTTP, H2C)
	}
	for i, e := range s.Endpoints {
		if err := CheckEndpoint(e.Address); err != nil {
			v.fail(where, v.at("endpoints", i)+".address", "%w", err)
		}
	}
	if s.Meant && len(s.Endpoints) > 0 {
		v.fail(where, "endpoints", "are set, but the clients' connections say which they are")
	}
	if t := s.TLS; t != nil {
		if t.Hostname == "" {
			v.fail(where, "tls.hostname", "is empty")
		}
		v.serviceIdentity(where, t)
	}
	v.fault(where, "fault", s.Fault)
	v.resilience(where, s)
	if s.ProxyProtocol < 0 || s.ProxyProtocol > 2 {
		v.fail(where, "proxyProtocol", "%d is not a version of the PROXY protocol: use 1 or 2, or 0 for none", s.ProxyProtocol)
	}
}

// listed checks a listener by itself and among those before it.
func (v *validator) listed(l *Listener) {
	where := l.Ref
	v.listener(l)
	if l.Name == "" {
		v.fail(where, "name", "is empty")
	} else if v.hasListener(l.Name) {
		v.fail(where, "name", "listener %q occurs twice", l.Name)
	} else if !v.accepted.add(*l) {
		v.fail(where, "hostname", "listener %q clashes with another on %s", l.Name, net.JoinHostPort(l.Address, fmt.Sprint(l.Port)))
	}
	v.listeners[l.Name] = l
}

func (v *validator) hasListener(name string) bool {
	_, ok := v.listeners[name]
	return ok
}

// redirect checks a listener's port, and what a redirect asks of it.
func (v *validator) redirect(where Ref, l *Listener) {
	least := int32(1)
	if l.Redirect != "" {
		least = 0
		if !slices.Contains(Redirects(), l.Redirect) {
			v.fail(where, "redirect", "%q is unknown to this version; use one of %q", l.Redirect, Redirects())
		}
		if l.Front != nil {
			v.fail(where, "front", "is set, but no proxies are in front of a redirect")
		}
	}
	if l.Port < least || l.Port > 65535 {
		v.fail(where, "port", "%d is not a port", l.Port)
	}
}

// listener checks a listener by itself.
func (v *validator) listener(l *Listener) {
	where := l.Ref
	v.front(where, l.Front)
	v.redirect(where, l)
	v.detect(where, l)
	if _, err := netip.ParseAddr(l.Address); l.Address != "" && err != nil {
		v.fail(where, "address", "%q is not an IP address", l.Address)
	}
	if l.Hostname != "" && (l.Hostname == "*" || !validHost(l.Hostname)) {
		v.fail(where, "hostname", "%q is not a lower-case name or *.suffix", l.Hostname)
	}
	switch p := l.Protocol; {
	case !p.OnListeners():
		v.fail(where, "protocol", "%q is unknown to this version; use one of %q", p, ListenerProtocols())
	case !p.TLS() && l.TLS != nil:
		v.fail(where, "tls", "is set on a listener without TLS")
	case p.TLS() && (l.TLS == nil || len(l.TLS.Certificates) == 0):
		v.fail(where, "tls", "has no certificate")
	case !p.Hosts() && l.Hostname != "":
		v.fail(where, "hostname", "is set, but clients name no host over the protocol %q", p)
	case !p.Requests() && l.PathPolicy != "":
		v.fail(where, "pathPolicy", "is set, but no requests come by the protocol %q", p)
	}
	v.pathPolicy(where, l.PathPolicy)
	if l.TLS != nil {
		for i, name := range l.TLS.Certificates {
			if !v.hasCertificate(name) {
				v.fail(where, v.at("tls.certificates", i), "certificate %q does not exist", name)
			}
		}
		v.listenerIdentity(where, l.TLS)
	}
}

func (v *validator) route(r *Route) {
	if r.Ref.Name == "" {
		v.fail(r.Ref, "ref", "has no name")
	}
	for i, a := range r.Attachments {
		v.attachment(r.Ref, v.at("attachments", i), a)
	}
	v.carries(r)
	v.pathPolicy(r.Ref, r.PathPolicy)
	v.clientCertificate(r)
	var patterns PatternBudget
	for i := range r.Rules {
		rule, field := &r.Rules[i], v.at("rules", i)
		for j, m := range rule.Matches {
			v.match(r.Ref, v.at(field+".matches", j), m, &patterns)
		}
		v.rule(r.Ref, field, rule)
		if r.Kind.Requests() && len(rule.Matches) == 0 {
			v.fail(r.Ref, field+".matches", "is empty")
		}
	}
}

func (v *validator) clientCertificate(r *Route) {
	if r.ClientCertificate != "" && !v.hasCertificate(r.ClientCertificate) {
		v.fail(r.Ref, "clientCertificate", "certificate %q does not exist", r.ClientCertificate)
	}
}

func (v *validator) attachment(where Ref, field string, a Attachment) {
	if !v.hasListener(a.Listener) {
		v.fail(where, field+".listener", "listener %q does not exist", a.Listener)
	}
	if len(a.Hostnames) == 0 {
		v.fail(where, field+".hostnames", "is empty")
	}
	for _, h := range a.Hostnames {
		if !validHost(h) {
			v.fail(where, field+".hostnames", "%q is not a lower-case name, *.suffix or *", h)
		}
	}
}

// rule checks a rule, except for its matches.
func (v *validator) rule(where Ref, field string, r *Rule) {
	v.filters(where, field+".filters", r.Filters)
	v.session(where, field+".session", r.Session)
	v.fault(where, field+".fault", r.Fault)
	var sum uint64
	for i := range r.Backends {
		sum += uint64(r.Backends[i].Weight)
		v.backend(where, v.at(field+".backends", i), &r.Backends[i])
	}
	if sum > math.MaxUint32 {
		v.fail(where, field+".backends", "the sum of the weights is %d, above %d", sum, uint32(math.MaxUint32))
	}
	if r.Timeouts.Request < 0 || r.Timeouts.BackendRequest < 0 {
		v.fail(where, field+".timeouts", "is negative")
	}
	if t := r.Retry; t != nil {
		if t.Attempts < 0 || t.Backoff < 0 {
			v.fail(where, field+".retry", "is negative")
		}
		for _, code := range t.Codes {
			if code < 400 || code > 599 {
				v.fail(where, field+".retry.codes", "%d is not an error's status code", code)
			}
		}
	}
}

// target checks what a backend or a leaf leads to: a service, or a fault in its place.
func (v *validator) target(where Ref, field, service string, fault *Fault) {
	switch {
	case service == "" && fault == nil:
		v.fail(where, field, "has neither a service nor a fault")
	case service != "" && fault != nil:
		v.fail(where, field, "has a service and a fault")
	case service != "" && !v.services[service]:
		v.fail(where, field+".service", "service %q does not exist", service)
	}
	v.fault(where, field+".fault", fault)
}

func (v *validator) backend(where Ref, field string, b *Backend) {
	v.target(where, field, b.Service, b.Fault)
	v.filters(where, field+".filters", b.Filters)
}

func (v *validator) match(where Ref, field string, m Match, patterns *PatternBudget) {
	switch m.Path.Type {
	case Exact, Prefix:
		if err := CheckMatchPath(m.Path.Value); err != nil {
			v.fail(where, field+".path.value", "%q: %w", brief(m.Path.Value), err)
		}
	case Regex:
		v.pattern(where, field+".path.value", m.Path.Value, patterns)
	default:
		v.fail(where, field+".path.type", "%q is unknown", m.Path.Type)
	}
	for i, h := range m.Headers {
		v.value(where, v.at(field+".headers", i), h, patterns)
	}
	for i, q := range m.Query {
		v.value(where, v.at(field+".query", i), q, patterns)
	}
}

func (v *validator) value(where Ref, field string, m ValueMatch, patterns *PatternBudget) {
	if m.Name == "" {
		v.fail(where, field+".name", "is empty")
	}
	switch m.Type {
	case Exact:
	case Regex:
		v.pattern(where, field+".value", m.Value, patterns)
	default:
		v.fail(where, field+".type", "%q is unknown", m.Type)
	}
}

func (v *validator) pattern(where Ref, field, pattern string, patterns *PatternBudget) {
	if err := patterns.Add(pattern); err != nil {
		v.fail(where, field, "%w", err)
	}
}

func (v *validator) filters(where Ref, field string, f Filters) {
	if part, err := f.Check(); err != nil {
		v.fail(where, field+part, "%w", err)
	}
	for i, m := range f.Mirrors {
		v.mirror(where, v.at(field+".mirrors", i), m)
	}
}

func (v *validator) mirror(where Ref, field string, m Mirror) {
	if !v.services[m.Service] {
		v.fail(where, field+".service", "service %q does not exist", m.Service)
	}
	if err := m.Check(); err != nil {
		v.fail(where, field, "%w", err)
	}
}

func (v *validator) fault(where Ref, field string, f *Fault) {
	if f != nil && (f.Status < 400 || f.Status > 599 || f.Reason == "") {
		v.fail(where, field, "%d %q is not an error's status code with a reason", f.Status, f.Reason)
	}
}

// ValidHostname is true for a valid hostname of a listener or a route: "*", "*.suffix" and plain names, in lower case.
func ValidHostname(h string) bool { return validHost(h) }

func validHost(h string) bool {
	if h == "*" {
		return true
	}
	h = strings.TrimPrefix(h, "*.")
	return h != "" && h == strings.ToLower(h) && !strings.ContainsAny(h, "*/: ")
}
