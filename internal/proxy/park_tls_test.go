package proxy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

// needsParking skips the test where idle connections keep their goroutines.
func needsParking(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a poller for idle connections")
	}
}

// tapped is a client's socket. It shows what TLS read last and can hold back what TLS writes.
type tapped struct {
	net.Conn
	got  []byte
	hold bool
	kept []byte
}

func (w *tapped) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.got = append(w.got, p[:n]...)
	return n, err
}

func (w *tapped) Write(p []byte) (int, error) {
	if w.hold {
		w.kept = append(w.kept, p...)
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// send writes bytes that were held back, up to n.
func (w *tapped) send(t *testing.T, n int) {
	t.Helper()
	n = min(n, len(w.kept))
	if _, err := w.Conn.Write(w.kept[:n]); err != nil {
		t.Fatal(err)
	}
	w.kept = w.kept[n:]
}

// endsWithAlert is true if the last complete record (RFC 8446 §5.1) is an alert. In TLS 1.3 only its length shows that.
func (w *tapped) endsWithAlert(version uint16) bool {
	kind, length := byte(0), 0
	for b := w.got; len(b) >= 5; b = b[min(len(b), 5+length):] {
		kind, length = b[0], int(b[3])<<8+int(b[4])
	}
	if version == tls.VersionTLS13 {
		return kind == 23 && length == 2+1+16 // the alert, its true type and the tag
	}
	return kind == 21
}

// tlsRequester opens a connection of the given TLS version that has served a request.
func tlsRequester(t *testing.T, addr string, roots *x509.CertPool, version uint16) (*requester, *tapped) {
	t.Helper()
	w := &tapped{Conn: dial(t, addr)}
	c := tls.Client(w, &tls.Config{ServerName: "shop.example", RootCAs: roots, MaxVersion: version, NextProtos: []string{"http/1.1"}})
	r := &requester{c: c, request: []byte(benchRequest), buf: make([]byte, 8<<10)}
	if err := r.do(); err != nil {
		t.Fatal(err)
	}
	return r, w
}

func tlsRequesters(t *testing.T, addr string, roots *x509.CertPool, n int) (all []*requester, wires []*tapped) {
	t.Helper()
	for i := range n {
		r, w := tlsRequester(t, addr, roots, []uint16{tls.VersionTLS12, tls.VersionTLS13}[i%2])
		all, wires = append(all, r), append(wires, w)
	}
	return all, wires
}

func securePlain(t *testing.T, size int) (*model.Config, *x509.CertPool) {
	t.Helper()
	cfg := plain(cannedBackend(t, cannedResponse(size)))
	return cfg, secure(t, cfg, "shop.example")
}

func TestIdleTLSConnectionsNeedNoGoroutine(t *testing.T) {
	needsParking(t)
	t.Parallel()
	cfg, roots := securePlain(t, 300_000) // in cleartext, an answer of this size would be spliced
	s := serve(t, cfg, func(o *Options) { o.IdleTimeout = time.Hour })
	all, _ := tlsRequesters(t, s.addr(), roots, 50)
	parkAndServe(t, s, all)
	for i, r := range all {
		if r.c.Close(); i%2 == 0 { // with and without a closing alert
			r.c.(*tls.Conn).NetConn().(*tapped).Conn.Close()
		}
	}
	until(t, "ends of idle connections are not noticed", func() bool { return s.connections.Load() == 0 })
}

func TestSilentTLSConnectionsNeedNoGoroutine(t *testing.T) {
	needsParking(t)
	t.Parallel()
	cfg, roots := securePlain(t, 10)
	s := serve(t, cfg)
	c := tls.Client(dial(t, s.addr()), &tls.Config{ServerName: "shop.example", RootCAs: roots})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	until(t, "a connection without a request keeps its goroutine", func() bool { return s.connections.Load() == 1 && s.withGoroutine() == 0 })
	r := &requester{c: c, request: []byte(benchRequest), buf: make([]byte, 8<<10)}
	if err := r.do(); err != nil {
		t.Error(err)
	}
}

// TestRequestsThatTLSHoldsAreNotParked: bytes that TLS has already read do not make a socket readable.
func TestRequestsThatTLSHoldsAreNotParked(t *testing.T) {
	cfg, roots := securePlain(t, 10)
	s := serve(t, cfg)
	for name, writes := range map[string][]string{
		"one record":     {benchRequest + benchRequest},
		"two records":    {benchRequest, benchRequest},
		"head in pieces": {benchRequest, benchRequest[:1], benchRequest[1:20], benchRequest[20:]},
	} {
		t.Run(name, func(t *testing.T) {
			for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
				r, w := tlsRequester(t, s.addr(), roots, version)
				until(t, "the connection keeps its goroutine", func() bool { return s.withGoroutine() == 0 })
				w.hold = true
				for _, text := range writes {
					if _, err := io.WriteString(r.c, text); err != nil {
						t.Fatal(err)
					}
				}
				w.send(t, len(w.kept))
				var got bytes.Buffer
				for buf := make([]byte, 4<<10); strings.Count(got.String(), "HTTP/1.1 200") < 2; {
					n, err := r.c.Read(buf)
					if got.Write(buf[:n]); err != nil {
						t.Fatalf("%v after %q", err, got.String())
					}
				}
				w.Conn.Close()
				until(t, "the end is not noticed", func() bool { return s.connections.Load() == 0 })
			}
		})
	}
}

func TestRequestsInPartsOfRecordsAreServed(t *testing.T) {
	needsParking(t)
	t.Parallel()
	cfg, roots := securePlain(t, 10)
	s := serve(t, cfg)
	r, w := tlsRequester(t, s.addr(), roots, tls.VersionTLS13)
	parked := func() bool { return s.withGoroutine() == 0 }
	until(t, "the connection keeps its goroutine", parked)
	// A part of the second request's record comes with the first request, so the connection parks with this part.
	w.hold = true
	io.WriteString(r.c, benchRequest)
	first := len(w.kept)
	io.WriteString(r.c, benchRequest)
	w.send(t, first+7)
	answer := func() {
		t.Helper()
		for got := ""; !strings.HasSuffix(got, "\r\n\r\nxxxxxxxxxx"); {
			n, err := r.c.Read(r.buf)
			if got += string(r.buf[:n]); err != nil {
				t.Fatal(err)
			}
		}
	}
	answer()
	until(t, "a part of a record keeps the connection from being parked", parked)
	w.send(t, 3)
	until(t, "the connection is still parked", func() bool { return !parked() })
	w.send(t, len(w.kept))
	answer()
	until(t, "the connection keeps its goroutine", parked)
	// The rest of a record comes with another one, whole.
	before := len(w.kept)
	io.WriteString(r.c, benchRequest)
	w.send(t, 7)
	until(t, "the connection is still parked", func() bool { return !parked() })
	io.WriteString(r.c, benchRequest)
	w.send(t, len(w.kept)-before)
	answers := 0
	for got := ""; answers < 2; answers = strings.Count(got, "\r\n\r\nxxxxxxxxxx") {
		n, err := r.c.Read(r.buf)
		if got += string(r.buf[:n]); err != nil {
			t.Fatal(err)
		}
	}
}

// ends expects connections to end, each with an alert.
func ends(t *testing.T, all []*requester, wires []*tapped) {
	t.Helper()
	for i, r := range all {
		if n, err := r.c.Read(r.buf); n > 0 || err != io.EOF {
			t.Errorf("read %d bytes, %v, want the end", n, err)
		}
		if !wires[i].endsWithAlert(r.c.(*tls.Conn).ConnectionState().Version) {
			t.Error("the connection ended without an alert")
		}
	}
}

func TestParkedTLSConnectionsEndWithTheServer(t *testing.T) {
	needsParking(t)
	cfg, roots := securePlain(t, 10)
	s := serve(t, cfg)
	all, wires := tlsRequesters(t, s.addr(), roots, 10)
	until(t, "idle connections keep their goroutines", func() bool { return s.withGoroutine() == 0 })
	s.stop()
	ends(t, all, wires)
	<-s.ended
}

func TestParkedTLSConnectionsAreServedWhileTheServerDrains(t *testing.T) {
	cfg, roots := securePlain(t, 10)
	s := serve(t, cfg, func(o *Options) { o.DrainGrace = 20 * time.Second })
	var all []*requester
	for range 10 {
		r, _ := tlsRequester(t, s.addr(), roots, tls.VersionTLS13) // before TLS 1.3, the alert behind the answer would make do fail
		all = append(all, r)
	}
	servedWhileDraining(t, s, all)
}

func TestClosingWordDoesNotWait(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client := dial(t, ln.Addr().String()) // the client reads nothing
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	h := &handshakeConn{Conn: nc, hasty: true}
	piece := make([]byte, 64<<10)
	for err == nil {
		_, err = h.Write(piece)
	}
	if !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("%v, want EAGAIN", err)
	}
	runtime.KeepAlive(client)
}
