package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// gone is a server of a redirect outbound that has a listener of HTTP for 10.0.0.7:8002, or has lost it. All other addresses
// are relayed to another server.
type gone struct {
	*testServer
	with, without *model.Config
	at            string
	asked         atomic.Int64
	unknown       atomic.Pointer[func(context.Context) error]
}

func newGone(t *testing.T, edit ...func(*Options)) *gone {
	t.Helper()
	g := &gone{}
	says := func(name string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var p http.Protocols
		p.SetHTTP1(true)
		p.SetUnencryptedHTTP2(true)
		s := &http.Server{Protocols: &p, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s%s", name, r.Method, body)
		})}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
		return l.Addr().String()
	}
	beside := func(c model.Config, name, address string, port int32, protocol model.Protocol) *model.Config {
		ref := model.Ref{Kind: "Service", Namespace: "shop", Name: name}
		r := model.Route{Ref: ref, Attachments: []model.Attachment{{Listener: name, Hostnames: []string{"*"}}}, Rules: []model.Rule{ruleTo(name)}}
		if protocol == model.TCP {
			r.Kind, r.Rules[0].Matches = model.RouteTCP, nil
		}
		c.Listeners = append(slices.Clone(c.Listeners), model.Listener{Name: name, Ref: ref, Redirect: model.RedirectOutbound, Address: address, Port: port, Protocol: protocol})
		c.Routes, c.Services = append(slices.Clone(c.Routes), r), append(slices.Clone(c.Services), service(name, model.HTTP, says(name)))
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		return &c
	}
	g.without = beside(model.Config{}, "other", "", 0, model.TCP)
	g.with = beside(*g.without, "web", "10.0.0.7", 8002, model.HTTP)
	s, at := redirected(t, g.with, append([]func(*Options){func(o *Options) {
		o.Unknown = func(ctx context.Context, to netip.AddrPort) error {
			if to.Port() != 8002 {
				return nil
			}
			g.asked.Add(1)
			return (*g.unknown.Load())(ctx)
		}
	}}, edit...)...)
	g.testServer, g.at = s, at("127.0.0.2")
	g.answers(func(context.Context) error { return nil })
	return g
}

func (g *gone) answers(f func(context.Context) error) { g.unknown.Store(&f) }

func (g *gone) apply(t *testing.T, c *model.Config) {
	t.Helper()
	if err := g.Apply(c); err != nil {
		t.Fatal(err)
	}
}

func (k *talk) gets(t *testing.T, want string) {
	t.Helper()
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, body := k.answer("GET"); resp.StatusCode != 200 || body != want {
		t.Errorf("%d %q, want %q", resp.StatusCode, body, want)
	}
}

// overHTTP2 returns what gets an answer over a connection that is kept, "" for an error, and how many connections there were.
func overHTTP2(t *testing.T, at string) (get func() string, dialled *atomic.Int64) {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	dialled = &atomic.Int64{}
	tr := &http.Transport{Protocols: &p, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	client := &http.Client{Transport: tr, Timeout: patience}
	return func() string {
		resp, err := client.Get("http://" + at + "/")
		if err != nil {
			t.Log(err)
			return ""
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 {
			return resp.Status
		}
		return string(body)
	}, dialled
}

// TestAKeptConnectionAsksForItsAddressAgain has the listener of a kept connection come back within its next request.
func TestAKeptConnectionAsksForItsAddressAgain(t *testing.T) {
	g := newGone(t)
	g.answers(func(context.Context) error { return g.Apply(g.with) })
	k := newTalk(t, g.at)
	get, dialled := overHTTP2(t, g.at)
	k.gets(t, "web GET")
	if got := get(); got != "web GET" || g.asked.Load() != 0 {
		t.Fatalf("%q, asked %d times", got, g.asked.Load())
	}
	for i := range int64(3) {
		g.apply(t, g.without)
		k.gets(t, "web GET")
		k.gets(t, "web GET")
		g.apply(t, g.without)
		if got := get(); got != "web GET" || dialled.Load() != 1 || g.asked.Load() != 2*(i+1) {
			t.Fatalf("%q over %d connections, asked %d times", got, dialled.Load(), g.asked.Load())
		}
	}
}

// TestAKeptConnectionGoesOnWhereANewOneWould has the listener of a kept connection go for good: requests are answered by what
// is at the address beside the mesh, however they come.
func TestAKeptConnectionGoesOnWhereANewOneWould(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Options)
	}{{"asked", func(*Options) {}}, {"never asked", func(o *Options) { o.Unknown = nil }}} {
		t.Run(c.name, func(t *testing.T) {
			g := newGone(t, c.edit)
			idle, posts, pipelined := newTalk(t, g.at), newTalk(t, g.at), newTalk(t, g.at)
			get, dialled := overHTTP2(t, g.at)
			for _, k := range []*talk{idle, posts, pipelined} {
				k.gets(t, "web GET")
			}
			if got := get(); got != "web GET" {
				t.Fatal(got)
			}
			g.apply(t, g.without)
			for range 3 {
				idle.gets(t, "other GET")
			}
			posts.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n-one")
			posts.send("-two")
			if _, body := posts.answer("POST"); body != "other POST-one-two" {
				t.Errorf("a body in pieces: %q", body)
			}
			pipelined.send(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 3))
			for range 3 {
				if _, body := pipelined.answer("GET"); body != "other GET" {
					t.Errorf("pipelined: %q", body)
				}
			}
			for range 3 {
				if got := get(); got != "other GET" {
					t.Errorf("over HTTP/2: %q", got)
				}
			}
			if dialled.Load() != 2 {
				t.Errorf("%d connections of HTTP/2", dialled.Load())
			}
		})
	}
}

// TestAKeptConnectionEndsIfNobodyAnswers has nobody to ask where the connection may have to be one of the mesh.
func TestAKeptConnectionEndsIfNobodyAnswers(t *testing.T) {
	g := newGone(t)
	g.answers(func(context.Context) error { return errors.New("nobody answers") })
	k := newTalk(t, g.at)
	get, dialled := overHTTP2(t, g.at)
	k.gets(t, "web GET")
	get()
	g.apply(t, g.without)
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 503 || !resp.Close || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d, %v", resp.StatusCode, resp.Header)
	}
	k.closed()
	if got := get(); got != "" {
		t.Errorf("over HTTP/2: %q", got)
	}
	g.answers(func(context.Context) error { return g.Apply(g.with) })
	if got := get(); got != "web GET" || dialled.Load() < 2 {
		t.Errorf("over HTTP/2: %q by %d connections", got, dialled.Load())
	}
}

// TestADestinationIsGivenUpOnlyIfNoConnectionComes has connections come before, between and after Used and Release.
func TestADestinationIsGivenUpOnlyIfNoConnectionComes(t *testing.T) {
	g := newGone(t)
	to := netip.MustParseAddrPort("10.0.0.7:8002")
	once := func(want string) {
		t.Helper()
		k := newTalk(t, g.at)
		defer k.Close()
		k.gets(t, want)
	}
	once("web GET")
	if g.Release(to) {
		t.Error("given up, though a connection came since Used")
	}
	until(t, "the connection is in use", func() bool { return !g.Used()[to] })
	once("web GET")
	if g.Release(to) || !g.Used()[to] {
		t.Error("given up, though a connection came between")
	}
	until(t, "the connection is in use", func() bool { return !g.Used()[to] })
	g.apply(t, g.with)
	if !g.Release(to) || g.Release(to) {
		t.Error("not given up once")
	}
	// It is in the configuration still, but a connection asks for it, which brings it back.
	g.answers(func(context.Context) error { return g.Apply(g.with) })
	once("web GET")
	once("web GET")
	if g.asked.Load() != 1 || g.Release(to) {
		t.Errorf("asked %d times", g.asked.Load())
	}
	until(t, "the connection is in use", func() bool { return !g.Used()[to] })
	if !g.Release(to) {
		t.Error("not given up")
	}
	g.answers(func(context.Context) error { return errors.New("nobody answers") })
	if c, err := net.Dial("tcp", g.at); err == nil {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("without an answer: %v", err)
		}
		c.Close()
	}
	if !g.Release(netip.MustParseAddrPort("10.0.0.7:8003")) {
		t.Error("what is not there is not given up")
	}
}
