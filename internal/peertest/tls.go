package peertest

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// TLS is what makes backends of the tests speak TLS.
type TLS struct {
	Config    *tls.Config
	Authority string
}

// NewTLS is for one version of TLS.
func NewTLS(t testing.TB, version uint16) *TLS {
	t.Helper()
	a := NewAuthority(t)
	chain, key := a.Issue(t, "backend.example")
	pair, err := tls.X509KeyPair([]byte(chain), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return &TLS{
		Config: &tls.Config{
			Certificates: []tls.Certificate{pair}, MinVersion: version, MaxVersion: version, DynamicRecordSizingDisabled: true,
			NextProtos: []string{"h2", "http/1.1"},
		},
		Authority: a.PEM,
	}
}

// Serve is f for connections over TLS. It works on nil, which is cleartext.
func (b *TLS) Serve(f func(net.Conn)) func(net.Conn) {
	if b == nil {
		return f
	}
	return func(c net.Conn) {
		tc := tls.Server(c, b.Config)
		if tc.Handshake() == nil {
			f(tc)
		}
	}
}

// Reach has the service spoken to over TLS. It works on nil.
func (b *TLS) Reach(s *model.Service) {
	if b != nil {
		s.TLS = &model.ServiceTLS{Hostname: "backend.example", CAs: b.Authority}
	}
}

// OverTLS is the configuration with its first service over TLS.
func (b *TLS) OverTLS(cfg *model.Config) *model.Config {
	b.Reach(&cfg.Services[0])
	return cfg
}
