package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/socket"
)

// permissive is a port that serves clients with an identity and clients without TLS. The backend says hello.
func permissive(t *testing.T) (*model.Config, *peertest.Authority, func(*Options)) {
	cfg := plain(backend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	ca := peertest.NewAuthority(t)
	_, with := mutual(t, cfg, ca)
	cfg.Listeners[0].TLS.Plain = true
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return cfg, ca, with
}

// h2Plain sends a request over a new connection of HTTP/2 in cleartext.
func h2Plain(t *testing.T, addr string) (*http.Response, error) {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return (&http.Client{Transport: tr, Timeout: patience}).Get("http://" + addr + "/")
}

const getAndStay = "GET / HTTP/1.1\r\nHost: cart.shop\r\n\r\n"

func TestAPortServesCleartextBesideIdentities(t *testing.T) {
	cfg, ca, with := permissive(t)
	s := serve(t, cfg, with)
	client := as(ca.Workload(t, shopID, nil))
	if _, err := getOver(t, s.addr(), client); err != nil {
		t.Errorf("TLS: %v", err)
	}
	k := newTalk(t, s.addr())
	for range 2 {
		k.send(getAndStay)
		if resp, body := k.answer("GET"); resp.StatusCode != 200 || body != "hello" {
			t.Errorf("HTTP/1.1: %d %q", resp.StatusCode, body)
		}
	}
	resp, err := h2Plain(t, s.addr())
	if err != nil {
		t.Fatalf("HTTP/2: %v", err)
	}
	if resp.Body.Close(); resp.StatusCode != 200 || resp.ProtoMajor != 2 {
		t.Errorf("HTTP/2: %s %s", resp.Status, resp.Proto)
	}
	over2 := client.Clone()
	over2.NextProtos = []string{"h2"}
	tr := &http.Transport{TLSClientConfig: over2, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	resp, err = (&http.Client{Transport: tr, Timeout: patience}).Get("https://" + s.addr() + "/")
	if err != nil {
		t.Fatalf("HTTP/2 over TLS: %v", err)
	}
	if resp.Body.Close(); resp.StatusCode != 200 || resp.ProtoMajor != 2 {
		t.Errorf("HTTP/2 over TLS: %s %s", resp.Status, resp.Proto)
	}
	for name, config := range map[string]*tls.Config{"no certificate": as(), "a foreign authority": as(peertest.NewAuthority(t).Workload(t, shopID, nil))} {
		var op *net.OpError
		if _, err := getOver(t, s.addr(), config); !errors.As(err, &op) || op.Op != "remote error" {
			t.Errorf("%s: %v, want an alert", name, err)
		}
	}
}

// bytewise writes each byte by itself.
type bytewise struct{ net.Conn }

func (p bytewise) Write(b []byte) (int, error) {
	for i := range b {
		if _, err := p.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// TestTLSMayBeginLateAndInPieces has a connection that was parked before its client began TLS, and one whose first record
// comes byte by byte.
func TestTLSMayBeginLateAndInPieces(t *testing.T) {
	cfg, ca, with := permissive(t)
	s := serve(t, cfg, with)
	client := as(ca.Workload(t, shopID, nil))
	request := func(nc net.Conn) error {
		c := tls.Client(nc, client)
		if _, err := io.WriteString(c, getAndStay); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && resp.StatusCode != 200 {
			err = errors.New(resp.Status)
		}
		return err
	}
	if err := request(bytewise{dial(t, s.addr())}); err != nil {
		t.Errorf("in pieces: %v", err)
	}
	late := dial(t, s.addr())
	until(t, "the connection is accepted", func() bool { return s.connections.Load() == 2 })
	if socket.CanPoll {
		until(t, "the connection is not parked", func() bool { return s.withGoroutine() == 0 })
	}
	if err := request(late); err != nil {
		t.Errorf("late: %v", err)
	}
}

// TestWhatOnlyBeginsLikeTLSIsRefused sends what is no handshake.
func TestWhatOnlyBeginsLikeTLSIsRefused(t *testing.T) {
	cfg, ca, with := permissive(t)
	s := serve(t, cfg, with, func(o *Options) { o.HandshakeTimeout = 100 * time.Millisecond })
	for name, bytes := range map[string]string{
		"a byte": "\x16", "no record": "\x16GET / HTTP/1.1\r\n\r\n", "no hello": "\x16\x03\x01\x00\x04\x01\x00\x00\x00",
		"a hello and more": string(helloOf(t, as(ca.Workload(t, shopID, nil)))) + getAndStay,
	} {
		c := dial(t, s.addr())
		io.WriteString(c, bytes)
		answer, _ := io.ReadAll(c) // a reset is as good as an end
		if len(answer) > 0 && answer[0] != 21 && answer[0] != recordHandshake {
			t.Errorf("%s is answered %q", name, answer)
		}
	}
	// After a request in cleartext there is no TLS.
	k := newTalk(t, s.addr())
	k.send(getAndStay)
	k.answer("GET")
	k.send("\x16\x03\x01\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 400 {
		t.Errorf("TLS behind a request: %d", resp.StatusCode)
	}
}

// helloOf is the first record of a client.
func helloOf(t *testing.T, config *tls.Config) []byte {
	a, b := net.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go tls.Client(a, config).HandshakeContext(ctx)
	defer a.Close()
	p := make([]byte, 16<<10)
	n, err := b.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	return p[:n]
}

// TestCleartextReachesOnlyListenersThatServeIt has a strict listener for one host beside a permissive one.
func TestCleartextReachesOnlyListenersThatServeIt(t *testing.T) {
	cfg, _, with := permissive(t)
	cfg.Listeners[0].Hostname = "cart.shop"
	strict := cfg.Listeners[0]
	strict.Name, strict.Hostname, strict.TLS = "default/gw/strict", "strict.shop", &model.ListenerTLS{Certificates: []string{workload}}
	cfg.Listeners = append(cfg.Listeners, strict)
	cfg.Routes[0].Attachments = []model.Attachment{{Listener: cfg.Listeners[0].Name, Hostnames: []string{"cart.shop"}}, {Listener: strict.Name, Hostnames: []string{"strict.shop"}}}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	s := serve(t, cfg, with)
	for host, want := range map[string]int{"cart.shop": 200, "strict.shop": 421} {
		k := newTalk(t, s.addr())
		k.send("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", host, resp.StatusCode, want)
		}
	}
}

// TestPoliciesKnowNobodyInCleartext holds that cleartext gets what everybody gets, and nothing once the port is strict.
func TestPoliciesKnowNobodyInCleartext(t *testing.T) {
	cfg, ca, with := permissive(t)
	s := serve(t, guard(cfg, pod), with)
	k := newTalk(t, s.addr())
	status := func(want int) {
		t.Helper()
		k.send(getAndStay)
		if resp, _ := k.answer("GET"); resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
	}
	status(200)
	governed := *cfg
	governed.Policies = []model.Policy{letting("shop", model.TrafficAny)}
	if err := s.Apply(&governed); err != nil {
		t.Fatal(err)
	}
	status(403)
	if _, err := getOver(t, s.addr(), as(ca.Workload(t, shopID, nil))); err != nil {
		t.Error(err)
	}
	strict := *cfg
	strict.Listeners = append([]model.Listener(nil), cfg.Listeners...)
	strict.Listeners[0].TLS = &model.ListenerTLS{Certificates: []string{workload}}
	if err := s.Apply(&strict); err != nil {
		t.Fatal(err)
	}
	status(404) // the connection is from before
	c := newTalk(t, s.addr())
	c.send(getAndStay)
	if answer, _ := io.ReadAll(c.Conn); len(answer) > 0 && answer[0] != 21 {
		t.Errorf("cleartext is answered %q", answer)
	}
}
