package model

import (
	"net/netip"
	"slices"
	"strings"
)

// IdentityPrefix begins the names of identities. An identity is a certificate that is never in a configuration: a
// process has it from elsewhere, with its key and the roots by which it checks its peers, and renews it by itself. Where
// a configuration names a certificate to present, or the authorities of a service, it can name an identity. A process
// that has none of that name serves and connects to nothing under it.
const IdentityPrefix = "identity:"

// WorkloadIdentity is the name under which a sidecar has its pod's identity.
const WorkloadIdentity = IdentityPrefix + "workload"

// IsIdentity reports whether a name is an identity's, "identity:NAME". NAME has lower-case letters, digits, and the
// characters - . / and so no bundle of certificates in PEM form is taken for one.
func IsIdentity(name string) bool {
	rest, ok := strings.CutPrefix(name, IdentityPrefix)
	return ok && rest != "" && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz0123456789-./") == ""
}

// Identity returns the identity that the listener presents, and whose roots vouch for its clients; empty for none.
func (t *ListenerTLS) Identity() string {
	if i := slices.IndexFunc(t.Certificates, IsIdentity); i >= 0 {
		return t.Certificates[i]
	}
	return ""
}

// Identity returns the identity whose roots vouch for the service's endpoints; empty if CAs are authorities themselves.
func (t *ServiceTLS) Identity() string {
	if IsIdentity(t.CAs) {
		return t.CAs
	}
	return ""
}

// spiffeScheme begins the names that certificates have under an identity's roots.
const spiffeScheme = "spiffe://"

// Issued is what a listener says of the process's identity of a name; nil if none does.
func (c *Config) Issued(identity string) *Issued {
	for i := range c.Listeners {
		if t := c.Listeners[i].TLS; t != nil && t.Issued != nil && t.Identity() == identity {
			return t.Issued
		}
	}
	return nil
}

// MeshProtocol is the name (ALPN, RFC 7301) by which clients of the mesh say so: they offer it to endpoints that they know by
// identity, beside a version of HTTP for requests and MeshWord for other connections. No server chooses it.
const MeshProtocol = "weir"

// MeshWord is what clients of the mesh offer for a connection of which they do not know what it carries. A server that
// chooses it says first, in one byte, whether the connection has come about. Until then the client sends nothing, so that it
// may go elsewhere.
const MeshWord = "weir-word"

// What servers say by MeshWord.
const (
	WordThere  byte = '+' // what follows is the application's
	WordAway   byte = '-' // the application cannot be reached
	WordDenied byte = '!' // the connection is refused, as it would be elsewhere
)

// ServesPlain reports whether clients without TLS are served at the listener.
func (l *Listener) ServesPlain() bool {
	return !l.Protocol.TLS() || l.TLS != nil && l.TLS.Plain && l.TLS.Identity() != ""
}

// TakesConnections reports whether connections that carry no requests are served at the listener.
func (l *Listener) TakesConnections() bool { return !l.Protocol.Requests() || l.Detect }

// Takes says whether routes of a kind can be attached to the listener.
func (l *Listener) Takes(k RouteKind) bool { return l.Protocol.Takes(k) || l.Detect && k == RouteTCP }

// detect checks what a listener needs that detects what connections carry.
func (v *validator) detect(where Ref, l *Listener) {
	switch {
	case !l.Detect:
	case !l.Protocol.Requests():
		v.fail(where, "detect", "is set, but the protocol %q says what connections carry", l.Protocol)
	case l.Hostname != "":
		v.fail(where, "detect", "is set, but connections that carry no requests have no hostname")
	case l.Protocol.TLS() && (l.TLS == nil || l.TLS.Identity() == ""):
		v.fail(where, "detect", "is set, but with TLS only a listener with an identity detects what connections carry")
	}
}

// hasCertificate reports whether a name is that of a certificate that can be presented.
func (v *validator) hasCertificate(name string) bool { return IsIdentity(name) || v.certificates[name] }

// listenerIdentity checks what an identity asks of a listener.
func (v *validator) listenerIdentity(where Ref, t *ListenerTLS) {
	name := t.Identity()
	switch {
	case name == "" && t.Plain:
		v.fail(where, "tls.plain", "is set, but only a listener with an identity serves clients without TLS beside others")
	case name == "" && t.Issued != nil:
		v.fail(where, "tls.issued", "is set, but only an identity is signed")
	case name == "":
	case len(t.Certificates) > 1:
		v.fail(where, "tls.certificates", "%q is an identity, beside which a listener has no other certificate", name)
	case t.ClientCAs != "":
		v.fail(where, "tls.clientCAs", "is set, but the roots of %q vouch for clients", name)
	case t.ClientOptional:
		v.fail(where, "tls.clientOptional", "is set, but %q requires an identity of every client", name)
	}
}

// serviceIdentity checks what an identity asks of a service.
func (v *validator) serviceIdentity(where Ref, t *ServiceTLS) {
	if t.Identity() == "" {
		if t.Pods != nil {
			v.fail(where, "tls.pods", "is set, but no identity vouches for pods")
		}
		return
	}
	if len(t.SubjectAltNames) == 0 && t.Pods == nil {
		v.fail(where, "tls.subjectAltNames", "is empty, but %q vouches for SPIFFE IDs alone", t.CAs)
	}
	for i, p := range t.Pods {
		if _, err := netip.ParseAddr(p.Address); err != nil {
			v.fail(where, v.at("tls.pods", i)+".address", "%q is not an IP address", p.Address)
		}
		if !strings.HasPrefix(p.ID, spiffeScheme) {
			v.fail(where, v.at("tls.pods", i)+".id", "%q is not a SPIFFE ID", p.ID)
		}
	}
	for i, name := range t.SubjectAltNames {
		if !strings.HasPrefix(name, spiffeScheme) {
			v.fail(where, v.at("tls.subjectAltNames", i), "%q is not a SPIFFE ID, and %q vouches for these alone", name, t.CAs)
		}
	}
}
