package proxy

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// twoKeys has an HTTPS listener with an ECDSA and an RSA certificate for the same name.
func twoKeys(t testing.TB) *model.Config {
	t.Helper()
	cfg := plain("127.0.0.1:1")
	a := peertest.NewAuthority(t)
	priv, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecdsaChain, ecdsaKey := a.Issue(t, "shop.example")
	rsaChain, rsaKey := a.IssueFor(t, priv, "shop.example")
	cfg.Certificates = []model.Certificate{
		{Name: "default/ecdsa", Chain: ecdsaChain, Key: model.Secret(ecdsaKey)}, {Name: "default/rsa", Chain: rsaChain, Key: model.Secret(rsaKey)},
	}
	cfg.Listeners[0].Protocol = model.HTTPS
	cfg.Listeners[0].TLS = &model.ListenerTLS{Certificates: []string{"default/ecdsa", "default/rsa"}}
	return cfg
}

// shake tries a handshake.
func shake(t testing.TB, addr string, c *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	c.ServerName, c.InsecureSkipVerify = "shop.example", true
	conn := tls.Client(dial(t, addr), c)
	defer conn.Close()
	err := conn.Handshake()
	return conn.ConnectionState(), err
}

func TestOnlyCurrentTLSIsSpoken(t *testing.T) {
	// Environment variables that weaken the library's defaults change nothing.
	t.Setenv("GODEBUG", "tls10server=1,tlsrsakex=1,tls3des=1,tlssha1=1")
	s := serve(t, twoKeys(t))
	for version := uint16(tls.VersionTLS10); version <= tls.VersionTLS13; version++ {
		_, err := shake(t, s.addr(), &tls.Config{MinVersion: version, MaxVersion: version})
		if want := version >= tls.VersionTLS12; (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if !slices.Contains(suite.SupportedVersions, tls.VersionTLS12) {
			continue
		}
		cs, err := shake(t, s.addr(), &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite.ID}})
		if want := slices.Contains(upstream.CipherSuites, suite.ID); (err == nil) != want || want && cs.CipherSuite != suite.ID {
			t.Errorf("%s: %v", suite.Name, err)
		}
	}
	for _, curve := range []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521} {
		if _, err := shake(t, s.addr(), &tls.Config{CurvePreferences: []tls.CurveID{curve}}); err != nil {
			t.Errorf("%s: %v", curve, err)
		}
	}
	if cs, err := shake(t, s.addr(), &tls.Config{}); err != nil || cs.Version != tls.VersionTLS13 || cs.CurveID != tls.X25519MLKEM768 {
		t.Errorf("by default %s with %s, %v", tls.VersionName(cs.Version), cs.CurveID, err)
	}
}

func TestProtocolIsNegotiated(t *testing.T) {
	s := serve(t, twoKeys(t))
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, test := range []struct {
			offer []string
			want  string
		}{
			{[]string{"http/1.1", "h2"}, "h2"}, {[]string{"http/1.1"}, "http/1.1"}, {[]string{"h3", "http/1.1"}, "http/1.1"}, {nil, ""},
		} {
			cs, err := shake(t, s.addr(), &tls.Config{MaxVersion: version, NextProtos: test.offer})
			if err != nil || cs.NegotiatedProtocol != test.want {
				t.Errorf("%s, %v: %q, %v", tls.VersionName(version), test.offer, cs.NegotiatedProtocol, err)
			}
		}
		_, err := shake(t, s.addr(), &tls.Config{MaxVersion: version, NextProtos: []string{"h3", "http/1.0"}})
		var op *net.OpError
		if !errors.As(err, &op) || op.Err.Error() != "tls: no application protocol" {
			t.Errorf("%s: protocols that nobody shares: %v", tls.VersionName(version), err)
		}
	}
}

func TestHandshakeIsBounded(t *testing.T) {
	s := serve(t, twoKeys(t), func(o *Options) { o.HandshakeTimeout = 50 * time.Millisecond })
	c := dial(t, s.addr())
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes", n)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Error("the connection stays open")
	}
}

func TestOversizeHelloIsRefused(t *testing.T) {
	s := serve(t, twoKeys(t))
	c := dial(t, s.addr())
	const size = 1 << 20
	// A handshake message of that length (RFC 8446 §4), in records of 16 KiB.
	hello := append([]byte{1, size >> 16, size >> 8 & 0xff, size & 0xff}, make([]byte, size)...)
	for len(hello) > 0 {
		n := min(len(hello), 16<<10)
		if _, err := c.Write(append([]byte{22, 3, 1, byte(n >> 8), byte(n)}, hello[:n]...)); err != nil {
			break // the proxy has read enough
		}
		hello = hello[n:]
	}
	io.Copy(io.Discard, c)
	if n := s.failures(telemetry.ClientTLS); n != 1 {
		t.Errorf("%d handshakes failed", n)
	}
}

func TestHandshakeGateLetsNobodyPastItsBounds(t *testing.T) {
	g := newHandshakeGate(1, 1)
	soon := func() time.Time { return time.Now().Add(patience) }
	if err := g.enter(soon(), true); err != nil {
		t.Fatal(err)
	}
	entered := make(chan error, 2)
	go func() { entered <- g.enter(soon(), true) }()
	for len(g.line) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := g.enter(soon(), true); err != errHandshakeLine {
		t.Errorf("a newcomer beyond the line: %v", err)
	}
	if err := g.enter(time.Now(), false); err != errHandshakeTime {
		t.Errorf("one that has begun, out of time: %v", err)
	}
	go func() { entered <- g.enter(soon(), false) }()
	for range 2 {
		g.leave()
		if err := <-entered; err != nil {
			t.Error(err)
		}
	}
	if g.leave(); len(g.places) != 0 || len(g.line) != 0 {
		t.Errorf("%d places and %d in line are left", len(g.places), len(g.line))
	}
}

func TestSlowHandshakesTakeNoPlace(t *testing.T) {
	t.Parallel()
	s := serve(t, twoKeys(t))
	for range cap(s.handshakes.places) - 1 {
		s.handshakes.places <- struct{}{}
	}
	for range 20 {
		// The beginning of a record, and nothing else.
		if _, err := dial(t, s.addr()).Write([]byte{22, 3, 1, 2, 0, 1}); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		if _, err := shake(t, s.addr(), &tls.Config{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHandshakesBeyondTheLineAreClosed(t *testing.T) {
	s := serve(t, twoKeys(t), func(o *Options) { o.MaxHandshakes = 1 })
	for range cap(s.handshakes.places) {
		s.handshakes.places <- struct{}{}
	}
	waiting := make(chan error, 1)
	first := tls.Client(dial(t, s.addr()), &tls.Config{InsecureSkipVerify: true})
	go func() { waiting <- first.Handshake() }()
	for len(s.handshakes.line) == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		if _, err := shake(t, s.addr(), &tls.Config{}); err == nil {
			t.Error("a handshake beyond the line succeeded")
		}
	}
	<-s.handshakes.places
	if err := <-waiting; err != nil {
		t.Errorf("the one in line: %v", err)
	}
	if n := s.failures(telemetry.Overload); n != 3 {
		t.Errorf("%d were counted", n)
	}
	for range cap(s.handshakes.places) - 1 {
		<-s.handshakes.places
	}
	if len(s.handshakes.places) != 0 {
		t.Error("a place was not given back")
	}
}
