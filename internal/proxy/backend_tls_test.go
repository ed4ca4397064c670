package proxy

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// backendTLS is what makes backends of the tests speak TLS.
type backendTLS struct {
	config    *tls.Config
	authority string
}

// newBackendTLS is for one version of TLS.
func newBackendTLS(t testing.TB, version uint16) *backendTLS {
	t.Helper()
	a := newAuthority(t)
	chain, key := a.issue(t, "backend.example")
	pair, err := tls.X509KeyPair([]byte(chain), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return &backendTLS{
		config: &tls.Config{
			Certificates: []tls.Certificate{pair}, MinVersion: version, MaxVersion: version, DynamicRecordSizingDisabled: true,
			NextProtos: []string{"h2", "http/1.1"},
		},
		authority: a.pem,
	}
}

// serve is f for connections over TLS. It works on nil, which is cleartext.
func (b *backendTLS) serve(f func(net.Conn)) func(net.Conn) {
	if b == nil {
		return f
	}
	return func(c net.Conn) {
		tc := tls.Server(c, b.config)
		if tc.Handshake() == nil {
			f(tc)
		}
	}
}

// reach has the service spoken to over TLS. It works on nil.
func (b *backendTLS) reach(s *model.Service) {
	if b != nil {
		s.TLS = &model.ServiceTLS{Hostname: "backend.example", CAs: b.authority}
	}
}

// overTLS is the configuration with its first service over TLS.
func (b *backendTLS) overTLS(cfg *model.Config) *model.Config {
	b.reach(&cfg.Services[0])
	return cfg
}

func BenchmarkExchangeTLSBackend(b *testing.B) {
	for name, test := range map[string]struct {
		version uint16
		size    int
		records int
	}{
		"TLS 1.3": {tls.VersionTLS13, 1 << 10, 1}, "TLS 1.2": {tls.VersionTLS12, 1 << 10, 1},
		"two records": {tls.VersionTLS13, 1 << 10, 2}, "8 KiB": {tls.VersionTLS13, 8 << 10, 1}, "100 KiB": {tls.VersionTLS13, 100 << 10, 1},
	} {
		b.Run(name, func(b *testing.B) {
			side := newBackendTLS(b, test.version)
			response := cannedResponse(test.size)
			s := serve(b, side.overTLS(plain(rawBackend(b, side.serve(answering(response, test.records))))))
			benchExchange(b, s, benchRequest, tcpDialer(s))
		})
	}
}

// answering answers every request (without a body) with the same bytes in so many writes, allocating nothing.
func answering(response []byte, writes int) func(net.Conn) {
	return func(c net.Conn) {
		buf := make([]byte, 16<<10)
		n := 0
		for {
			m, err := c.Read(buf[n:])
			if err != nil {
				return
			}
			n += m
			for {
				end := bytes.Index(buf[:n], []byte("\r\n\r\n"))
				if end < 0 {
					break
				}
				n = copy(buf, buf[end+4:n])
				for i := range writes {
					if _, err := c.Write(response[i*len(response)/writes : (i+1)*len(response)/writes]); err != nil {
						return
					}
				}
			}
		}
	}
}
