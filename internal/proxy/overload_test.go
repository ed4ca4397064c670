package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// held is a backend whose answers wait until release is closed.
type held struct {
	address string
	entered chan struct{}
	release chan struct{}
}

func newHeld(t *testing.T) *held {
	h := &held{entered: make(chan struct{}, 100), release: make(chan struct{})}
	h.address = backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			h.entered <- struct{}{}
			<-h.release
		}
		io.WriteString(w, "ok")
	})
	return h
}

// hold sends n requests, each over its own connection, that stay with the backend. end waits for their answers.
func (h *held) hold(t *testing.T, s *testServer, n int) (end func()) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		k := newTalk(t, s.addr())
		k.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
		wg.Go(func() {
			if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
				t.Errorf("a held request was answered %d", resp.StatusCode)
			}
		})
	}
	for range n {
		<-h.entered
	}
	return func() {
		close(h.release)
		wg.Wait()
		until(t, "the requests keep their places", func() bool { return s.load().InFlight == 0 && s.upstreamInFlight() == 0 })
	}
}

func TestRequestsBeyondTheLimitAreRefusedAtOnce(t *testing.T) {
	h := newHeld(t)
	s := serve(t, plain(h.address), func(o *Options) { o.MaxInFlight = 3 })
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Fatalf("%v", resp)
	}
	until(t, "the first request is still counted", func() bool { return s.load().InFlight == 0 })
	end := h.hold(t, s, 3)
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	} {
		k.send(request)
		resp, body := k.answer("GET")
		if after := resp.Header.Get("Retry-After"); resp.StatusCode != 503 || after < "1" || after > "3" || resp.Close || !strings.HasPrefix(body, "overload: ") {
			t.Errorf("%q: %v %q", request, resp, body)
		}
	}
	// The proxy would have to wait for a body that is still to come.
	k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\nhello")
	if resp, _ := k.answer("GET"); resp.StatusCode != 503 || !resp.Close {
		t.Errorf("%v", resp)
	}
	if l := s.load(); l.InFlight != 3 || l.MaxInFlight != 3 || l.RefusedRequests != 4 {
		t.Errorf("%+v", l)
	}
	// HTTP/2: the stream gets an answer, and the connection survives.
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &protocols}
	defer tr.CloseIdleConnections()
	for range 2 {
		resp, err := tr.RoundTrip(must(http.NewRequest("GET", "http://"+s.addr()+"/", nil)))
		if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || resp.ProtoMajor != 2 {
			t.Fatalf("%v %v", resp, err)
		}
		resp.Body.Close()
	}
	r := must(http.NewRequest("POST", "http://"+s.addr()+"/a.B/C", strings.NewReader("\x00\x00\x00\x00\x00")))
	r.Header.Set("Content-Type", "application/grpc")
	resp, err := tr.RoundTrip(r)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Grpc-Status") != "14" || resp.Header.Get("Grpc-Retry-Pushback-Ms") == "" {
		t.Errorf("gRPC: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	end()
	k = newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("with room again: %v", resp)
	}
	if n := s.failures(telemetry.Overload); n != 7 || s.load().InFlight != 0 {
		t.Errorf("%d refusals counted, %+v", n, s.load())
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestManyRefusedConnectionsAreHeldByFewAndNoGoroutine(t *testing.T) {
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	release := sync.OnceFunc(func() { close(hold) })
	addr := backend(t, func(http.ResponseWriter, *http.Request) {
		held <- struct{}{}
		<-hold
	})
	s := serve(t, plain(addr), func(o *Options) { o.MaxConnections = 1 })
	t.Cleanup(release)
	first := newTalk(t, s.addr())
	first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n") // an idle connection would be closed to make room
	<-held
	var all []net.Conn
	for range 3 * refusedHeld {
		all = append(all, dial(t, s.addr())) // they send nothing
	}
	for i, nc := range all {
		body, err := io.ReadAll(nc)
		if err != nil || string(body) != refusal {
			t.Fatalf("connection %d: %q, %v", i, body, err)
		}
	}
	if n := s.connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	release()
	if resp, _ := first.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("the one that was let in: %v", resp)
	}
	if n := s.load().RefusedConnections; n != 3*refusedHeld {
		t.Errorf("%d refused", n)
	}
}

func TestTheRefusalIsWellFormed(t *testing.T) {
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(refusal)), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || int64(len(body)) != resp.ContentLength || !strings.HasSuffix(refusal, string(body)) || !strings.HasSuffix(string(body), "\n") {
		t.Errorf("%q %v %v", body, resp, err)
	}
}

// TestServicesHaveLimitsOfTheirOwn: a service at its limit refuses requests; another one keeps serving.
func TestServicesHaveLimitsOfTheirOwn(t *testing.T) {
	for name, limits := range map[string]model.Limits{
		"requests":          {Requests: 2},
		"endpoint_requests": {EndpointRequests: 2},
	} {
		h := newHeld(t)
		cfg := plain(h.address)
		cfg.Services[0].Limits = &limits
		s := serve(t, cfg)
		end := h.hold(t, s, 2)
		k := newTalk(t, s.addr())
		for range 3 {
			k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if resp, body := k.answer("GET"); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.HasPrefix(body, "backend_overload: ") {
				t.Errorf("%s: %v %q", name, resp, body)
			}
		}
		for state := range s.Services {
			if !state.Full {
				t.Errorf("%s: %+v", name, state)
			}
			for _, l := range state.Rejected {
				if want := uint64(0); l.Limit == name && l.Count != 3 || l.Limit != name && l.Count != want {
					t.Errorf("%s: %+v", name, state.Rejected)
				}
			}
		}
		end()
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
			t.Errorf("%s: with room again: %v", name, resp)
		}
		if n := s.failures(telemetry.BackendOverload); n != 3 {
			t.Errorf("%s: %d counted", name, n)
		}
	}
}

// TestAStuckServiceLeavesPlacesToOthers: when few places are left, a service that holds half of them gets no more.
func TestAStuckServiceLeavesPlacesToOthers(t *testing.T) {
	h := newHeld(t)
	fine := backend(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "fine") })
	stuck := ruleTo(serviceName)
	stuck.Matches[0].Path.Value = "/held"
	cfg := config([]model.Service{service(serviceName, model.HTTP, h.address), service("default/fine:80", model.HTTP, fine)}, stuck, ruleTo("default/fine:80"))
	s := serve(t, cfg, func(o *Options) { o.MaxInFlight = 8 })
	end := h.hold(t, s, 6)
	k := newTalk(t, s.addr())
	k.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, body := k.answer("GET"); resp.StatusCode != 503 || !strings.HasPrefix(body, "backend_overload") {
		t.Errorf("%v %q", resp, body)
	}
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("the other service: %v", resp)
	}
	end()
}

// TestRetriesDoNotMultiplyAnOutage: during an outage, retries are a fixed share of the requests.
func TestRetriesDoNotMultiplyAnOutage(t *testing.T) {
	var attempts atomic.Int64
	addr := backend(t, func(w http.ResponseWriter, _ *http.Request) {
		attempts.Add(1)
		w.WriteHeader(503)
	})
	rule := ruleTo(serviceName)
	rule.Retry = &model.Retry{Attempts: 5, Codes: []int{503}}
	s := serve(t, config([]model.Service{service(serviceName, model.HTTP, addr)}, rule))
	const requests = 1500
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			k := newTalk(t, s.addr())
			for range requests / 3 {
				k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				k.answer("GET")
			}
		})
	}
	wg.Wait()
	// The budget allows a fifth of the requests as retries, ten a second, and a few that it no longer counts. That is
	// far from six attempts a request.
	if n := attempts.Load(); n < requests+100 || n > 2*requests {
		t.Errorf("%d attempts of %d requests", n, requests)
	}
}

func TestGatewayErrorsEjectThroughTheProxy(t *testing.T) {
	var bad atomic.Int64
	ill := backend(t, func(w http.ResponseWriter, _ *http.Request) {
		bad.Add(1)
		w.WriteHeader(503)
	})
	well := backend(t, func(http.ResponseWriter, *http.Request) {})
	{
		cfg := plain(ill, well)
		cfg.Services[0].Ejection = &model.Ejection{GatewayErrors: 4}
		s := serve(t, cfg)
		c := newClient(t)
		for range 100 {
			resp, err := c.Get("http://" + s.addr() + "/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		if n := bad.Load(); n < 4 || n > 4+2 { // plus one probe a second
			t.Errorf("%d requests went to the endpoint that answers 503", n)
		}
		unhealthy := 0
		for state := range s.Services {
			for _, e := range state.Endpoints {
				if e.Ejected {
					unhealthy++
				}
			}
		}
		if unhealthy != 1 {
			t.Errorf("%d endpoints are ejected", unhealthy)
		}
	}
}

// TestADeadEndpointOfThreeIsLeftAloneSoon: a dead endpoint among three costs no request. It costs only the attempts
// until it is ejected, and a probe now and then.
func TestADeadEndpointOfThreeIsLeftAloneSoon(t *testing.T) {
	ok := func(http.ResponseWriter, *http.Request) {}
	s := serve(t, plain(peertest.Refusing(t), backend(t, ok), backend(t, ok)))
	start := time.Now()
	k := newTalk(t, s.addr())
	failed := 0
	const requests = 1000
	for range requests {
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
			failed++
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d requests failed", failed, requests)
	}
	// A probe after one second, after two more, ...
	tried := s.state.Load().Service(&upstream.Service{Name: serviceName}).Endpoints()[0].Stats().DialFails
	if most := 3 + uint64(time.Since(start)/time.Second); tried < 1 || tried > most {
		t.Errorf("the dead endpoint was tried %d times for %d requests, want at most %d", tried, requests, most)
	}
}

// TestClientsDoNotEjectEndpoints: a client's own faults do not count against the endpoint.
func TestClientsDoNotEjectEndpoints(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	cfg := plain(addr, addr[:strings.LastIndexByte(addr, ':')]+":1")
	cfg.Services[0].Endpoints = cfg.Services[0].Endpoints[:1]
	cfg.Services[0].Ejection = &model.Ejection{GatewayErrors: 1, Failures: 1}
	s := serve(t, cfg)
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nnonsense",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nshort",
	} {
		for range 5 {
			c := dial(t, s.addr())
			io.WriteString(c, request)
			if i := strings.Index(request, "short"); i > 0 {
				c.Close()
				continue
			}
			io.ReadAll(c)
		}
	}
	s.stop()
	<-s.ended
	for state := range s.Services {
		for _, e := range state.Endpoints {
			if e.Failures != 0 || e.Ejections+e.EjectionsDenied != 0 {
				t.Errorf("%+v", e)
			}
		}
	}
}

// shutListener returns connections only once it is opened.
type shutListener struct {
	net.Listener
	release chan struct{}
}

func (l shutListener) Accept() (net.Conn, error) {
	<-l.release
	return l.Listener.Accept()
}

// overdue is a server whose requests may wait for 50 ms, and which checks every request for that. It accepts
// connections once open is called.
func overdue(t *testing.T, address string) (s *testServer, open func()) {
	l := shutListener{release: make(chan struct{})}
	open = sync.OnceFunc(func() { close(l.release) })
	t.Cleanup(open) // before the server ends
	s = serve(t, plain(address), func(o *Options) {
		o.MaxQueueDelay, o.LookAtAll = 50*time.Millisecond, true
		o.Listen = func(network, _ string) (_ socket.Bound, err error) {
			l.Listener, err = net.Listen(network, "127.0.0.1:0")
			return socket.Bound{Stream: l}, err
		}
	})
	t.Cleanup(open)
	return s, open
}

const longWait = 120 * time.Millisecond

func TestRequestsThatWaitedTooLongAreRefusedAtOnce(t *testing.T) {
	if !socket.CanAcknowledge {
		t.Skip("how long a request waited is known on Linux only")
	}
	s, open := overdue(t, backend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }))
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	time.Sleep(longWait)
	open()
	if resp, body := k.answer("GET"); resp.StatusCode != 503 || resp.Close || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%v %q", resp, body)
	}
	if l := s.load(); l.ShedRequests != 1 || l.InFlight != 0 || !l.Strained || l.QueueDelay < 50*time.Millisecond {
		t.Errorf("%+v", l)
	}
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n") // on the same connection, this request does not wait
	if resp, body := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("%v %q", resp, body)
	}
}

func TestNoWorkIsDoneForClientsThatLeftMeanwhile(t *testing.T) {
	if !socket.CanAcknowledge {
		t.Skip("how long a request waited is known on Linux only")
	}
	var served atomic.Int32
	s, open := overdue(t, backend(t, func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	k.Conn.Close()
	time.Sleep(longWait)
	open()
	until(t, "the connection was not taken up", func() bool { return s.load().QueueDelay > 0 })
	if n := s.failures(telemetry.ClientClosed); n != 1 || served.Load() != 0 {
		t.Errorf("%d failures of the client, %d requests served", n, served.Load())
	}
}

// TestRequestsSentAheadAreNotOverdue: a request that arrives while the previous one is with its backend waits for the
// backend, not for the proxy.
func TestRequestsSentAheadAreNotOverdue(t *testing.T) {
	s, open := overdue(t, backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(longWait)
		}
	}))
	open()
	k := newTalk(t, s.addr())
	k.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	time.Sleep(longWait / 4)
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	for range 2 {
		if resp, body := k.answer("GET"); resp.StatusCode != 200 {
			t.Errorf("%v %q", resp, body)
		}
	}
}

// scrape returns the metrics that a scrape would show.
func scrape(r *telemetry.Registry) ([]*dto.MetricFamily, error) {
	reg := prometheus.NewRegistry()
	if err := reg.Register(r); err != nil {
		return nil, err
	}
	return reg.Gather()
}

// TestMetricsOfEndpoints: the series of an endpoint end with it.
func TestMetricsOfEndpoints(t *testing.T) {
	ok := func(http.ResponseWriter, *http.Request) {}
	a, b := backend(t, ok), backend(t, ok)
	s := serve(t, plain(a, b))
	page := func() string {
		var all strings.Builder
		families, err := scrape(s.metrics)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			fmt.Fprintln(&all, f)
		}
		return all.String()
	}
	if p := page(); !strings.Contains(p, "weir_endpoint_healthy") || !strings.Contains(p, a) || !strings.Contains(p, b) || !strings.Contains(p, "weir_service_circuit_open") {
		t.Errorf("%s", p)
	}
	if err := s.Apply(plain(a)); err != nil {
		t.Fatal(err)
	}
	if p := page(); !strings.Contains(p, a) || strings.Contains(p, b) {
		t.Errorf("after %s has gone:\n%s", b, p)
	}
}
