package peertest

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// ToTLS is a service at mirror.example.
func ToTLS(t *testing.T, http2 bool, handler http.HandlerFunc) model.Service {
	t.Helper()
	a := NewAuthority(t)
	chain, key := a.Issue(t, "mirror.example")
	cert, err := tls.X509KeyPair([]byte(chain), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.EnableHTTP2 = http2
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	to := ToMirror(s.Listener.Addr().String())
	to.TLS = &model.ServiceTLS{Hostname: "mirror.example", CAs: a.PEM}
	return to
}

// H2CBackend runs h as a server of HTTP/2 with prior knowledge.
func H2CBackend(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// ToHTTP2 is the mirror at the addresses, over HTTP/2 with prior knowledge.
func ToHTTP2(addresses ...string) model.Service { return Service(MirrorName, model.H2C, addresses...) }

// ToMirror is the mirror at the addresses, over HTTP/1.1.
func ToMirror(addresses ...string) model.Service {
	return Service(MirrorName, model.HTTP, addresses...)
}

// MirrorName is the service that copies go to.
const MirrorName = "default/mirror:80"
