package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

// TestAConnectionThatASidecarCannotDeliverGoesElsewhere: an application has ended, and its sidecar has not.
func TestAConnectionThatASidecarCannotDeliverGoesElsewhere(t *testing.T) {
	s := newMeshedTo(t, [2]string{peertest.Refusing(t), echo(t, "up")}, toAddresses, http1s, func(o *Options) { o.Upstream.EjectAfter = -1 })
	for i := range 20 {
		text := []string{"", "!"}[i%2] // the application speaks first, or the client
		if got := say(t, s.addr(), text); got != "up"+text {
			t.Fatalf("connection %d: got %q", i, got)
		}
	}
	if n := s.failures(telemetry.ConnectFailed) + s.failures(telemetry.BackendReset); n != 0 {
		t.Errorf("%d connections failed", n)
	}
}

// saying is a server with cartID which says what it is told to, to clients that want a word, and to others nothing. It counts
// those who come.
func saying(t *testing.T, chain tls.Certificate, words string, came *atomic.Int32) string {
	return rawBackend(t, func(nc net.Conn) {
		came.Add(1)
		c := tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{chain}, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{model.MeshWord}})
		if c.Handshake() != nil {
			return
		}
		io.WriteString(c, words)
		if words != "" && words[0] == model.WordThere {
			io.Copy(c, c)
		}
		c.CloseWrite()
	})
}

func TestWhatBecomesOfAConnectionByItsWord(t *testing.T) {
	ca := peertest.NewAuthority(t)
	chain := ca.Workload(t, cartID, nil)
	source := &identities{}
	source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
	for words, want := range map[string]struct {
		asked  int32
		reason telemetry.Reason
	}{
		"+": {1, ""}, "-": {2, telemetry.ConnectFailed}, "!": {1, telemetry.BackendReset}, "?": {1, telemetry.BackendReset}, "": {2, telemetry.BackendTLS},
	} {
		var came atomic.Int32
		cfg := toAddresses(saying(t, chain, words, &came), saying(t, chain, words, &came))
		cfg.Routes[0].ClientCertificate = workload
		cfg.Services[0].TLS = &model.ServiceTLS{Hostname: "cart.shop", CAs: workload, SubjectAltNames: []string{cartID}}
		s := serve(t, cfg, func(o *Options) { o.Identities = source.of })
		c, err := dialled(t, s.addr())
		var got []byte
		if err == nil {
			io.WriteString(c, "hello")
			c.(*net.TCPConn).CloseWrite()
			got, err = io.ReadAll(c)
		}
		if want.reason == "" && (string(got) != "hello" || err != nil) || want.reason != "" && (len(got) > 0 || err == nil) {
			t.Errorf("%q: got %q, %v", words, got, err)
		}
		if n := came.Load(); n != want.asked {
			t.Errorf("%q: %d endpoints were asked, want %d", words, n, want.asked)
		}
		if n := s.failures(want.reason); want.reason != "" && n != 1 {
			t.Errorf("%q: %s was counted %d times, want once", words, want.reason, n)
		}
	}
}

// TestWhoHearsAWord: clients that ask for it. Those of before are served as before.
func TestWhoHearsAWord(t *testing.T) {
	ca := peertest.NewAuthority(t)
	for want, app := range map[string]string{"+hello": echo(t, ""), "-": peertest.Refusing(t), "!": echo(t, "")} {
		cfg := toAddresses(app)
		_, with := mutual(t, cfg, ca)
		if want == "!" {
			guard(cfg, pod, letting("other", model.TrafficTCP))
		}
		s := serve(t, cfg, with)
		for _, word := range []bool{true, false} {
			config := as(ca.Workload(t, shopID, nil))
			config.NextProtos = []string{model.MeshProtocol}
			want := want
			if word {
				config.NextProtos = append(config.NextProtos, model.MeshWord)
			} else {
				want = want[1:]
			}
			c := tls.Client(dial(t, s.addr()), config)
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(want, "hello") {
				io.WriteString(c, "hello")
				c.CloseWrite()
			}
			got, err := io.ReadAll(c)
			if string(got) != want || word && err != nil {
				t.Errorf("word %t: got %q, %v, want %q", word, got, err, want)
			}
		}
	}
}
