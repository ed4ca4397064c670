package proxy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

// pod is the workload in front of which the listeners of these tests stand.
var pod = model.Workload{Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "cart-1"}, Groups: []model.Group{{Kind: "Deployment", Name: "cart"}}}

// letting is a policy that lets a ServiceAccount of the namespace shop reach the pod.
func letting(account string, traffic model.Traffic) model.Policy {
	return model.Policy{
		Ref:     model.Ref{Kind: "TrafficRole", Namespace: "shop", Name: "r"},
		Targets: []model.Target{{Namespace: "shop", Kind: "Deployment", Name: "cart"}},
		Sources: []model.Source{{Kind: model.KindServiceAccount, Namespace: "shop", Name: account}}, Traffic: traffic,
	}
}

// guard makes the first listener stand in front of the pod.
func guard(cfg *model.Config, w model.Workload, policies ...model.Policy) *model.Config {
	cfg.Listeners[0].Workload, cfg.Listeners[0].WorkloadPort = w.Name(), 8080
	cfg.Workloads, cfg.Policies = []model.Workload{w}, policies
	return cfg
}

// sidecar is a TLS listener with an identity before addresses.
func sidecar(t testing.TB, ca *peertest.Authority, addresses ...string) (*model.Config, *identities, func(*Options)) {
	cfg := toAddresses(addresses...)
	source, with := mutual(t, cfg, ca)
	return cfg, source, with
}

// logging writes the access log into a buffer, which is complete when the returned function has returned.
func logging(t testing.TB) (edit func(*Options), lines func() []map[string]any) {
	var log bytes.Buffer
	access := telemetry.NewAccessLog(&log, telemetry.AccessLogOptions{})
	return func(o *Options) { o.AccessLog = access }, func() (all []map[string]any) {
		if err := access.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for d := json.NewDecoder(&log); d.More(); {
			var line map[string]any
			if err := d.Decode(&line); err != nil {
				t.Fatal(err)
			}
			all = append(all, line)
		}
		return all
	}
}

// sayOver is say over TLS.
func sayOver(t testing.TB, addr string, config *tls.Config, text string) (string, error) {
	t.Helper()
	c := tls.Client(dial(t, addr), config)
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	if err := c.CloseWrite(); err != nil {
		return "", err
	}
	got, err := io.ReadAll(c)
	return string(got), err
}

func TestATLSListenerRelaysWhatIsInside(t *testing.T) {
	const length = 3 << 20
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := toAddresses(rawBackend(t, func(c net.Conn) {
			got, err := io.ReadAll(c) // until the client ends its side
			fmt.Fprintf(c, "%d bytes, %v", len(got), err)
		}))
		pool := secure(t, cfg, "shop.example")
		cfg.Listeners[0].Protocol = model.TLS
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		log, lines := logging(t)
		s := serve(t, cfg, log)
		// A client may offer any protocol: none is chosen.
		config := &tls.Config{ServerName: "shop.example", RootCAs: pool, MaxVersion: version, NextProtos: []string{"postgresql"}}
		got, err := sayOver(t, s.addr(), config, strings.Repeat("x", length))
		if want := fmt.Sprintf("%d bytes, <nil>", length); got != want || err != nil {
			t.Errorf("answer %q, %v, want %q", got, err, want)
		}
		s.stop()
		<-s.ended
		x := s.metrics.Snapshot().Exchanges[0]
		if x.Backend != serviceName || len(x.Reasons) != 0 || x.BytesIn != length {
			t.Errorf("counted %+v, want one connection without a failure", x)
		}
		if total, open := s.metrics.Listener(":80").Connections(); total != 1 || open != 0 {
			t.Errorf("%d connections, %d of them open, want one, closed", total, open)
		}
		if all := lines(); len(all) != 1 || all[0]["protocol"] != "TCP" || all[0]["listener"] != listenerName || all[0]["reason"] != nil {
			t.Errorf("logged %v", all)
		}
	}
}

func TestAFailedHandshakeWithATLSListenerIsTheClientsFault(t *testing.T) {
	ca := peertest.NewAuthority(t)
	cfg, _, with := sidecar(t, ca, echo(t, ""))
	log, lines := logging(t)
	s := serve(t, cfg, with, log)
	var op *net.OpError
	if _, err := tls.Client(dial(t, s.addr()), as()).Read(make([]byte, 1)); !errors.As(err, &op) || op.Op != "remote error" {
		t.Errorf("without a certificate: %v, want an alert", err)
	}
	say(t, s.addr(), "GET / HTTP/1.1\r\n\r\n")
	if n := s.failures(telemetry.ClientTLS); n != 2 {
		t.Errorf("client_tls counted %d times, want twice", n)
	}
	if all := lines(); len(all) != 2 || all[0]["reason"] != "client_tls" || all[1]["reason"] != "client_tls" || all[0]["endpoint"] != nil {
		t.Errorf("logged %v", all)
	}
}

func TestAHandshakeWithATLSListenerHasATimeAndAnEnd(t *testing.T) {
	ca := peertest.NewAuthority(t)
	cfg, _, with := sidecar(t, ca, echo(t, ""))
	s := serve(t, cfg, with, func(o *Options) { o.HandshakeTimeout = 20 * time.Millisecond })
	c := dial(t, s.addr())
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes", n)
	}
	if n := s.failures(telemetry.ClientTLS); n != 1 {
		t.Errorf("client_tls counted %d times, want once", n)
	}
	// The end of a drain ends handshakes, too.
	s = serve(t, cfg, with, func(o *Options) { o.HandshakeTimeout, o.DrainTimeout = time.Hour, 20*time.Millisecond })
	c = dial(t, s.addr())
	until(t, "the handshake does not begin", func() bool { return s.withGoroutine() == 1 })
	s.stop()
	<-s.ended
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
	if s.buffers.Drawn() != 0 {
		t.Errorf("%d bytes are drawn", s.buffers.Drawn())
	}
}

// A panic in a handshake ends its connection alone, and gives back what it held.
func TestAPanicInAHandshakeEndsItsRelay(t *testing.T) {
	ca := peertest.NewAuthority(t)
	cfg, source, with := sidecar(t, ca, echo(t, ""))
	var broken atomic.Bool
	s := serve(t, cfg, with, func(o *Options) {
		o.Identities = func(name string) *spiffe.Identity {
			if broken.Load() {
				panic("broken")
			}
			return source.of(name)
		}
	})
	client := as(ca.Workload(t, shopID, nil))
	broken.Store(true)
	for range 2 * cap(s.handshakes.places) { // none keeps its place at the gate
		if got, err := sayOver(t, s.addr(), client, "x"); err == nil {
			t.Errorf("got %q", got)
		}
	}
	broken.Store(false)
	if got, err := sayOver(t, s.addr(), client, "x"); got != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if n := s.failures(telemetry.Internal); n != uint64(2*cap(s.handshakes.places)) {
		t.Errorf("internal counted %d times", n)
	}
}

func TestAHelloOfATLSListenerIsDrawnFor(t *testing.T) {
	ca := peertest.NewAuthority(t)
	cfg, _, with := sidecar(t, ca, echo(t, ""))
	s := serve(t, cfg, with)
	c := dial(t, s.addr())
	// A ClientHello of 60,000 bytes, of which more than helloFree come.
	c.Write([]byte{22, 3, 1, 0x40, 0, 1, 0, 0xea, 0x60})
	c.Write(make([]byte, 12<<10))
	until(t, "nothing is drawn", func() bool { return s.buffers.Drawn() > 0 })
	c.Close()
	until(t, "it is not given back", func() bool { return s.buffers.Drawn() == 0 })
}

func TestAPROXYHeaderComesBeforeTheHandshake(t *testing.T) {
	cfg := toAddresses(echo(t, "hello "))
	pool := secure(t, cfg, "shop.example")
	cfg.Listeners[0].Protocol = model.TLS
	cfg.Listeners[0].Front = &model.Front{TrustedProxies: []string{"127.0.0.0/8", "::1/128"}, ProxyProtocol: true}
	log, lines := logging(t)
	s := serve(t, cfg, log)
	nc := dial(t, s.addr())
	io.WriteString(nc, "PROXY TCP4 198.51.100.7 203.0.113.1 1234 443\r\n")
	c := tls.Client(nc, &tls.Config{ServerName: "shop.example", RootCAs: pool})
	io.WriteString(c, "x")
	c.CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "hello x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	s.stop()
	<-s.ended
	if all := lines(); len(all) != 1 || all[0]["client"] != "198.51.100.7:1234" {
		t.Errorf("logged %v", all)
	}
}

// TestIdentitiesAreJudgedAcrossTwoProxies has the sidecars of two pods: a client connects to a TCP listener of the first,
// which presents its identity to the TLS listener of the second, which asks the policies of its pod.
func TestIdentitiesAreJudgedAcrossTwoProxies(t *testing.T) {
	var dialled atomic.Int32
	backend := rawBackend(t, func(c net.Conn) {
		dialled.Add(1)
		io.WriteString(c, "hello ")
		io.Copy(c, c)
	})
	ca, foreign := peertest.NewAuthority(t), peertest.NewAuthority(t)
	audited := pod
	audited.Audit = true
	for name, test := range map[string]struct {
		client   tls.Certificate
		w        model.Workload
		policies []model.Policy
		passes   bool
		reason   string // of the second proxy
		access   any
	}{
		"allowed":              {ca.Workload(t, shopID, nil), pod, []model.Policy{letting("shop", model.TrafficTCP)}, true, "", "allowed"},
		"denied":               {ca.Workload(t, shopID, nil), pod, []model.Policy{letting("other", model.TrafficTCP)}, false, "access_denied", "unknown_source"},
		"audited":              {ca.Workload(t, shopID, nil), audited, []model.Policy{letting("other", model.TrafficTCP)}, true, "", "unknown_source"},
		"a workload gone":      {ca.Workload(t, shopID, nil), model.Workload{Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "other"}}, nil, false, "access_denied", "unknown_source"},
		"expired":              {ca.Workload(t, shopID, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), pod, []model.Policy{letting("shop", model.TrafficTCP)}, false, "client_tls", nil},
		"another trust domain": {ca.Workload(t, "spiffe://other.test/ns/shop/sa/shop", nil), pod, []model.Policy{letting("shop", model.TrafficTCP)}, false, "client_tls", nil},
		"another authority":    {foreign.Workload(t, shopID, nil), pod, []model.Policy{letting("shop", model.TrafficTCP)}, false, "client_tls", nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := dialled.Load()
			in, _, with := sidecar(t, ca, backend)
			guard(in, test.w, test.policies...)
			if name == "a workload gone" {
				in.Listeners[0].Workload = pod.Name()
			}
			log, lines := logging(t)
			second := serve(t, in, with, log)

			out := toAddresses(second.addr())
			out.Routes[0].ClientCertificate = workload
			out.Services[0].TLS = &model.ServiceTLS{Hostname: "cart.shop", CAs: workload, SubjectAltNames: []string{cartID}}
			if err := out.Validate(); err != nil {
				t.Fatal(err)
			}
			source := &identities{}
			source.have(t, test.client, ca.Pool())
			first := serve(t, out, func(o *Options) { o.Identities = source.of })
			var got string
			if c, err := net.Dial("tcp", first.addr()); err == nil { // else it was reset before it was known here
				c.SetDeadline(time.Now().Add(patience))
				io.WriteString(c, "world")
				c.(*net.TCPConn).CloseWrite()
				b, _ := io.ReadAll(c)
				got = string(b)
				c.Close()
			}
			if test.passes != (got == "hello world") {
				t.Errorf("got %q", got)
			}
			if n := dialled.Load() - before; test.passes != (n == 1) || n > 1 {
				t.Errorf("%d connections at the backend", n)
			}
			first.stop()
			<-first.ended
			second.stop()
			<-second.ended
			all := lines()
			if len(all) == 0 {
				t.Fatal("nothing is logged")
			}
			line := all[0]
			if reason, _ := line["reason"].(string); reason != test.reason || line["access"] != test.access {
				t.Errorf("logged %v, want reason %q, access %v", line, test.reason, test.access)
			}
			if test.access != nil && line["source"] != shopID {
				t.Errorf("logged %v, want source %s", line, shopID)
			}
		})
	}
}

// A relay offers no protocol: the endpoint may be anything. One of the mesh is told that the client is of the mesh, too.
func TestARelayOverTLSOffersNoProtocolButTheMeshs(t *testing.T) {
	ca := peertest.NewAuthority(t)
	chain := ca.Workload(t, cartID, nil)
	for cas, want := range map[string][]string{workload: {model.MeshProtocol, model.MeshWord}, ca.PEM: nil} {
		offered := make(chan []string, 1)
		addr := rawBackend(t, func(nc net.Conn) {
			c := tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{chain}, ClientAuth: tls.RequireAnyClientCert,
				GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
					offered <- h.SupportedProtos
					return nil, nil
				}})
			io.Copy(c, c)
			c.CloseWrite()
		})
		cfg := toAddresses(addr)
		cfg.Routes[0].ClientCertificate = workload
		cfg.Services[0].TLS = &model.ServiceTLS{Hostname: "cart.shop", CAs: cas, SubjectAltNames: []string{cartID}}
		source := &identities{}
		source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
		s := serve(t, cfg, func(o *Options) { o.Identities = source.of })
		if got := say(t, s.addr(), "query"); got != "query" {
			t.Errorf("got %q", got)
		}
		if p := <-offered; !slices.Equal(p, want) {
			t.Errorf("offered %q, want %q", p, want)
		}
	}
}

// An end that is not one of the client's must not look like one at an endpoint over TLS.
func TestAnAbortedRelayIsResetOverTLS(t *testing.T) {
	ca := peertest.NewAuthority(t)
	chain := ca.Workload(t, cartID, nil)
	ended := make(chan error, 1)
	addr := rawBackend(t, func(nc net.Conn) {
		c := tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{chain}})
		_, err := io.Copy(c, c)
		ended <- err
	})
	cfg := toAddresses(addr)
	cfg.Services[0].TLS = &model.ServiceTLS{Hostname: "cart.shop", CAs: workload, SubjectAltNames: []string{cartID}}
	source := &identities{}
	source.have(t, chain, ca.Pool())
	s := serve(t, cfg, func(o *Options) { o.Identities = source.of })
	c := dial(t, s.addr())
	io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the endpoint sees %v, want a reset", err)
	}
}

// A client that was accepted in cleartext must not reach a listener that has come to ask for an identity.
func TestNobodyIsRelayedUnderOtherDemandsThanHeMet(t *testing.T) {
	ca := peertest.NewAuthority(t)
	var dialled atomic.Int32
	backend := rawBackend(t, func(net.Conn) { dialled.Add(1) })
	cfg, _, with := sidecar(t, ca, backend)
	s := serve(t, toAddresses(backend), with)
	client, other := net.Pipe()
	defer other.Close()
	b := s.binds[0]
	r := &relay{srv: s.Server, bind: b, sock: client, nc: client, limit: time.Minute}
	r.Begin(s.pipe, addressed{client}, 1)
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	r.serve()
	r.Finish()
	if n := s.failures(telemetry.Draining); n != 1 || dialled.Load() != 0 {
		t.Errorf("draining counted %d times, %d connections at the backend", n, dialled.Load())
	}
}

// A client may take its time to read, as far as the stream timeout. The end of what it is sent waits behind the rest.
func TestTheEndOverTLSWaitsForASlowReader(t *testing.T) {
	ca := peertest.NewAuthority(t)
	chain := ca.Workload(t, cartID, nil)
	synctest.Test(t, func(t *testing.T) {
		sock, other := net.Pipe()
		defer sock.Close()
		defer other.Close()
		hc := &handshakeConn{Conn: sock, c: &conn{}}
		server := tls.Server(hc, &tls.Config{Certificates: []tls.Certificate{chain}, SessionTicketsDisabled: true})
		client := tls.Client(other, &tls.Config{InsecureSkipVerify: true})
		go server.Handshake()
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		hc.relayed = true
		r := &relay{sock: sock, nc: server}
		ended := make(chan error, 1)
		go func() { ended <- r.closeWrite() }()
		time.Sleep(time.Minute)
		if n, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%d bytes, %v", n, err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// addressed is a connection of a client with an address.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(198, 51, 100, 7), Port: 1} }

// BenchmarkRelayTLS measures a byte stream through a TLS listener, with the client and the endpoint in the same process.
func BenchmarkRelayTLS(b *testing.B) {
	for _, secured := range []bool{false, true} {
		b.Run(fmt.Sprintf("tls=%t", secured), func(b *testing.B) {
			cfg := toAddresses(rawBackend(b, func(c net.Conn) { io.Copy(io.Discard, c) }))
			var client func(net.Conn) io.WriteCloser = func(c net.Conn) io.WriteCloser { return c }
			if secured {
				pool := secure(b, cfg, "shop.example")
				cfg.Listeners[0].Protocol = model.TLS
				client = func(c net.Conn) io.WriteCloser {
					return tls.Client(c, &tls.Config{ServerName: "shop.example", RootCAs: pool})
				}
			}
			s := serve(b, cfg)
			c := client(dial(b, s.Addrs()[0].Bound.String()))
			buf := make([]byte, 256<<10)
			c.Write(buf)
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
