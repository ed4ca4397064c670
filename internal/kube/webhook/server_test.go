package webhook

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirmesh/weir/internal/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vouched is a server's certificate, what its clients trust it by, and one of theirs.
func vouched(t *testing.T) (certificate func() (*tls.Certificate, error), client *tls.Config) {
	t.Helper()
	a, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := &identity.Server{Subject: identity.Subject{DNSNames: []string{"weir.test"}}}
	s.Use(a)
	own, err := s.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Bundle())
	return s.Certificate, &tls.Config{RootCAs: roots, ServerName: "weir.test", Certificates: []tls.Certificate{*own}}
}

// echo says by which protocol it was asked, and how many certificates the client has.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "%s %d", r.Proto, len(r.TLS.PeerCertificates))
})

func TestServeSpeaksTLSAndEndsWithItsContext(t *testing.T) {
	certificate, trust := vouched(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, echo, certificate) }()
	nobody := trust.Clone()
	nobody.Certificates = nil
	for want, config := range map[string]*tls.Config{"HTTP/2.0 1": trust, "HTTP/2.0 0": nobody} {
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		response, err := (&http.Client{Transport: transport}).Get("https://" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if string(text) != want {
			t.Errorf("answered %s, want %s", text, want)
		}
		transport.CloseIdleConnections()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it still listens")
	}
	l, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := Serve(t.Context(), l, echo, certificate); err == nil || errors.Is(err, http.ErrServerClosed) {
		t.Errorf("a socket that is closed: %v", err)
	}
}

// pipes is a listener whose connections are in memory, so that their time is a test's.
type pipes struct {
	accept chan net.Conn
	end    chan struct{}
	once   sync.Once
	dialed atomic.Int64
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.end:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.end) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	p.dialed.Add(1)
	client, server := net.Pipe()
	p.accept <- server
	return client, nil
}

// TestLastingAnswersHoldUpNoShortOnes opens many answers that last as a tap does, one line a second, and asks short
// questions on the same connection.
func TestLastingAnswersHoldUpNoShortOnes(t *testing.T) {
	for _, h2 := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			certificate, trust := vouched(t)
			l := &pipes{accept: make(chan net.Conn), end: make(chan struct{})}
			const lines = 30 // seconds: more than any limit of a request
			handler := http.NewServeMux()
			handler.Handle("/short", echo)
			handler.HandleFunc("/lasting", func(w http.ResponseWriter, r *http.Request) {
				control := http.NewResponseController(w)
				for range lines {
					_ = control.SetWriteDeadline(time.Now().Add(5 * time.Second))
					if _, err := fmt.Fprintln(w, "line"); err != nil || control.Flush() != nil || r.Context().Err() != nil {
						return
					}
					time.Sleep(time.Second)
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- Serve(ctx, l, handler, certificate) }()
			transport := &http.Transport{DialContext: l.dial, TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: h2}
			client := &http.Client{Transport: transport}
			get := func(path string) (string, error) {
				response, err := client.Get("https://weir.test" + path)
				if err != nil {
					return "", err
				}
				defer response.Body.Close()
				text, err := io.ReadAll(bufio.NewReader(response.Body))
				return string(text), err
			}
			if _, err := get("/short"); err != nil { // so that there is a connection
				t.Fatal(err)
			}
			var lasting sync.WaitGroup
			for range 8 {
				lasting.Go(func() {
					if text, err := get("/lasting"); err != nil || strings.Count(text, "\n") != lines {
						t.Errorf("h2 %v: %d lines, %v", h2, strings.Count(text, "\n"), err)
					}
				})
			}
			time.Sleep(time.Second)
			for range 2 * maxStreams {
				began := time.Now()
				if text, err := get("/short"); err != nil || time.Since(began) > 0 {
					t.Errorf("h2 %v: %q after %v, %v", h2, text, time.Since(began), err)
				}
			}
			if n := l.dialed.Load(); h2 && n > 1 {
				t.Errorf("it took %d connections", n)
			}
			lasting.Wait()
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			transport.CloseIdleConnections()
			time.Sleep(time.Minute) // an alert that nobody reads any more is given up
		})
	}
}

// TestAServerThatLeavesIsLeft: as long as it stays, a client keeps its connection; then each answer is the last on its own.
func TestAServerThatLeavesIsLeft(t *testing.T) {
	for _, h2 := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			certificate, trust := vouched(t)
			l := &pipes{accept: make(chan net.Conn), end: make(chan struct{})}
			asked, ask := context.WithCancel(t.Context())
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- Serve(ctx, l, Leaving(asked, echo), certificate) }()
			transport := &http.Transport{DialContext: l.dial, TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: h2}
			post := func(connections int64) {
				t.Helper()
				response, err := (&http.Client{Transport: transport}).Post("https://weir.test/", "text/plain", strings.NewReader("body"))
				if err != nil {
					t.Fatalf("h2 %v: %v", h2, err)
				}
				text, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if want := map[bool]string{true: "HTTP/2.0 1", false: "HTTP/1.1 1"}[h2]; err != nil || string(text) != want {
					t.Errorf("h2 %v: answered %q, %v", h2, text, err)
				}
				if n := l.dialed.Load(); n != connections {
					t.Errorf("h2 %v: %d connections, want %d", h2, n, connections)
				}
				synctest.Wait()
			}
			post(1)
			post(1)
			ask()
			post(1)
			post(2)
			post(3)
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			transport.CloseIdleConnections()
			time.Sleep(time.Minute)
		})
	}
}
