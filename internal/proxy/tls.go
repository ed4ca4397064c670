package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// clientAuth is what a listener asks of a client's certificate. Connections that were let in under another one must not reach the
// listener.
type clientAuth struct {
	authorities string // PEM; empty asks for nothing
	optional    bool
}

// compileTLS prepares the listeners' certificates, by the listeners' IDs. A listener that did not change keeps its old state.
func compileTLS(cfg *model.Config, table *routing.Table, prev *snapshot) ([]listenerState, error) {
	states := make([]listenerState, len(table.Listeners()))
	pairs := map[string]*tls.Certificate{}
	certificates := map[string]*model.Certificate{}
	for i := range cfg.Certificates {
		certificates[cfg.Certificates[i].Name] = &cfg.Certificates[i]
	}
	for _, l := range table.Listeners() {
		t := l.Listener.TLS
		if t == nil {
			continue
		}
		st := &states[l.ID]
		st.auth = clientAuth{authorities: t.ClientCAs, optional: t.ClientOptional && t.ClientCAs != ""}
		var certs []*tls.Certificate
		for _, name := range t.Certificates {
			if pairs[name] == nil {
				c := certificates[name]
				if c == nil {
					return nil, fmt.Errorf("listener %s: certificate %q does not exist", l.Listener.Name, name)
				}
				pair, err := tls.X509KeyPair([]byte(c.Chain), []byte(c.Key.Reveal()))
				if err != nil {
					return nil, fmt.Errorf("listener %s: certificate %q cannot be used: %w", l.Listener.Name, name, err)
				}
				pairs[name] = &pair
			}
			certs = append(certs, pairs[name])
		}
		if len(certs) == 0 {
			return nil, fmt.Errorf("listener %s: it has no certificate", l.Listener.Name)
		}
		config, err := listenerTLS(certs, st.auth)
		if err != nil {
			return nil, fmt.Errorf("listener %s: %w", l.Listener.Name, err)
		}
		st.config = config
	}
	return states, nil
}

func listenerTLS(certs []*tls.Certificate, auth clientAuth) (*tls.Config, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
	}
	choice := newCertificateChoice(certs)
	config.GetCertificate = choice.get
	if auth.authorities == "" {
		return config, nil
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM([]byte(auth.authorities)) {
		return nil, errors.New("the bundle of client authorities holds no certificate")
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if auth.optional {
		config.ClientAuth = tls.RequestClientCert
	}
	// A resumed session would carry a client's identity over from another configuration.
	config.SessionTicketsDisabled = true
	return config, nil
}

// certificateChoice finds the certificate for a name: one that names it exactly, else by wildcard, else the first. Of several those are
// preferred that the client's algorithms fit, then the order of the listener decides.
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
	// Nothing names the host: the first that the client can use at all, whatever its name.
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

// lowerHost is a host in the form routing compares: lower case, without the root's dot.
func lowerHost(host string) string {
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// handshakeConn carries what the choice of a listener's configuration decided out of the handshake.
type handshakeConn struct {
	net.Conn
	c    *conn
	auth clientAuth
}

// Write goes on with what a deadline cut short, where the client is to have more time: TLS could not.
func (h *handshakeConn) Write(p []byte) (n int, err error) {
	for {
		m, err := h.Conn.Write(p[n:])
		if n += m; err == nil || !h.c.sending || !h.c.moreTime(err) {
			return n, err
		}
	}
}

// portTLS is the configuration of a port: each handshake takes that of the listener which the name selects in the snapshot of the moment.
func (s *Server) portTLS(b *bind) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			snap, port := b.snapshot()
			if !port.TLS {
				return nil, errPortGone
			}
			l := port.Listener(lowerHost(hello.ServerName))
			if l == nil {
				l = port.Listeners[0]
			}
			st := &snap.listeners[l.ID]
			if hc, ok := hello.Conn.(*handshakeConn); ok {
				hc.auth = st.auth
			}
			return st.config, nil
		},
	}
}

var errPortGone = errors.New("the port is being closed")
