package proxy

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
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

// talkFrom is newTalk from a loopback address.
func talkFrom(t testing.TB, from, addr string) *talk {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return &talk{Conn: c, t: t, r: bufio.NewReader(c)}
}

// get sends a GET and returns the answer's status and body.
func (k *talk) get(path string, lines ...string) (int, string) {
	k.SetDeadline(time.Now().Add(patience))
	k.send(fields(append([]string{"GET " + path + " HTTP/1.1", "Host: a"}, lines...)...))
	resp, body := k.answer("GET")
	return resp.StatusCode, body
}

// reader is a backend that reads each request to its end before it answers. A request for /held waits for release; held is
// told of it.
func reader(t *testing.T) (address string, held chan struct{}, release func()) {
	ch := make(chan struct{})
	held = make(chan struct{}, 100)
	var once sync.Once
	release = func() { once.Do(func() { close(ch) }) }
	address = backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/held" {
			held <- struct{}{}
			<-ch
		}
		io.WriteString(w, "ok")
	})
	t.Cleanup(release)
	return address, held, release
}

// hold sends requests for /held, each over a connection of its own, until one is not refused but held.
func hold(t *testing.T, from, addr string, held chan struct{}) (k *talk) {
	t.Helper()
	until(t, "no request is held", func() bool {
		k = talkFrom(t, from, addr)
		k.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
		for {
			select {
			case <-held:
				k.SetReadDeadline(time.Now().Add(patience))
				return true
			default:
			}
			k.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			if _, err := k.r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
				return false
			}
		}
	})
	return k
}

// headsAlone are clients' requests of which only the head comes. statuses are those of the answers that came nevertheless.
type headsAlone struct {
	mu       sync.Mutex
	statuses map[int]int
	end      func()
}

func (h *headsAlone) answered(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.statuses == nil {
		h.statuses = map[int]int{}
	}
	h.statuses[status]++
}

func (h *headsAlone) count(status int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.statuses[status]
}

// overHTTP1 sends n heads, each over a connection of its own from an address. first is what comes of the body.
func (h *headsAlone) overHTTP1(t *testing.T, s *testServer, from, head, first string, n int) {
	var wg sync.WaitGroup
	var all []*talk
	for range n {
		k := talkFrom(t, from, s.addr())
		k.send(head + first)
		all = append(all, k)
		wg.Go(func() {
			for status := 100; status < 200; {
				resp, err := http.ReadResponse(k.r, nil)
				if err != nil {
					return
				}
				io.Copy(io.Discard, resp.Body)
				status = resp.StatusCode
				h.answered(status)
			}
		})
	}
	h.end = sync.OnceFunc(func() {
		for _, k := range all {
			k.Close()
		}
		wg.Wait()
	})
	t.Cleanup(h.end)
}

// overHTTP2 sends n heads as streams of one connection from an address.
func (h *headsAlone) overHTTP2(t *testing.T, s *testServer, from string, n int) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &protocols, DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range n {
		body, _ := io.Pipe()
		r := must(http.NewRequestWithContext(ctx, "POST", "http://"+s.addr()+"/", body))
		wg.Go(func() {
			if resp, err := tr.RoundTrip(r); err == nil {
				h.answered(resp.StatusCode)
				resp.Body.Close()
			}
		})
	}
	h.end = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		tr.CloseIdleConnections()
	})
	t.Cleanup(h.end)
}

const (
	postLength  = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
	postChunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	postExpects = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
)

// A client takes all places with heads of uploads that it never sends. It may, as long as it is alone. Once others come,
// they are answered, and it gets no more than its part.
func TestHeadsOfUploadsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	const most = 40
	retried := func(cfg *model.Config) {
		cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1, Codes: []int{503}} // keeps bodies in memory first
	}
	for _, test := range []struct {
		name string
		edit func(*model.Config)
		hold func(*headsAlone, *testing.T, *testServer)
	}{
		{"HTTP/1.1", nil, func(h *headsAlone, t *testing.T, s *testServer) { h.overHTTP1(t, s, "127.0.0.1", postLength, "", most) }},
		{"HTTP/1.1, chunked", nil, func(h *headsAlone, t *testing.T, s *testServer) {
			h.overHTTP1(t, s, "127.0.0.1", postChunked, "", most)
		}},
		{"HTTP/1.1, half a chunk's head", nil, func(h *headsAlone, t *testing.T, s *testServer) {
			h.overHTTP1(t, s, "127.0.0.1", postChunked, "5", most)
		}},
		{"HTTP/1.1, expecting 100", nil, func(h *headsAlone, t *testing.T, s *testServer) {
			h.overHTTP1(t, s, "127.0.0.1", postExpects, "", most)
		}},
		{"HTTP/1.1, with retries", retried, func(h *headsAlone, t *testing.T, s *testServer) {
			h.overHTTP1(t, s, "127.0.0.1", postLength, "", most)
		}},
		{"HTTP/2", nil, func(h *headsAlone, t *testing.T, s *testServer) { h.overHTTP2(t, s, "127.0.0.1", most) }},
		{"HTTP/2, with retries", retried, func(h *headsAlone, t *testing.T, s *testServer) { h.overHTTP2(t, s, "127.0.0.1", most) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			address, held, release := reader(t)
			cfg := plain(address)
			if test.edit != nil {
				test.edit(cfg)
			}
			s := serve(t, cfg, func(o *Options) { o.MaxInFlight, o.MinBodyRate = most, -1 })
			var h headsAlone
			test.hold(&h, t, s)
			until(t, "the client alone does not get all places", func() bool { return s.load().InFlight == most })
			other := talkFrom(t, "127.0.0.2", s.addr())
			until(t, "another client is not answered", func() bool {
				status, _ := other.get("/")
				return status == 200
			})
			for i := range 20 {
				if status, body := other.get("/"); status != 200 {
					t.Fatalf("request %d of the other client was answered %d %q", i, status, body)
				}
			}
			until(t, "no silent upload was answered", func() bool { return h.count(503) > 0 })

			// While the other client has a place, the first one is beyond its part.
			waits := hold(t, "127.0.0.2", s.addr(), held)
			more := talkFrom(t, "127.0.0.1", s.addr())
			until(t, "the first client is not refused", func() bool {
				status, body := more.get("/")
				return status == 503 && strings.HasPrefix(body, "client_overload: ")
			})
			// The place that it had has gone to the request that is held. There is another one as soon as a further upload has
			// been silent for long enough.
			until(t, "beside the refused client, the other is not answered", func() bool {
				status, _ := other.get("/")
				return status == 200
			})
			release()
			if resp, _ := waits.answer("GET"); resp.StatusCode != 200 {
				t.Errorf("the held request was answered %d", resp.StatusCode)
			}
			h.end()
			until(t, "places are still taken", func() bool {
				l := s.load()
				return l.InFlight == 0 && l.Clients == 0
			})
			l := s.load()
			if l.SharedRequests == 0 || l.SilencedRequests == 0 {
				t.Errorf("%d refused for their client's part, %d ended for silence", l.SharedRequests, l.SilencedRequests)
			}
			if n := s.failures(telemetry.ClientOverload); n < l.SharedRequests+uint64(h.count(503)) {
				t.Errorf("%d failures are counted, want at least %d", n, l.SharedRequests+uint64(h.count(503)))
			}
		})
	}
}

// Behind a trusted proxy, a client is the address that the proxy names, whatever the connection.
func TestClientsBehindATrustedProxyHaveTheirParts(t *testing.T) {
	t.Parallel()
	const most = 40
	address, _, _ := reader(t)
	s := serve(t, behind(plain(address), model.Front{TrustedProxies: []string{loopback}}), func(o *Options) { o.MaxInFlight, o.MinBodyRate = most, -1 })
	var h headsAlone
	h.overHTTP1(t, s, "127.0.0.1", "POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\nContent-Length: 5\r\n\r\n", "", most)
	until(t, "the client alone does not get all places", func() bool { return s.load().InFlight == most })
	proxy := talkFrom(t, "127.0.0.1", s.addr())
	until(t, "another client is not answered", func() bool {
		status, _ := proxy.get("/", "X-Forwarded-For: 192.0.2.2")
		return status == 200
	})
	waits := talkFrom(t, "127.0.0.1", s.addr())
	waits.send("GET /held HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.3\r\n\r\n")
	until(t, "the other client has no place", func() bool { return s.load().Clients == 2 })
	until(t, "the first client is not refused", func() bool {
		status, body := proxy.get("/", "X-Forwarded-For: 192.0.2.1")
		return status == 503 && strings.HasPrefix(body, "client_overload: ")
	})
	for i := range 20 {
		if status, body := proxy.get("/", fmt.Sprintf("X-Forwarded-For: 198.51.100.%d", i)); status != 200 {
			t.Errorf("client %d was answered %d %q", i, status, body)
		}
	}
}

// The places of one service are given way likewise.
func TestHeadsOfUploadsKeepNobodyFromAService(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]model.Limits{"the service's": {Requests: 10}, "its endpoint's": {EndpointRequests: 10}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _, _ := reader(t)
			cfg := plain(address)
			cfg.Services[0].Limits = &limits
			s := serve(t, cfg, func(o *Options) { o.MinBodyRate = -1 })
			var h headsAlone
			h.overHTTP1(t, s, "127.0.0.1", postLength, "", 10)
			until(t, "the service's places are not taken", func() bool { return s.endpoints()[0].InFlight() == 10 })
			other := talkFrom(t, "127.0.0.2", s.addr())
			until(t, "another client is not answered", func() bool {
				status, _ := other.get("/")
				return status == 200
			})
			until(t, "no silent upload was answered", func() bool { return h.count(503) > 0 })
			h.end()
			until(t, "places are still taken", func() bool { return s.load().InFlight == 0 && s.endpoints()[0].InFlight() == 0 })
		})
	}
}

// An upload that makes a pause is not one that has sent nothing.
func TestAnUploadThatPausesKeepsItsPlace(t *testing.T) {
	t.Parallel()
	address, _, _ := reader(t)
	s := serve(t, plain(address), func(o *Options) { o.MaxInFlight, o.MinBodyRate = 4, -1 })
	uploads := talkFrom(t, "127.0.0.1", s.addr())
	uploads.send(postLength + "hel")
	until(t, "the upload has not begun", func() bool { return s.load().InFlight == 1 })
	var h headsAlone
	h.overHTTP1(t, s, "127.0.0.1", postLength, "", 3)
	until(t, "not all places are taken", func() bool { return s.load().InFlight == 4 })
	other := talkFrom(t, "127.0.0.2", s.addr())
	until(t, "another client is not answered", func() bool {
		status, _ := other.get("/")
		return status == 200
	})
	until(t, "no silent upload was answered", func() bool { return h.count(503) > 0 })
	uploads.send("lo")
	if resp, _ := uploads.answer("POST"); resp.StatusCode != 200 {
		t.Errorf("the upload was answered %d", resp.StatusCode)
	}
}

// Clients of many addresses, each within its part, that do not take their answers, or send their bodies by crumbs: while
// others find no place, their time is short. Where nobody lacks a place, they still have theirs then.
func TestSlowClientsOfManyAddressesKeepNobodyOut(t *testing.T) {
	t.Parallel()
	if !socket.CanAcknowledge {
		t.Skip("this system does not tell what a client has taken")
	}
	const most = 4
	address := backend(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/length":
			w.Header().Set("Content-Length", fmt.Sprint(1<<30))
			fallthrough
		case "/chunked":
			io.CopyN(w, zeros{}, 1<<30)
		}
		io.Copy(io.Discard, r.Body)
	})
	asks := func(path string) func(*testing.T, *talk) {
		return func(t *testing.T, k *talk) { k.send("GET " + path + " HTTP/1.1\r\nHost: shop.example\r\n\r\n") }
	}
	streams := func(stream, connection uint32) func(*testing.T, *talk) {
		return func(t *testing.T, k *talk) {
			k.send(http2.ClientPreface)
			f := http2.NewFramer(k, k)
			f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: stream})
			f.WriteSettingsAck()
			if connection > 0 {
				f.WriteWindowUpdate(0, connection)
			}
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: encode([][2]string{
				{":method", "GET"}, {":scheme", "http"}, {":path", "/length"}, {":authority", "shop.example"}})})
		}
	}
	for name, test := range map[string]struct {
		tls  bool
		hold func(*testing.T, *talk)
	}{
		"spliced":                         {false, asks("/length")},
		"in pieces":                       {false, asks("/chunked")},
		"over TLS":                        {true, asks("/length")},
		"a stream without window":         {false, streams(0, 1<<30)},
		"an HTTP/2 connection, not read":  {false, streams(1<<30, 1<<30)},
		"an HTTP/2 connection, no window": {false, streams(1<<30, 0)},
		"a body by crumbs": {false, func(t *testing.T, k *talk) {
			k.send("POST /crumbs HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1000\r\n\r\n")
			crumbs(t, func() error {
				time.Sleep(time.Second)
				_, err := k.Write([]byte("x"))
				return err
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := plain(address)
			edit := func(o *Options) { o.MaxInFlight, o.BodyGrace, o.StreamTimeout = most, 20*time.Second, patience }
			var pool *x509.CertPool
			if test.tls {
				pool = secure(t, cfg, "shop.example")
			}
			s, quiet := serve(t, cfg, edit), serve(t, cfg, edit)
			from := func(s *testServer, i int) *talk {
				k := talkFrom(t, fmt.Sprintf("127.0.0.%d", i), s.addr())
				if test.tls {
					c := tls.Client(k.Conn, &tls.Config{RootCAs: pool, ServerName: "shop.example"})
					k.Conn, k.r = c, bufio.NewReader(c)
				}
				return k
			}
			for i := range most {
				test.hold(t, from(s, 2+i))
				test.hold(t, from(quiet, 2+i))
			}
			until(t, "not all places are taken", func() bool { return s.load().InFlight == most && quiet.load().InFlight == most })
			other := from(s, 9)
			refused := 0
			until(t, "another client is not answered", func() bool {
				time.Sleep(50 * time.Millisecond)
				status, _ := other.get("/")
				if status == 503 {
					refused++
				}
				return status == 200
			})
			if refused == 0 {
				t.Error("there was room from the beginning")
			}
			if n := s.failures(telemetry.ClientTimeout); n == 0 {
				t.Errorf("nobody was too slow: %v", reasonsOf(s))
			}
			if l := quiet.load(); l.InFlight != most {
				t.Errorf("where nobody lacks a place, %d of %d are left: %v", l.InFlight, most, reasonsOf(quiet))
			}
		})
	}
}

// Many clients may come from one address, such as that of a load balancer that hides them. One connection of it does not
// take more than half of the places beside others.
func TestAConnectionHasAPartOfItsAddress(t *testing.T) {
	t.Parallel()
	const most = 40
	address, _, _ := reader(t)
	s := serve(t, plain(address), func(o *Options) { o.MaxInFlight, o.MinBodyRate = most, -1 })
	other := talkFrom(t, "127.0.0.1", s.addr())
	other.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
	until(t, "the other connection has no place", func() bool { return s.load().InFlight == 1 })
	var h headsAlone
	h.overHTTP2(t, s, "127.0.0.1", most)
	until(t, "streams beyond the part are not refused", func() bool { return h.count(503) >= most/4 })
	if l := s.load(); l.InFlight > most/4*3+1 || l.SharedRequests < most/4 {
		t.Errorf("%d in flight, %d refused", l.InFlight, l.SharedRequests)
	}
	if status, body := talkFrom(t, "127.0.0.1", s.addr()).get("/"); status != 200 {
		t.Errorf("another connection was answered %d %q", status, body)
	}
}

// A client that opens connections to a TCP listener and leaves them silent takes no more than its part of all.
func TestRelaysOfOneClientKeepNobodyOut(t *testing.T) {
	t.Parallel()
	const most = 16
	s := serve(t, toAddresses(echo(t, "db")), func(o *Options) { o.MaxConnections = most })
	var all []net.Conn
	relayed := func(from string) bool {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", s.addr())
		if err != nil {
			return false // it may be reset at once
		}
		t.Cleanup(func() { c.Close() })
		all = append(all, c)
		c.SetDeadline(time.Now().Add(patience))
		var b [2]byte
		_, err = io.ReadFull(c, b[:])
		return err == nil
	}
	served := 0
	for range most {
		if relayed("127.0.0.1") {
			served++
		}
	}
	if served != most/4*3 {
		t.Errorf("one client got %d of %d connections, want %d", served, most, most/4*3)
	}
	until(t, "refused connections are still counted", func() bool { return s.load().Connections == most/4*3 })
	for i := range most / 4 {
		if !relayed("127.0.0.2") {
			t.Errorf("connection %d of another client was not served", i)
		}
	}
	for _, c := range all {
		c.Close()
	}
	if n := s.failures(telemetry.ClientOverload); n != most/4 {
		t.Errorf("%d failures counted, want %d", n, most/4)
	}
}
