package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

// exchanges returns how many requests were answered, and how many of them were loops.
func (s *testServer) exchanges() (all, loops uint64) {
	for _, x := range s.metrics.Snapshot().Exchanges {
		for _, c := range x.Codes {
			all += c.Count
		}
		for _, f := range x.Reasons {
			if f.Reason == telemetry.LoopDetected {
				loops += f.Count
			}
		}
	}
	return all, loops
}

// looped serves a configuration whose service leads back to the proxy.
func looped(t testing.TB, change func(*model.Config), edit ...func(*Options)) *testServer {
	cfg := plain("127.0.0.1:1")
	s := serve(t, cfg, edit...)
	cfg = plain(s.addr())
	if change != nil {
		change(cfg)
	}
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestALoopEndsWhereItBeginsAgain(t *testing.T) {
	request := "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, test := range []struct {
		name, request string
		change        func(*model.Config)
		edit          func(*Options)
		most          uint64
	}{
		{"plain", request, nil, nil, 2},
		{"Via is off", request, nil, func(o *Options) { o.Via = exchange.ViaOff }, 2},
		{"Via is in requests alone", request, nil, func(o *Options) { o.Via = exchange.ViaRequests }, 2},
		{"over HTTP/2", request, func(c *model.Config) { c.Services[0].Protocol = model.H2C }, nil, 2},
		{"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", nil, nil, 2},
		{"with an upgrade", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", nil, nil, 2},
		{"with a body", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", nil, nil, 2},
		{"Connection names the mark", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Via, Weir-Via\r\n\r\n", nil, nil, 2},
		{"a comment that does not end", "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 x (, \\\r\nWeir-Via: (\r\n\r\n", nil, nil, 2},
		{"filters that remove the mark", request, func(c *model.Config) {
			edit := &model.HeaderEdit{Remove: []string{"Via", "weir-via"}}
			c.Routes[0].Rules[0].Filters.RequestHeaders, c.Routes[0].Rules[0].Backends[0].Filters.RequestHeaders = edit, edit
		}, nil, 2},
		{"filters that set the mark", request, func(c *model.Config) {
			c.Routes[0].Rules[0].Filters.RequestHeaders = &model.HeaderEdit{Set: []model.HeaderValue{{Name: "via", Value: "1.1 x"}, {Name: "Weir-Via", Value: ""}}}
		}, func(o *Options) { o.Via = exchange.ViaOff }, 2},
		{"a rewrite of host and path", request, func(c *model.Config) {
			c.Routes[0].Rules[0].Filters.Rewrite = &model.Rewrite{Hostname: "b", Path: &model.PathPatch{Value: "/y"}}
		}, nil, 2},
		{"retries", request, func(c *model.Config) {
			c.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 3, Codes: []int{500, 502, 503, 504}}
		}, nil, 2},
		{"a request may pass three times", request, nil, func(o *Options) { o.MaxPasses = 3 }, 4},
		{"a request may pass for ever", request, nil, func(o *Options) { o.MaxPasses = 1000 }, exchange.DefaultMaxHops + 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := looped(t, test.change, func(o *Options) {
				if test.edit != nil {
					test.edit(o)
				}
			})
			k := newTalk(t, s.addr())
			k.send(test.request)
			if resp, _ := k.answer("GET"); resp.StatusCode != 508 {
				t.Errorf("status %d, want 508", resp.StatusCode)
			}
			s.stop()
			<-s.ended
			if all, loops := s.exchanges(); all != test.most || loops != 1 {
				t.Errorf("%d exchanges, %d loops; want %d and 1", all, loops, test.most)
			}
		})
	}
}

func TestAMirrorThatLeadsBackGetsOneCopy(t *testing.T) {
	for _, via := range []exchange.Via{exchange.ViaAll, exchange.ViaOff} {
		for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
			cfg := plain("127.0.0.1:1")
			primary := backend(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") })
			s := serve(t, cfg, func(o *Options) { o.Via = via })
			cfg = mirrored(primary, s.addr(), 1, 1)
			cfg.Services[1].Protocol = protocol
			// The rule removes every field that shows the loop.
			cfg.Routes[0].Rules[0].Filters.RequestHeaders = &model.HeaderEdit{Remove: []string{"Via", "Weir-Via", "Weir-Mirrored"}}
			if err := s.Apply(cfg); err != nil {
				t.Fatal(err)
			}
			k := newTalk(t, s.addr())
			for range 10 {
				k.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
				if resp, body := k.answer("GET"); resp.StatusCode != 200 || body != "served" {
					t.Fatalf("status %d, %q", resp.StatusCode, body)
				}
			}
			s.stop()
			<-s.ended
			if m := s.mirrorSnapshot(); m.Selected != 10 {
				t.Errorf("%d copies of 10 requests", m.Selected)
			}
			if all, loops := s.exchanges(); all > 20 || all-10 != loops {
				t.Errorf("%d exchanges, %d loops", all, loops)
			}
		}
	}
}

// ring serves n proxies, each of which forwards to the next.
func ring(t testing.TB, n int, edit func(i int, o *Options)) []*testServer {
	var all []*testServer
	for i := range n {
		all = append(all, serve(t, plain("127.0.0.1:1"), func(o *Options) { edit(i, o) }))
	}
	for i, s := range all {
		if err := s.Apply(plain(all[(i+1)%n].addr())); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestALoopThroughOthersIsFound(t *testing.T) {
	for _, test := range []struct {
		name   string
		n      int
		edit   func(i int, o *Options)
		served uint64 // by all proxies together
	}{
		{"two gateways", 2, func(i int, o *Options) { o.Pseudonym = fmt.Sprint("weir-", i) }, 3},
		{"two gateways, one without Via", 2, func(i int, o *Options) { o.Pseudonym, o.Via = fmt.Sprint("weir-", i), exchange.Via(i)*exchange.ViaOff }, 3},
		{"replicas of one gateway", 5, func(_ int, o *Options) { o.Pseudonym = "weir-edge" }, 2},
		{"processes of random names", 3, func(_ int, o *Options) { o.Pseudonym = "" }, 4},
		{"more than there may be", exchange.DefaultMaxHops + 5, func(_ int, o *Options) { o.Pseudonym = "" }, exchange.DefaultMaxHops + 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := ring(t, test.n, test.edit)
			k := newTalk(t, all[0].addr())
			k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if resp, _ := k.answer("GET"); resp.StatusCode != 508 {
				t.Errorf("status %d, want 508", resp.StatusCode)
			}
			var served, found uint64
			for _, s := range all {
				s.stop()
				<-s.ended
				n, loops := s.exchanges()
				served, found = served+n, found+loops
			}
			if served != test.served || found != 1 {
				t.Errorf("%d exchanges, %d loops; want %d and 1", served, found, test.served)
			}
		})
	}
}

func TestAChainOfGatewaysServes(t *testing.T) {
	addr, heads := wire(t, "HTTP/1.1 200 OK\r\nVia: 1.0 cache\r\nContent-Length: 2\r\n\r\nok")
	inner := serve(t, plain(addr), func(o *Options) { o.Pseudonym = "" })
	cfg := plain(inner.addr())
	cfg.Services[0].Protocol = model.H2C
	edge := serve(t, cfg, func(o *Options) { o.Pseudonym = "edge" })
	k := newTalk(t, edge.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 fred, 2 cdn.example (a, b)\r\n\r\n")
	resp, body := k.answer("GET")
	if resp.StatusCode != 200 || body != "ok" {
		t.Fatalf("status %d, %q", resp.StatusCode, body)
	}
	if got, want := fmt.Sprint(resp.Header["Via"]), "[1.0 cache 1.1 "+inner.pipe.Pseudonym+" 2 edge]"; got != want {
		t.Errorf("the client gets Via %s, want %s", got, want)
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(<-heads)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(r.Header["Via"]), "[1.0 fred, 2 cdn.example (a, b) 1.1 edge 2 "+inner.pipe.Pseudonym+"]"; got != want {
		t.Errorf("the backend gets Via %s, want %s", got, want)
	}
}

func TestViaCanBeLeftOut(t *testing.T) {
	for via, want := range map[exchange.Via][2]string{exchange.ViaAll: {"Via: 1.1 weir\r\n", "1.1 weir"}, exchange.ViaRequests: {"Via: 1.1 weir\r\n", ""}, exchange.ViaOff: {"Weir-Via: 1.1 weir\r\n", ""}} {
		addr, heads := wire(t, okResponse)
		cfg := plain(addr)
		s := serve(t, cfg, func(o *Options) { o.Via = via })
		k := newTalk(t, s.addr())
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, _ := k.answer("GET")
		if head := <-heads; !strings.Contains(head, "\r\n"+want[0]) || strings.Count(strings.ToLower(head), "via:") != 1 {
			t.Errorf("%d: the backend gets %q", via, head)
		}
		if got := resp.Header.Get("Via"); got != want[1] {
			t.Errorf("%d: the client gets %q", via, got)
		}
	}
	cfg := plain(backend(t, func(http.ResponseWriter, *http.Request) {}))
	cfg.Routes[0].Rules[0].Filters.ResponseHeaders = &model.HeaderEdit{Remove: []string{"Via"}}
	k := newTalk(t, serve(t, cfg).addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.Header["Via"] != nil {
		t.Errorf("a filter removes Via, but the client gets %v", resp.Header["Via"])
	}
}

func TestMaxForwards(t *testing.T) {
	addr, heads := wire(t, okResponse)
	s := serve(t, plain(addr))
	for _, test := range []struct {
		method, value string
		status        int
		forwarded     string // "" if it is answered here
	}{
		{"OPTIONS", "0", 204, ""}, {"OPTIONS", "00", 204, ""}, {"OPTIONS", "1", 200, "0"}, {"OPTIONS", "10", 200, "9"},
		{"OPTIONS", "99999999999999999999999", 200, "2147483647"}, {"OPTIONS", "", 400, ""}, {"OPTIONS", "-1", 400, ""},
		{"OPTIONS", "+1", 400, ""}, {"OPTIONS", "1, 2", 400, ""}, {"OPTIONS", "1\r\nmax-forwards: 1", 400, ""}, {"OPTIONS", "0x1", 400, ""},
		{"TRACE", "0", 200, ""}, {"TRACE", "5", 200, "4"}, {"GET", "0", 200, "0"}, {"GET", "x", 200, "x"}, {"POST", "0", 200, "0"},
	} {
		t.Run(test.method+" "+test.value, func(t *testing.T) {
			k := newTalk(t, s.addr())
			k.send(test.method + " /x HTTP/1.1\r\nHost: a\r\nMAX-Forwards: " + test.value + "\r\nCookie: secret\r\nX-Key: secret\r\nAuthorization: secret\r\nVia: 1.0 b\r\n\r\n")
			resp, body := k.answer(test.method)
			if resp.StatusCode != test.status {
				t.Fatalf("status %d, want %d", resp.StatusCode, test.status)
			}
			switch {
			case test.forwarded != "":
				if head := <-heads; !strings.Contains(head, "\r\nMAX-Forwards: "+test.forwarded+"\r\n") {
					t.Errorf("forwarded %q", head)
				}
				return
			case len(heads) > 0:
				t.Errorf("forwarded %q", <-heads)
			}
			if test.method == "TRACE" {
				want := "TRACE /x HTTP/1.1\r\nHost: a\r\nMAX-Forwards: 0\r\nVia: 1.0 b\r\n\r\n"
				if body != want || resp.Header.Get("Content-Type") != "message/http" {
					t.Errorf("%s %q, want %q", resp.Header.Get("Content-Type"), body, want)
				}
			} else if test.status == 204 && resp.Header.Get("Allow") == "" {
				t.Error("no Allow")
			}
		})
	}
	resp, err := h2cClient(t).Do(&http.Request{Method: "TRACE", URL: &url.URL{Scheme: "http", Host: s.addr(), Path: "/y"}, Header: http.Header{"Max-Forwards": {"0"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); !strings.HasPrefix(string(b), "TRACE /y HTTP/2.0\r\nHost: "+s.addr()+"\r\n") {
		t.Errorf("over HTTP/2: %q", b)
	}
}
