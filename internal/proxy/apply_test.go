package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

// load sends requests over n connections until stop ends, and counts the failed ones. It does not count connections
// whose end the proxy announced, or connections refused while the proxy drains.
type load struct {
	wg       sync.WaitGroup
	stop     chan struct{}
	requests atomic.Int64
	failed   atomic.Int64
	draining atomic.Bool
}

func startLoad(t testing.TB, addr string, n int, request string, want func(*http.Response, string) bool) *load {
	l := &load{stop: make(chan struct{})}
	for range n {
		l.wg.Go(func() {
			for l.connection(t, addr, request, want) {
			}
		})
	}
	return l
}

// connection sends requests until the connection must be closed. It returns false to end the load.
func (l *load) connection(t testing.TB, addr, request string, want func(*http.Response, string) bool) bool {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		if l.draining.Load() && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)) {
			return false
		}
		l.failed.Add(1)
		t.Errorf("dial: %v", err)
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	k := bufio.NewReader(c)
	for first := true; ; first = false {
		select {
		case <-l.stop:
			return false
		default:
		}
		l.requests.Add(1)
		_, err := io.WriteString(c, request)
		var resp *http.Response
		if err == nil {
			resp, err = http.ReadResponse(k, nil)
		}
		if err != nil && first && l.draining.Load() && errors.Is(err, syscall.ECONNRESET) {
			return false // it came while the port was closed, which is the same as refused
		}
		if err != nil {
			l.failed.Add(1)
			t.Errorf("request: %v", err)
			return false
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || !want(resp, string(b)) {
			l.failed.Add(1)
			t.Errorf("answer: status %d, body %.100q, %v", resp.StatusCode, b, err)
			return false
		}
		if resp.Close {
			return true
		}
	}
}

func (l *load) end() {
	close(l.stop)
	l.wg.Wait()
}

func TestReloadsUnderLoadFailNoRequest(t *testing.T) {
	t.Parallel()
	var backends []string
	for i := range 4 {
		backends = append(backends, backend(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%d %d", i, len(b))
		}))
	}
	variant := func(i int) *model.Config {
		services := []model.Service{service("default/a:80", model.HTTP, backends[i%4]), service("default/b:80", model.HTTP, backends[(i+1)%4], backends[(i+2)%4])}
		r := ruleTo("default/a:80", "default/b:80")
		r.Backends[0].Weight = uint32(i % 3)
		if i%2 == 0 {
			r.Timeouts.Request = model.Duration(10 * time.Second)
		}
		cfg := config(services, r)
		if i%5 == 0 { // a second port appears and disappears
			extra := cfg.Listeners[0]
			extra.Name, extra.Port = "default/gw/extra", 81
			cfg.Listeners = append(cfg.Listeners, extra)
		}
		return cfg
	}
	s := serve(t, variant(0))
	ok := func(resp *http.Response, b string) bool { return resp.StatusCode == 200 && strings.HasSuffix(b, " 5") }
	l := startLoad(t, s.addr(), 8, "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", ok)
	for i := range size.Of(60, 100) { // the variants repeat after 60
		if err := s.Apply(variant(i)); err != nil {
			t.Fatal(err)
		}
		for before := l.requests.Load(); l.requests.Load() < before+20 && l.failed.Load() == 0; {
			time.Sleep(100 * time.Microsecond)
		}
	}
	l.end()
	if l.failed.Load() > 0 {
		t.Errorf("%d of %d requests failed", l.failed.Load(), l.requests.Load())
	}
}

func TestDrainUnderLoadFailsNoRequest(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Millisecond) // so that requests are in flight
		fmt.Fprint(w, "ok")
	})
	s := serve(t, plain(addr), func(o *Options) { o.DrainGrace = 100 * time.Millisecond })
	l := startLoad(t, s.addr(), 8, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", func(resp *http.Response, b string) bool { return resp.StatusCode == 200 && b == "ok" })
	for l.requests.Load() < 200 {
		time.Sleep(time.Millisecond)
	}
	l.draining.Store(true)
	s.stop()
	<-s.ended
	l.wg.Wait() // each connection ended after its last answer, and no new one was accepted
	if l.failed.Load() > 0 {
		t.Errorf("%d of %d requests failed", l.failed.Load(), l.requests.Load())
	}
}

func TestDrainWaitsForExchangesAndClosesIdleConnections(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(started)
			<-release
		}
		fmt.Fprint(w, "ok")
	})
	s := serve(t, plain(addr), func(o *Options) { o.DrainTimeout = time.Minute })
	idle, busy, fresh := newTalk(t, s.addr()), newTalk(t, s.addr()), newTalk(t, s.addr())
	idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	idle.answer("GET")
	busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	<-started
	bound := s.addr()
	s.stop()
	idle.closed()
	fresh.closed()
	if c, err := net.Dial("tcp", bound); err == nil {
		// The system may have queued it before the port closed.
		c.SetDeadline(time.Now().Add(patience))
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes from a closed port", n)
		}
		c.Close()
	}
	select {
	case <-s.ended:
		t.Error("ended with an exchange in flight")
	default:
	}
	close(release)
	if resp, body := busy.answer("GET"); body != "ok" || !resp.Close {
		t.Errorf("body %q, close %v", body, resp.Close)
	}
	busy.closed()
	<-s.ended
	if err := s.Apply(plain(addr)); !errors.Is(err, ErrEnded) {
		t.Errorf("apply after the end: %v", err)
	}
}

func TestDrainIsBounded(t *testing.T) {
	addr := rawBackend(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	cfg := plain(addr)
	s := serve(t, cfg, func(o *Options) { o.DrainTimeout = 100 * time.Millisecond })
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	h := h2cClient(t)
	done := make(chan error, 1)
	go func() {
		resp, err := h.Get("http://" + s.addr() + "/")
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	for s.upstreamInFlight() < 2 {
		time.Sleep(time.Millisecond)
	}
	s.stop()
	<-s.ended
	<-done
	// The exchange may still send the reason to the client.
	if rest, _ := io.ReadAll(k.r); len(rest) > 0 && !strings.HasPrefix(string(rest), "HTTP/1.1 502") {
		t.Errorf("answer %q", rest)
	}
}

// upstreamInFlight is how many exchanges wait for endpoints.
func (s *testServer) upstreamInFlight() (n int) {
	for _, e := range s.endpoints() {
		n += e.InFlight()
	}
	return n
}

func TestPortsComeAndGo(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") })
	one := plain(addr)
	s := serve(t, one)
	kept := newTalk(t, s.addr())
	kept.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	kept.answer("GET")

	two := plain(addr)
	extra := two.Listeners[0]
	extra.Name, extra.Port = "default/gw/extra", 81
	two.Listeners = append(two.Listeners, extra)
	two.Routes[0].Attachments = append(two.Routes[0].Attachments, model.Attachment{Listener: extra.Name, Hostnames: []string{"*"}})
	if err := s.Apply(two); err != nil {
		t.Fatal(err)
	}
	bound := s.Addr(extra.Name)
	if len(s.Addrs()) != 2 || bound == nil {
		t.Fatalf("bound: %+v", s.Addrs())
	}
	gone := newTalk(t, bound.String())
	gone.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	gone.answer("GET")

	if err := s.Apply(one); err != nil {
		t.Fatal(err)
	}
	gone.closed()
	if s.Addr(extra.Name) != nil || len(s.Addrs()) != 1 {
		t.Errorf("bound: %+v", s.Addrs())
	}
	kept.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, body := kept.answer("GET"); body != "ok" || resp.Close {
		t.Errorf("body %q, close %v", body, resp.Close)
	}
}

func TestPortChangesBetweenHTTPAndHTTPS(t *testing.T) {
	addr, _ := wire(t, okResponse)
	cfg := plain(addr)
	s := serve(t, cfg)
	old := newTalk(t, s.addr())
	old.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	old.answer("GET")
	cfg = plain(addr)
	pool := secure(t, cfg, "shop.example")
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	k := newTLSTalk(t, s.addr(), pool, "shop.example")
	k.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	// Bytes that came in cleartext must not be served as if they had come over TLS.
	old.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	if resp, _ := old.answer("GET"); resp.StatusCode != 404 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestWhatIsInvalidIsLeftOutAndTheRestIsServed(t *testing.T) {
	addr, _ := wire(t, okResponse)
	s := serve(t, plain(addr))
	bad := plain(addr)
	other := bad.Routes[0]
	other.Ref.Name = "bad"
	other.Rules = []model.Rule{other.Rules[0]}
	other.Rules[0].Matches = []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/x%00"}}}
	bad.Routes = append(bad.Routes, other)
	if err := s.Apply(bad); err != nil {
		t.Error(err)
	}
	if left := s.LeftOut(); len(left) != 1 || !strings.Contains(left[0].Reason, "escaped NUL") {
		t.Errorf("left out %v", left)
	}
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if err := s.Apply(plain(addr)); err != nil || s.LeftOut() != nil {
		t.Errorf("%v; left out %v after the mistake is gone", err, s.LeftOut())
	}
}

func TestRunEndsWithoutAConfiguration(t *testing.T) {
	s := New(Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
	if s.Run(ctx) == nil {
		t.Error("Run may be called once")
	}
}

func TestRemovedPortIsClosedWhenTheServerEnds(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-release
	})
	defer close(release)
	s := serve(t, plain(addr), func(o *Options) { o.DrainTimeout = 200 * time.Millisecond })
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-started
	if err := s.Apply(&model.Config{}); err != nil {
		t.Fatal(err)
	}
	s.stop()
	<-s.ended
	if rest, _ := io.ReadAll(k.r); len(rest) > 0 && !strings.HasPrefix(string(rest), "HTTP/1.1 502") {
		t.Errorf("answer %q", rest)
	}
}

func TestConnectionsOfARemovedPortAreServedByItsLastConfiguration(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") })
	s := serve(t, plain(addr), func(o *Options) { o.DrainGrace, o.DrainTimeout = time.Minute, time.Minute })
	s.mu.Lock()
	b := s.binds[0]
	s.mu.Unlock()
	one, two := newTalk(t, s.addr()), newTalk(t, s.addr())
	for _, k := range []*talk{one, two} {
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		k.answer("GET")
	}
	for range 2 { // a later configuration still leaves it out
		if err := s.Apply(&model.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the port is not drained", func() bool { return b.phase.Load() == phaseDrain })
	for _, k := range []*talk{one, two} {
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, body := k.answer("GET"); resp.StatusCode != 200 || body != "ok" || !resp.Close {
			t.Errorf("%s %q, close %v; want the service's answer, and the connection's end", resp.Status, body, resp.Close)
		}
		k.closed()
	}
}
