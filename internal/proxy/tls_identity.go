package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/telemetry"
)

var (
	errNoIdentity = errors.New("this process has no identity")
	errNotYet     = errors.New("there is no certificate yet for the listener's identity")
)

// identity returns the identity of a name as it is now, nil if there is none.
func (s *Server) identity(name string) *spiffe.Identity {
	if s.opt.Identities == nil {
		return nil
	}
	return s.opt.Identities(name)
}

// proof is what a client proved in a handshake with a listener that has an identity.
type proof struct {
	leaf *x509.Certificate
	id   spiffe.ID
}

// identityTLS is the configuration of one handshake with a listener that has an identity. It presents the certificate,
// and checks the client's against the roots, that the source has at this moment. There are no session tickets: a resumed
// session would prove again what was proved when it began, by a certificate and roots that may be gone. alpn are the
// protocols that the listener offers.
func (s *Server) identityTLS(name string, alpn []string, proved *proof) (*tls.Config, error) {
	own := s.identity(name)
	if own == nil {
		return nil, errNotYet
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             alpn,
		Certificates:           []tls.Certificate{*own.Certificate},
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		// Unlike VerifyPeerCertificate, it would run for resumed sessions, too.
		VerifyConnection: func(cs tls.ConnectionState) (err error) {
			proved.id, err = own.Verify(cs.PeerCertificates, x509.ExtKeyUsageClientAuth)
			if err == nil {
				proved.leaf = cs.PeerCertificates[0]
			}
			return err
		},
	}, nil
}

// identityAuth is what a listener with an identity requires.
func identityAuth(name string) exchange.ClientAuth { return exchange.ClientAuth{Identity: name} }

// identityExpiries reports the certificates of the identities that listeners present.
func (s *Server) identityExpiries(snap *snapshot, yield func(telemetry.Certificate)) {
	told := map[string]bool{}
	for _, name := range snap.identities {
		if name == "" || told[name] {
			continue
		}
		told[name] = true
		if own := s.identity(name); own != nil {
			yield(telemetry.Certificate{Name: name, Expiry: own.Certificate.Leaf.NotAfter})
		}
	}
}
