package proxy

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// protocols are what ALPN offers, by preference. A client that offers only others is refused (RFC 7301 §3.2).
var protocols = []string{"h2", "http/1.1"}

// alpn is what the listeners of a protocol offer; nothing where the client's bytes are not understood. Then what a client
// offers is ignored.
func alpn(p model.Protocol) []string {
	if p.Requests() {
		return protocols
	}
	return nil
}

// offersHTTP reports whether a client offers a version of HTTP that is served.
func offersHTTP(offered []string) bool {
	return slices.ContainsFunc(offered, func(name string) bool { return slices.Contains(protocols, name) })
}

// answers is what a port whose listener has an identity chooses from for a client. It is no version of HTTP for a client
// that offers none, as clients do who do not know what they carry: what it is depends on the port, or it is a connection
// (raw), of which most want a word.
func answers(port *routing.Port, offered []string, raw bool) []string {
	if raw && slices.Contains(offered, model.MeshWord) {
		return []string{model.MeshWord}
	}
	if !offersHTTP(offered) && (port.Detect || slices.Contains(offered, model.MeshProtocol)) {
		return nil
	}
	return alpn(port.Protocol)
}

// certificate is a parsed model.Certificate.
type certificate struct {
	source *model.Certificate
	pair   tls.Certificate
	expiry time.Time // the earliest expiry in the chain
}

func newCertificate(source *model.Certificate) (*certificate, error) {
	pair, err := tls.X509KeyPair([]byte(source.Chain), []byte(source.Key.Reveal()))
	if err != nil {
		return nil, err
	}
	c := &certificate{source: source, pair: pair, expiry: pair.Leaf.NotAfter}
	for _, der := range pair.Certificate[1:] {
		if x, err := x509.ParseCertificate(der); err == nil && x.NotAfter.Before(c.expiry) {
			c.expiry = x.NotAfter
		}
	}
	return c, nil
}

// compileTLS prepares the listeners' certificates and identities, by the listeners' IDs. It does not parse unchanged certificates
// again. A listener gets no configuration if it has no usable certificate or if its demands on client certificates are
// invalid. Connections to such a listener are refused; they do not fall back to a listener with a less specific name.
func (s *Server) compileTLS(cfg *model.Config, snap *snapshot, prev *snapshot) {
	snap.configs, snap.identities = make([]*tls.Config, len(snap.Table.Listeners())), make([]string, len(snap.Table.Listeners()))
	snap.certificates = map[string]*certificate{}
	sources := map[string]*model.Certificate{}
	for i := range cfg.Certificates {
		if name := cfg.Certificates[i].Name; sources[name] == nil {
			sources[name] = &cfg.Certificates[i]
		}
	}
	for _, l := range snap.Table.Listeners() {
		t := l.Listener.TLS
		if !l.Listener.Protocol.TLS() {
			continue
		}
		omit := func(field, format string, args ...any) {
			ref := l.Listener.Ref
			if ref.Field != "" {
				field = ref.Field + "." + field
			}
			ref.Field = field
			snap.left = append(snap.left, model.Omission{Ref: ref, Reason: fmt.Sprintf("listener %s: ", l.Listener.Name) + fmt.Sprintf(format, args...)})
		}
		st := &snap.Listeners[l.ID]
		st.Auth = exchange.ClientAuth{Refused: true}
		if t == nil {
			omit("tls", "it has no certificate, and its connections are refused")
			continue
		}
		if name := t.Identity(); name != "" {
			if s.opt.Identities == nil {
				omit("tls", "%q cannot be presented, and its connections are refused: %v", name, errNoIdentity)
				continue
			}
			snap.identities[l.ID], st.Auth = name, identityAuth(name)
			continue
		}
		var certs []*tls.Certificate
		for _, name := range t.Certificates {
			c, err := snap.certificate(name, sources[name], prev)
			if err != nil {
				omit("tls", "certificate %q cannot be used, and is not presented: %v", name, err)
				continue
			}
			certs = append(certs, &c.pair)
		}
		if len(certs) == 0 {
			omit("tls", "it has no certificate that can be used, and its connections are refused")
			continue
		}
		auth := exchange.ClientAuth{Authorities: t.ClientCAs, Optional: t.ClientOptional && t.ClientCAs != ""}
		config, err := listenerTLS(certs, alpn(l.Listener.Protocol), auth)
		if err != nil {
			omit("tls.clientCAs", "%v, and its connections are refused", err)
			continue
		}
		s.tickets.bind(config, portKey(l.Listener.Address, l.Listener.Port), auth)
		snap.configs[l.ID], st.Auth = config, auth
	}
}

// certificate returns the certificate of that name, and parses it if necessary. It reuses an unchanged certificate. It
// keeps the last good certificate if the new one cannot be used.
func (snap *snapshot) certificate(name string, source *model.Certificate, prev *snapshot) (*certificate, error) {
	if c := snap.certificates[name]; c != nil {
		return c, nil
	}
	if source == nil {
		return nil, errors.New("it does not exist")
	}
	var last *certificate
	if prev != nil {
		last = prev.certificates[name]
	}
	if last != nil && *last.source == *source {
		snap.certificates[name] = last
		return last, nil
	}
	c, err := newCertificate(source)
	switch {
	case err == nil:
	case last != nil:
		c = last
		snap.left = append(snap.left, model.Omission{Ref: model.Ref{Kind: "Certificate", Name: name}, Reason: fmt.Sprintf("%v; the one before it is presented on", err)})
	default:
		return nil, err
	}
	snap.certificates[name] = c
	return c, nil
}

func listenerTLS(certs []*tls.Certificate, alpn []string, auth exchange.ClientAuth) (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		CipherSuites:   upstream.CipherSuites,
		NextProtos:     alpn,
		GetCertificate: newCertificateChoice(certs).get,
	}
	if auth.Authorities == "" {
		return config, nil
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM([]byte(auth.Authorities)) {
		return nil, errors.New("the bundle of client authorities holds no certificate")
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if auth.Optional {
		config.ClientAuth = tls.RequestClientCert
	}
	return config, nil
}

// tickets lets clients resume sessions. The keys belong to the server, so sessions outlive changes of configuration and
// of certificates. The keys change every day. No key lives longer than a week, or longer than the process.
//
// A session is valid only where it began: on the same port, under the same server name, with the same demands on the
// client's certificate. Otherwise a client could reach a listener whose certificate it never saw. Or it could be
// admitted where its own certificate was never checked (RFC 6066 §3, RFC 8446 §4.6.1).
type tickets struct {
	keys *tls.Config // rotates the keys
}

// bind restricts the sessions of the configuration to this port and these demands. config is that of a listener on the
// port.
func (t *tickets) bind(config *tls.Config, port string, auth exchange.ClientAuth) {
	asks := sha256.Sum256(fmt.Appendf(nil, "%s %t %s", port, auth.Optional, auth.Authorities))
	place := func(cs tls.ConnectionState) []byte {
		sum := sha256.Sum256(append(asks[:len(asks):len(asks)], lowerHost(cs.ServerName)...))
		return sum[:]
	}
	config.WrapSession = func(cs tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		session.Extra = [][]byte{place(cs)}
		return t.keys.EncryptTicket(cs, session)
	}
	config.UnwrapSession = func(ticket []byte, cs tls.ConnectionState) (*tls.SessionState, error) {
		session, err := t.keys.DecryptTicket(ticket, cs)
		if session == nil || len(session.Extra) != 1 || !bytes.Equal(session.Extra[0], place(cs)) {
			return nil, err // a full handshake follows
		}
		return session, nil
	}
}

// certificateChoice finds the certificate for a name: one with exactly that name, else one with a matching wildcard,
// else the first. Among several, it prefers those that fit the client's algorithms, then the order of the listener
// decides.
type certificateChoice struct {
	all   []*tls.Certificate
	names map[string][]*tls.Certificate // exact names and "*.suffix"
}

func newCertificateChoice(certs []*tls.Certificate) *certificateChoice {
	c := &certificateChoice{all: certs, names: map[string][]*tls.Certificate{}}
	for _, cert := range certs {
		if cert.Leaf == nil {
			continue
		}
		names := cert.Leaf.DNSNames
		if len(names) == 0 && cert.Leaf.Subject.CommonName != "" {
			names = []string{cert.Leaf.Subject.CommonName}
		}
		for _, n := range names {
			n = strings.ToLower(n)
			c.names[n] = append(c.names[n], cert)
		}
	}
	return c
}

func (c *certificateChoice) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := lowerHost(hello.ServerName)
	if cert := fitting(c.names[name], hello); cert != nil {
		return cert, nil
	}
	if _, suffix, ok := strings.Cut(name, "."); ok {
		if cert := fitting(c.names["*."+suffix], hello); cert != nil {
			return cert, nil
		}
	}
	// No certificate has the host's name: take the first that the client can use, whatever its name.
	unnamed := *hello
	unnamed.ServerName = ""
	if cert := fitting(c.all, &unnamed); cert != nil {
		return cert, nil
	}
	return c.all[0], nil
}

func fitting(certs []*tls.Certificate, hello *tls.ClientHelloInfo) *tls.Certificate {
	for _, cert := range certs {
		if hello.SupportsCertificate(cert) == nil {
			return cert
		}
	}
	return nil
}

// lowerHost is a host in the form that routing compares: lower case, without the trailing dot.
func lowerHost(host string) string {
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// portTLS is the TLS configuration of a port. Each handshake takes the configuration of the listener that the server
// name selects in the current snapshot.
func (s *Server) portTLS(b *bind) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		CipherSuites: upstream.CipherSuites,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			hc, ok := hello.Conn.(*handshakeConn)
			var to netip.AddrPort
			if ok {
				to = hc.c.to
			}
			snap, port := b.serving(to)
			if port == nil || !port.Protocol.TLS() {
				return nil, errPortGone
			}
			l := port.Listener(lowerHost(hello.ServerName))
			if l == nil {
				l = port.Listeners[0]
			}
			if ok {
				hc.auth, hc.listener = snap.Listeners[l.ID].Auth, l.Listener.Name
			}
			if name := snap.identities[l.ID]; name != "" && ok {
				hc.raw = port.Connections() && !(port.Detect && offersHTTP(hello.SupportedProtos))
				return s.identityTLS(name, answers(port, hello.SupportedProtos, hc.raw), &hc.proved)
			}
			config := snap.configs[l.ID]
			if config == nil {
				return nil, errNotServed
			}
			return config, nil
		},
	}
}

var (
	errPortGone  = errors.New("the port is being closed")
	errNotServed = errors.New("the listener's certificates cannot be used")
)

// expiries reports the certificates in use.
func (s *Server) expiries(yield func(telemetry.Certificate)) {
	snap := s.state.Load()
	if snap == nil {
		return
	}
	for name, c := range snap.certificates {
		yield(telemetry.Certificate{Name: name, Expiry: c.expiry})
	}
	s.identityExpiries(snap, yield)
}
