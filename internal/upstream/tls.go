package upstream

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
)

// sessions bounds the TLS sessions kept for resumption, per endpoint and protocol: servers give two tickets and more.
const sessions = 4

// CipherSuites are the suites for TLS 1.2, on both sides of the proxy: those with forward secrecy and authenticated
// encryption (RFC 9325 §4.2). HTTP/2 forbids all others (RFC 9113 Appendix A). TLS 1.3 has no others.
var CipherSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// tlsIdentity is how a service is authenticated, and the certificate that it is shown; see model.ServiceTLS. Immutable.
type tlsIdentity struct {
	serverName string
	config     *tls.Config // the common part
	err        error       // why it cannot be used
	workloads
}

// endpointTLS is an identity with an endpoint's own session caches: a session with one server is useless for another.
type endpointTLS struct {
	*tlsIdentity
	http1, http2 *tls.Config
	// relay offers no protocol but that of the mesh: what a relayed connection speaks is not known.
	relay *tls.Config
}

// tlsDigest names the identity; it changes whenever what is trusted or shown changes.
func tlsDigest(t *model.ServiceTLS, name string, client *model.Certificate) string {
	h := sha256.New()
	add := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	add(t.Hostname)
	add(t.CAs)
	add(name)
	if client != nil {
		add(client.Chain)
		add(client.Key.Reveal())
	} else {
		add("")
		add("")
	}
	for _, name := range t.SubjectAltNames {
		add(name)
	}
	return string(h.Sum(nil))
}

// newTLSIdentity returns the identity with the client certificate of that name; "" is none. source is Options.Identities.
func newTLSIdentity(t *model.ServiceTLS, name string, client *model.Certificate, source func(string) *spiffe.Identity) *tlsIdentity {
	id := &tlsIdentity{serverName: t.Hostname, workloads: workloads{source: source}, config: &tls.Config{
		ServerName: t.Hostname, MinVersion: tls.VersionTLS12, CipherSuites: CipherSuites,
	}}
	if id.err = id.read(t, name); id.err != nil {
		return id
	}
	if !id.none() {
		id.config.MinVersion = tls.VersionTLS13
	}
	if t.CAs != "" && id.believes == "" {
		id.config.RootCAs = x509.NewCertPool()
		if !id.config.RootCAs.AppendCertsFromPEM([]byte(t.CAs)) {
			id.err = errors.New("the CA bundle holds no certificate in PEM form")
			return id
		}
	}
	switch {
	case id.believes != "":
	case len(t.SubjectAltNames) > 0:
		// The library would check Hostname; the chain and the names are checked here instead, on resumption too.
		id.config.InsecureSkipVerify = true
		id.config.VerifyConnection = verifier(id.config.RootCAs, t.SubjectAltNames)
	case t.Hostname == "":
		id.err = errors.New("neither a hostname nor a subject alternative name to check the certificate against")
		return id
	}
	if name != "" && id.presents == "" {
		if client == nil {
			id.err = fmt.Errorf("the client certificate %q does not exist", name)
			return id
		}
		pair, err := tls.X509KeyPair([]byte(client.Chain), []byte(client.Key.Reveal()))
		if err != nil {
			id.err = fmt.Errorf("the client certificate %q: %w", name, err)
			return id
		}
		// It is presented to every server that asks, whatever authorities the server names.
		id.config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return id
}

func (id *tlsIdentity) forEndpoint() *endpointTLS {
	e := &endpointTLS{tlsIdentity: id}
	var mesh []string
	if id.believes != "" {
		mesh = []string{model.MeshProtocol}
	}
	with := func(protocols ...string) *tls.Config {
		c := id.config.Clone()
		c.NextProtos = append(mesh[:len(mesh):len(mesh)], protocols...)
		if id.none() { // a resumed session would prove again what was proved when it began
			c.ClientSessionCache = tls.NewLRUClientSessionCache(sessions)
		}
		return c
	}
	e.http1, e.http2, e.relay = with("http/1.1"), with("h2"), with()
	if mesh != nil {
		e.relay = with(model.MeshWord)
	}
	return e
}

func (id *tlsIdentity) failure(address string, reason TLSReason, err error) error {
	return &TLSError{Address: address, ServerName: id.serverName, Reason: reason, Err: err}
}

// verifier checks the chain against roots (nil: the system's) and that the leaf carries one of names.
func verifier(roots *x509.CertPool, names []string) func(tls.ConnectionState) error {
	return func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return errors.New("no certificate")
		}
		leaf := cs.PeerCertificates[0]
		opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range cs.PeerCertificates[1:] {
			opts.Intermediates.AddCert(c)
		}
		if _, err := leaf.Verify(opts); err != nil {
			return err
		}
		for _, name := range names {
			if carries(leaf, name) {
				return nil
			}
		}
		return &nameError{leaf, names}
	}
}

// carries is true if the certificate has the name: a URI (anything with a colon) exactly; a DNS name, also by a
// wildcard of the certificate; "*.suffix" by the same wildcard, or by a name with one label more than the suffix. The
// subject's common name does not count.
func carries(leaf *x509.Certificate, name string) bool {
	if strings.Contains(name, ":") {
		for _, u := range leaf.URIs {
			if u.String() == name {
				return true
			}
		}
		return false
	}
	suffix, wildcard := strings.CutPrefix(name, "*.")
	if !wildcard {
		return leaf.VerifyHostname(name) == nil
	}
	for _, dns := range leaf.DNSNames {
		if _, parent, ok := strings.Cut(dns, "."); ok && strings.EqualFold(parent, suffix) {
			return true
		}
	}
	return false
}

// nameError lists the names of a certificate and the wanted ones.
type nameError struct {
	leaf *x509.Certificate
	want []string
}

func (e *nameError) Error() string {
	have := append([]string(nil), e.leaf.DNSNames...)
	for _, u := range e.leaf.URIs {
		have = append(have, u.String())
	}
	return fmt.Sprintf("the certificate is for %q, wanted is one of %q", have, e.want)
}

// tlsReason names why a handshake failed.
func tlsReason(err error) TLSReason {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		names     *nameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		op        *net.OpError
		timeout   net.Error
	)
	if reason := certificateReason(err); reason != "" {
		return reason
	}
	switch {
	case errors.As(err, &authority):
		return TLSUnknownAuthority
	case errors.As(err, &host), errors.As(err, &names):
		return TLSWrongName
	case errors.As(err, &invalid):
		if invalid.Reason == x509.Expired {
			return TLSExpired
		}
		return TLSBadCertificate
	case errors.As(err, &verify):
		return TLSBadCertificate
	case errors.As(err, &record):
		return TLSNotTLS
	case errors.As(err, &op) && op.Op == "remote error": // how crypto/tls marks an alert
		return TLSRefused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return TLSTimedOut
	}
	return TLSFailed
}
