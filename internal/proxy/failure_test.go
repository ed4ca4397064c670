package proxy

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

func TestEachFailureHasItsStatusAndReason(t *testing.T) {
	ok, _ := wire(t, okResponse)
	garbage, _ := wire(t, "HTTP/9 what\r\n\r\n")
	eof := rawBackend(t, func(c net.Conn) { rawHead(bufio.NewReader(c)) })
	silent := rawBackend(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	switching, _ := wire(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
	bigHead, _ := wire(t, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("a", 70000)+"\r\n\r\n")
	fault := func(reason string, status int) *model.Fault { return &model.Fault{Reason: reason, Status: status} }
	for _, test := range []struct {
		name   string
		edit   func(*model.Config)
		status int
		reason telemetry.Reason
	}{
		{"no listener for the host", func(c *model.Config) {
			c.Listeners[0].Hostname = "other.example"
			c.Routes[0].Attachments[0].Hostnames = []string{"other.example"}
		}, 404, telemetry.NoListener},
		{"no rule matches", func(c *model.Config) { c.Routes[0].Rules[0].Matches[0].Path.Value = "/other" }, 404, telemetry.NoRoute},
		{"no backends", func(c *model.Config) { c.Routes[0].Rules[0].Backends = nil }, 500, telemetry.NoBackend},
		{"all weights zero", func(c *model.Config) { c.Routes[0].Rules[0].Backends[0].Weight = 0 }, 500, telemetry.NoBackend},
		{"fault of the backend", func(c *model.Config) {
			b := &c.Routes[0].Rules[0].Backends[0]
			b.Service, b.Fault = "", fault("BackendNotFound", 500)
		}, 500, telemetry.BackendNotFound},
		{"fault of the rule", func(c *model.Config) { c.Routes[0].Rules[0].Fault = fault("IncompatibleFilters", 500) }, 500, telemetry.InvalidConfig},
		{"fault of the service", func(c *model.Config) { c.Services[0].Fault = fault("InvalidCACertificateRef", 502) }, 502, telemetry.InvalidConfig},
		{"not permitted", func(c *model.Config) {
			b := &c.Routes[0].Rules[0].Backends[0]
			b.Service, b.Fault = "", fault("RefNotPermitted", 500)
		}, 500, telemetry.RefNotPermitted},
		{"no endpoints", func(c *model.Config) { c.Services[0].Endpoints = nil }, 503, telemetry.NoEndpoint},
		{"refused", func(c *model.Config) { c.Services[0].Endpoints[0].Address = peertest.Refusing(t) }, 502, telemetry.ConnectFailed},
		{"garbage", func(c *model.Config) { c.Services[0].Endpoints[0].Address = garbage }, 502, telemetry.MalformedResponse},
		{"a head over the limit", func(c *model.Config) { c.Services[0].Endpoints[0].Address = bigHead }, 502, telemetry.MalformedResponse},
		{"an unasked upgrade", func(c *model.Config) { c.Services[0].Endpoints[0].Address = switching }, 502, telemetry.MalformedResponse},
		{"closed without an answer", func(c *model.Config) { c.Services[0].Endpoints[0].Address = eof }, 502, telemetry.BackendReset},
		{"backend timeout", func(c *model.Config) {
			c.Services[0].Endpoints[0].Address = silent
			c.Routes[0].Rules[0].Timeouts.BackendRequest = model.Duration(50 * time.Millisecond)
		}, 504, telemetry.BackendTimeout},
		{"request timeout", func(c *model.Config) {
			c.Services[0].Endpoints[0].Address = silent
			c.Routes[0].Rules[0].Timeouts.Request = model.Duration(50 * time.Millisecond)
		}, 504, telemetry.RequestTimeout},
		{"request timeout before backend timeout", func(c *model.Config) {
			c.Services[0].Endpoints[0].Address = silent
			c.Routes[0].Rules[0].Timeouts = model.Timeouts{Request: model.Duration(50 * time.Millisecond), BackendRequest: model.Duration(time.Minute)}
		}, 504, telemetry.RequestTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := plain(ok)
			test.edit(cfg)
			s := serve(t, cfg)
			k := newTalk(t, s.addr())
			// Twice, with a body in between: the connection survives the failure.
			k.send("POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
			for _, method := range []string{"POST", "GET"} {
				resp, text := k.answer(method)
				if resp.StatusCode != test.status || !strings.HasPrefix(text, string(test.reason)+": ") {
					t.Errorf("%s: status %d, want %d; text %q, want %s", method, resp.StatusCode, test.status, text, test.reason)
				}
			}
			if n := s.failures(test.reason); n != 2 {
				t.Errorf("%d failures by %s", n, test.reason)
			}
		})
	}
}

func TestHEADFailureHasNoBody(t *testing.T) {
	s := serve(t, plain())
	k := newTalk(t, s.addr())
	k.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, body := k.answer("HEAD"); resp.StatusCode != 503 || body != "" {
		t.Errorf("status %d, body %q", resp.StatusCode, body)
	}
	if resp, body := k.answer("GET"); resp.StatusCode != 503 || body == "" {
		t.Errorf("status %d, body %q", resp.StatusCode, body)
	}
}

func TestBrokenAnswerBreaksTheConnection(t *testing.T) {
	for name, response := range map[string]string{
		"length": "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 50000),
		"chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			addr := rawBackend(t, func(c net.Conn) {
				rawHead(bufio.NewReader(c))
				io.WriteString(c, response)
			})
			s := serve(t, plain(addr))
			resp, err := newClient(t).Get("http://" + s.addr() + "/")
			if err != nil {
				// The proxy may notice before it sends a byte.
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == 200 && err == nil {
				t.Error("the client took the broken answer for whole")
			}
			if s.failures(telemetry.BackendReset) != 1 {
				t.Error("not counted")
			}
		})
	}
}

// flaky answers every request with f, which gets the request's number. The numbers count over all connections.
func flaky(t testing.TB, f func(n int64, w http.ResponseWriter, r *http.Request)) (string, *atomic.Int64) {
	var n atomic.Int64
	return backend(t, func(w http.ResponseWriter, r *http.Request) { f(n.Add(1), w, r) }), &n
}

func hangUp(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		c.Close()
	}
}

func TestRetries(t *testing.T) {
	for _, test := range []struct {
		name     string
		retry    *model.Retry
		request  string
		fail     func(n int64, w http.ResponseWriter) bool
		status   int
		attempts int64
	}{
		{"a listed status, until it is well", &model.Retry{Attempts: 3, Codes: []int{503}}, "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			func(n int64, w http.ResponseWriter) bool { w.WriteHeader(503); return true }, 200, 3},
		{"no more than allowed", &model.Retry{Attempts: 1, Codes: []int{503}}, "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			func(n int64, w http.ResponseWriter) bool { w.WriteHeader(503); return true }, 503, 2},
		{"not another status", &model.Retry{Attempts: 3, Codes: []int{502}}, "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			func(n int64, w http.ResponseWriter) bool { w.WriteHeader(503); return true }, 503, 1},
		{"a connection that breaks", &model.Retry{Attempts: 3}, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
			func(n int64, w http.ResponseWriter) bool { hangUp(w); return true }, 200, 3},
		{"not without a retry", nil, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
			func(n int64, w http.ResponseWriter) bool { hangUp(w); return true }, 502, 1},
		{"with a small body of unknown length", &model.Retry{Attempts: 3, Codes: []int{503}}, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
			func(n int64, w http.ResponseWriter) bool { w.WriteHeader(503); return true }, 200, 3},
		{"not with a large body of unknown length", &model.Retry{Attempts: 3, Codes: []int{503}},
			"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n" + strings.Repeat("x", 100000) + "\r\n0\r\n\r\n",
			func(n int64, w http.ResponseWriter) bool { w.WriteHeader(503); return true }, 503, 1},
		{"with a body kept in memory", &model.Retry{Attempts: 3, Codes: []int{503}},
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n" + strings.Repeat("x", 40000),
			func(n int64, w http.ResponseWriter) bool { w.WriteHeader(503); fmt.Fprint(w, "not now"); return true }, 200, 3},
		{"after a pause", &model.Retry{Attempts: 3, Codes: []int{503}, Backoff: model.Duration(time.Millisecond)}, "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			func(n int64, w http.ResponseWriter) bool { w.WriteHeader(503); return true }, 200, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			addr, n := flaky(t, func(n int64, w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				if n < 3 && test.fail(n, w) {
					return
				}
				fmt.Fprintf(w, "%d", len(b))
			})
			cfg := plain(addr)
			cfg.Routes[0].Rules[0].Retry = test.retry
			s := serve(t, cfg)
			k := newTalk(t, s.addr())
			k.send(test.request)
			resp, body := k.answer("GET")
			if resp.StatusCode != test.status || n.Load() != test.attempts {
				t.Errorf("status %d after %d attempts, want %d after %d", resp.StatusCode, n.Load(), test.status, test.attempts)
			}
			if test.status == 200 && strings.Contains(test.request, "40000") && body != "40000" {
				t.Errorf("%s bytes arrived", body)
			}
			var retries uint64
			for _, x := range s.metrics.Snapshot().Exchanges {
				retries += x.Retries
			}
			if int64(retries) != test.attempts-1 {
				t.Errorf("%d retries counted", retries)
			}
		})
	}
}

func TestRetryGoesToAnotherEndpoint(t *testing.T) {
	addr, _ := wire(t, okResponse)
	cfg := plain(peertest.Refusing(t), addr)
	cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1}
	s := serve(t, cfg)
	k := newTalk(t, s.addr())
	for range 20 {
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
}

// closing answers one request on each connection, waits for want more, and then closes the connection without answering
// them.
func closing(t testing.TB, requests *atomic.Int64) string {
	return rawBackend(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		if _, err := rawHead(r); err != nil {
			return
		}
		requests.Add(1)
		io.WriteString(c, okResponse)
		if _, err := rawHead(r); err != nil {
			return
		}
		requests.Add(1)
	})
}

func TestStaleConnectionIsReplacedForIdempotentRequests(t *testing.T) {
	var n atomic.Int64
	s := serve(t, plain(closing(t, &n)))
	k := newTalk(t, s.addr())
	for range 4 {
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	if got := n.Load(); got != 7 {
		t.Errorf("%d requests reached the backend, want 7", got)
	}
}

func TestStaleConnectionIsNotReplacedForOtherRequests(t *testing.T) {
	var n atomic.Int64
	s := serve(t, plain(closing(t, &n)))
	k := newTalk(t, s.addr())
	for _, want := range []int{200, 502, 200, 502} {
		k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		if resp, _ := k.answer("POST"); resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
	}
}

func TestClosedIdleConnectionCostsNoRequest(t *testing.T) {
	// The backend closes after each answer without announcing it.
	closed := make(chan struct{}, 100)
	addr := rawBackend(t, func(c net.Conn) {
		if _, err := rawHead(bufio.NewReader(c)); err == nil {
			io.WriteString(c, okResponse)
			c.Close()
			closed <- struct{}{}
		}
	})
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	for range 20 {
		k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		if resp, _ := k.answer("POST"); resp.StatusCode != 200 {
			t.Errorf("status %d", resp.StatusCode)
		}
		<-closed
	}
}

func TestClientThatLeavesEndsTheExchange(t *testing.T) {
	t.Parallel()
	started, ended := make(chan struct{}), make(chan struct{})
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
		close(ended)
	})
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-started
	k.Close()
	<-ended
	if s.failures(telemetry.ClientClosed) != 1 || s.failures(telemetry.BackendReset) != 0 {
		t.Error("not counted as the client's")
	}
}

func TestRequestTimeoutEndsASlowAnswer(t *testing.T) {
	addr := rawBackend(t, func(c net.Conn) {
		rawHead(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
		io.Copy(io.Discard, c)
	})
	cfg := plain(addr)
	cfg.Routes[0].Rules[0].Timeouts.Request = model.Duration(100 * time.Millisecond)
	s := serve(t, cfg)
	resp, err := newClient(t).Get("http://" + s.addr() + "/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the answer came to a good end")
	}
	resp.Body.Close()
	if s.failures(telemetry.RequestTimeout) != 1 {
		t.Error("not counted")
	}
}

// TestAPauseBeforeARetryHoldsNoRequestForEver: a rule may ask for any pause and need not have a timeout.
func TestAPauseBeforeARetryHoldsNoRequestForEver(t *testing.T) {
	for _, backoff := range []time.Duration{99999 * time.Hour, math.MaxInt64} {
		addr, n := flaky(t, func(n int64, w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) })
		cfg := plain(addr)
		cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1000, Codes: []int{503}, Backoff: model.Duration(backoff)}
		k := newTalk(t, serve(t, cfg, func(o *Options) { o.MaxPauses = time.Millisecond }).addr())
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 503 || n.Load() != 2 {
			t.Errorf("status %d after %d attempts, want 503 after 2", resp.StatusCode, n.Load())
		}
		cfg.Routes[0].Rules[0].Timeouts.Request = model.Duration(time.Millisecond)
		k = newTalk(t, serve(t, cfg).addr())
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 504 {
			t.Errorf("with a timeout: status %d, want 504", resp.StatusCode)
		}
	}
}
