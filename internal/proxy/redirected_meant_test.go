package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/socket"
)

// counted is a backend that counts its connections.
type counted struct {
	at   netip.AddrPort
	mu   sync.Mutex
	came int
	open map[net.Conn]bool
	// together is for how many requests at a time its answers wait.
	together, here atomic.Int32
}

func newCounted(t *testing.T, name string) *counted {
	c := &counted{open: map[net.Conn]bool{}}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for c.here.Add(1); c.here.Load() < c.together.Load(); time.Sleep(time.Millisecond) {
		}
		fmt.Fprint(w, name, " ", r.URL.Path)
	}))
	s.Config.ConnState = func(nc net.Conn, state http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch state {
		case http.StateNew:
			c.came++
			c.open[nc] = true
		case http.StateClosed, http.StateHijacked:
			delete(c.open, nc)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	c.at = s.Listener.Addr().(*net.TCPAddr).AddrPort()
	return c
}

// has waits until so many connections are open, of so many that came, or of up to more of them.
func (c *counted) has(t *testing.T, came, open int, more ...int) {
	t.Helper()
	most := came
	for _, n := range more {
		most += n
	}
	var gotCame, gotOpen int
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		gotCame, gotOpen = c.came, len(c.open)
		c.mu.Unlock()
		if gotCame >= came && gotCame <= most && gotOpen == open {
			return
		}
	}
	t.Errorf("%d connections came and %d are open, want %d and %d", gotCame, gotOpen, came, open)
}

// TestRequestsGoToTheAddressThatWasMeant where nobody said what a port carries: each client's connection has connections of its
// own there, which end with it.
func TestRequestsGoToTheAddressThatWasMeant(t *testing.T) {
	first, second := newCounted(t, "first"), newCounted(t, "second")
	greets := netip.MustParseAddrPort(greeter(t))
	ref := model.Ref{Kind: "Pod", Namespace: "shop", Name: "cart-1"}
	rule := ruleTo("rest")
	route := func(kind model.RouteKind) model.Route {
		r := model.Route{Ref: ref, Kind: kind, Attachments: []model.Attachment{{Listener: "rest", Hostnames: []string{"*"}}}, Rules: []model.Rule{rule}}
		if kind == model.RouteTCP {
			r.Rules = []model.Rule{{Backends: rule.Backends}}
		}
		return r
	}
	cfg := &model.Config{
		Listeners: []model.Listener{{Name: "rest", Ref: ref, Redirect: model.RedirectInbound, Protocol: model.HTTP, Detect: true}},
		Routes:    []model.Route{route(model.RouteHTTP), route(model.RouteTCP)},
		Services:  []model.Service{{Name: "rest", Protocol: model.HTTP, Meant: true}},
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	meant := map[byte]netip.AddrPort{1: first.at, 2: second.at, 3: greets, 4: netip.MustParseAddrPort("127.0.0.1:1")}
	s, at := redirected(t, cfg, func(o *Options) {
		o.Original = func(nc net.Conn) (netip.AddrPort, error) {
			return meant[nc.LocalAddr().(*net.TCPAddr).IP.To4()[3]], nil
		}
		o.quiet = time.Minute
		o.Listen = func(network, _ string) (socket.Bound, error) { return socket.Open(network, "0.0.0.0:0") }
	})

	k := newTalk(t, at("127.0.0.1"))
	ask := func(path string) {
		t.Helper()
		k.send("GET " + path + " HTTP/1.1\r\nHost: any.example\r\n\r\n")
		if resp, body := k.answer("GET"); resp.StatusCode != 200 || body != "first "+path {
			t.Errorf("%d %q", resp.StatusCode, body)
		}
	}
	ask("/a")
	ask("/b")
	first.has(t, 1, 1)
	other := newTalk(t, at("127.0.0.2"))
	other.send("GET /c HTTP/1.1\r\nHost: any.example\r\n\r\n")
	if resp, body := other.answer("GET"); resp.StatusCode != 200 || body != "second /c" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	second.has(t, 1, 1)

	changed := *cfg
	changed.Services = []model.Service{{Name: "rest", Protocol: model.HTTP, Meant: true, Limits: &model.Limits{Requests: 7}}}
	if err := s.Apply(&changed); err != nil {
		t.Fatal(err)
	}
	ask("/d")
	first.has(t, 2, 1) // the former one has no user any more
	k.Close()
	first.has(t, 2, 0)
	second.has(t, 1, 1)
	other.Close()
	second.has(t, 1, 0)

	// Requests at a time have a connection each, of which one rests.
	many := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", at("127.0.0.2"))
	}}
	many.Protocols.SetUnencryptedHTTP2(true)
	once := func() {
		resp, err := many.RoundTrip(httptest.NewRequest("GET", "http://any.example/", nil))
		if err != nil {
			t.Error(err)
			return
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	once()
	second.has(t, 2, 1)
	second.here.Store(0)
	second.together.Store(4)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(once)
	}
	wait.Wait()
	const slow = 4 // a connect that takes long is given up for another
	second.has(t, 5, 1, slow)
	many.CloseIdleConnections()
	second.has(t, 5, 0, slow)

	resp, err := h2Plain(t, at("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(body) != "first /" {
		t.Errorf("over HTTP/2: %d %q", resp.StatusCode, body)
	}
	resp.Body.Close()
	if got := say(t, at("127.0.0.3"), "EHLO a\r\n"); got != "220 ready\r\nEHLO a\r\nbye" {
		t.Errorf("a server that speaks first: %q", got)
	}
	nobody := newTalk(t, at("127.0.0.4"))
	nobody.send("GET / HTTP/1.1\r\nHost: any.example\r\n\r\n")
	if resp, _ := nobody.answer("GET"); resp.StatusCode != 502 && resp.StatusCode != 503 {
		t.Errorf("nobody is there: %d", resp.StatusCode)
	}
}
