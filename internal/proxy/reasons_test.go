package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

// provocation is a way to make an exchange, or a connection, fail for a reason.
type provocation struct {
	reason telemetry.Reason
	status int // the client gets; 0: no answer
	// config is the configuration to serve, edit changes the options. The zero values serve a backend that answers 200.
	config func(t *testing.T) *model.Config
	edit   func(*Options)
	// request is sent over a connection. If client is set, it does anything else that a client can do, and returns the
	// status it saw.
	request string
	client  func(t *testing.T, s *testServer) int
	// unlogged: the failure is not an exchange's, so it is counted but not in the access log.
	unlogged bool
}

const simple = "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n"

// provocations are all ways in which an exchange fails before its answer has begun, at least one for each reason.
func provocations() []provocation {
	to := func(edit func(t *testing.T, c *model.Config)) func(t *testing.T) *model.Config {
		return func(t *testing.T) *model.Config {
			addr, _ := wire(t, okResponse)
			cfg := plain(addr)
			edit(t, cfg)
			return cfg
		}
	}
	at := func(protocol model.Protocol, start func(t *testing.T) string) func(t *testing.T) *model.Config {
		return func(t *testing.T) *model.Config {
			return config([]model.Service{service(serviceName, protocol, start(t))}, ruleTo(serviceName))
		}
	}
	answering := func(response string) func(t *testing.T) *model.Config {
		return at(model.HTTP, func(t *testing.T) string { addr, _ := wire(t, response); return addr })
	}
	mute := func(t *testing.T) string { return rawBackend(t, func(c net.Conn) { io.Copy(io.Discard, c) }) }
	// Translators write faults into a model: 503 for a GRPCRoute, else 500.
	fault := func(reason string, status int) func(t *testing.T) *model.Config {
		return to(func(_ *testing.T, c *model.Config) {
			b := &c.Routes[0].Rules[0].Backends[0]
			b.Service, b.Fault = "", &model.Fault{Reason: reason, Status: status}
		})
	}
	overTLS := func(protocol model.Protocol, certificate func(*testing.T, *peertest.TLS), names ...string) func(t *testing.T) *model.Config {
		return func(t *testing.T) *model.Config {
			b := peertest.NewTLS(t, tls.VersionTLS13)
			b.Config.NextProtos = names
			cfg := config([]model.Service{service(serviceName, protocol, rawBackend(t, b.Serve(func(c net.Conn) { io.Copy(io.Discard, c) })))}, ruleTo(serviceName))
			certificate(t, b)
			return b.OverTLS(cfg)
		}
	}
	// One request is held by a backend while a client sends another.
	var h *held
	busy := func(limits *model.Limits) func(t *testing.T) *model.Config {
		return func(t *testing.T) *model.Config {
			h = newHeld(t)
			cfg := plain(h.address)
			cfg.Services[0].Limits = limits
			return cfg
		}
	}
	beside := func(t *testing.T, s *testServer) int {
		defer h.hold(t, s, 1)()
		k := newTalk(t, s.addr())
		k.send(simple)
		return statusOf(k.Conn)
	}
	short := func(o *Options) {
		o.HeaderTimeout, o.BodyGrace, o.MinBodyRate = 100*time.Millisecond, 100*time.Millisecond, 1<<20
	}
	return []provocation{
		{reason: telemetry.BadRequest, status: 400, request: "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
		{reason: telemetry.BadRequest, status: 400, request: "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{reason: telemetry.HeadTooLarge, status: 414, request: "GET /" + strings.Repeat("a", 100_000) + " HTTP/1.1\r\nHost: a\r\n\r\n"},
		{reason: telemetry.HeadTooLarge, status: 431, request: "GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", 100_000) + "\r\n\r\n"},
		{reason: telemetry.BodyTooLarge, status: 413, edit: func(o *Options) { o.MaxBody = 10 }, request: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n"},
		{reason: telemetry.BadBody, status: 400, request: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"},
		{reason: telemetry.Unsupported, status: 405, request: "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"},
		{reason: telemetry.Unsupported, status: 417, request: "GET / HTTP/1.1\r\nHost: a\r\nExpect: a-miracle\r\n\r\n"},
		{reason: telemetry.Unsupported, status: 501, request: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"},
		{reason: telemetry.ClientTimeout, status: 408, edit: short, request: "GET / HTTP/1.1\r\nHost"},
		{reason: telemetry.ClientTimeout, status: 408, edit: short, config: at(model.HTTP, mute), request: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"},
		{reason: telemetry.ClientClosed, config: at(model.HTTP, mute), client: func(t *testing.T, s *testServer) int {
			k := newTalk(t, s.addr())
			k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
			k.Close()
			return 0
		}},
		{reason: telemetry.ClientProtocol, unlogged: true, client: func(t *testing.T, s *testServer) int {
			k := newTalk(t, s.addr())
			k.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x06\x00\x00\x00\x00\x00") // a PING without its octets, before any SETTINGS
			io.Copy(io.Discard, k.Conn)
			return 0
		}},
		{reason: telemetry.ClientTLS, unlogged: true, config: to(func(t *testing.T, c *model.Config) { secure(t, c, "shop.example") }),
			client: func(t *testing.T, s *testServer) int {
				k := newTalk(t, s.addr())
				k.send("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00")
				io.Copy(io.Discard, k.Conn)
				return 0
			}},
		{reason: telemetry.AmbiguousPath, status: 400, request: "GET /a%2fb HTTP/1.1\r\nHost: a\r\n\r\n",
			config: to(func(_ *testing.T, c *model.Config) { c.Listeners[0].PathPolicy = model.PathStrict })},
		{reason: telemetry.AccessDenied, status: 403, request: simple, config: to(func(_ *testing.T, c *model.Config) {
			c.Workloads = []model.Workload{{Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "web"}, Deny: model.DenyAll}}
			c.Listeners[0].Workload = c.Workloads[0].Name()
		})},
		{reason: telemetry.ProxyHeader, unlogged: true, request: simple, config: to(func(_ *testing.T, c *model.Config) { behind(c, proxied) })},

		{reason: telemetry.NoListener, status: 404, request: simple, config: to(func(_ *testing.T, c *model.Config) {
			c.Listeners[0].Hostname = "other.example"
			c.Routes[0].Attachments[0].Hostnames = []string{"other.example"}
		})},
		{reason: telemetry.Misdirected, status: 421, config: func(t *testing.T) *model.Config {
			addr, _ := wire(t, okResponse)
			cfg, _ := twoNames(t, addr)
			return cfg
		}, client: func(t *testing.T, s *testServer) int {
			c, err := tls.Dial("tcp", s.addr(), &tls.Config{ServerName: "one.example", InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: two.example\r\n\r\n")
			return statusOf(c)
		}},
		{reason: telemetry.NoRoute, status: 404, request: simple, config: to(func(_ *testing.T, c *model.Config) { c.Routes[0].Rules[0].Matches[0].Path.Value = "/other" })},
		{reason: telemetry.NoBackend, status: 500, request: simple, config: to(func(_ *testing.T, c *model.Config) { c.Routes[0].Rules[0].Backends = nil })},
		{reason: telemetry.BackendNotFound, status: 500, request: simple, config: fault("BackendNotFound", 500)},
		{reason: telemetry.BackendNotFound, status: 503, request: simple, config: fault("BackendNotFound", 503)},
		{reason: telemetry.RefNotPermitted, status: 500, request: simple, config: fault("RefNotPermitted", 500)},
		{reason: telemetry.RefNotPermitted, status: 503, request: simple, config: fault("RefNotPermitted", 503)},
		{reason: telemetry.InvalidKind, status: 500, request: simple, config: fault("InvalidKind", 500)},
		{reason: telemetry.InvalidKind, status: 503, request: simple, config: fault("InvalidKind", 503)},
		{reason: telemetry.InvalidConfig, status: 500, request: simple, config: fault("UnsupportedValue", 500)},
		{reason: telemetry.InvalidConfig, status: 503, request: simple, config: fault("UnsupportedValue", 503)},
		{reason: telemetry.LoopDetected, status: 508, request: "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 weir\r\n\r\n"},
		{reason: telemetry.AddressRefused, status: 500, request: simple, edit: func(o *Options) {
			o.Upstream.Refuse = func(netip.AddrPort) string { return "is not to be reached" }
		}},

		{reason: telemetry.NoEndpoint, status: 503, request: simple, config: to(func(_ *testing.T, c *model.Config) { c.Services[0].Endpoints = nil })},
		{reason: telemetry.ConnectFailed, status: 502, request: simple, config: at(model.HTTP, func(t *testing.T) string { return peertest.Refusing(t) })},
		{reason: telemetry.ConnectFailed, status: 502, request: simple, config: at(model.H2C, func(t *testing.T) string { return peertest.Refusing(t) })},
		{reason: telemetry.ConnectTimeout, status: 504, request: simple, config: at(model.H2C, mute), edit: func(o *Options) { o.Upstream.ConnectTimeout = 50 * time.Millisecond }},
		{reason: telemetry.BackendTLS, status: 502, request: simple, config: overTLS(model.HTTP, func(t *testing.T, b *peertest.TLS) { b.Authority = peertest.NewAuthority(t).PEM }, "http/1.1")},
		{reason: telemetry.BackendTLS, status: 502, request: simple, config: to(func(_ *testing.T, c *model.Config) { c.Services[0].TLS = &model.ServiceTLS{Hostname: "a.example"} }),
			edit: func(o *Options) { o.Upstream.ConnectTimeout = time.Second }},
		{reason: telemetry.BackendProtocol, status: 502, request: simple, config: overTLS(model.H2C, func(*testing.T, *peertest.TLS) {}, "http/1.1")},
		{reason: telemetry.BackendReset, status: 502, request: simple, config: at(model.HTTP, func(t *testing.T) string {
			return rawBackend(t, func(c net.Conn) { rawHead(bufio.NewReader(c)) })
		})},
		{reason: telemetry.BackendTimeout, status: 504, request: simple, config: func(t *testing.T) *model.Config {
			cfg := plain(mute(t))
			cfg.Routes[0].Rules[0].Timeouts.BackendRequest = model.Duration(50 * time.Millisecond)
			return cfg
		}},
		{reason: telemetry.RequestTimeout, status: 504, request: simple, config: func(t *testing.T) *model.Config {
			cfg := plain(mute(t))
			cfg.Routes[0].Rules[0].Timeouts.Request = model.Duration(50 * time.Millisecond)
			return cfg
		}},
		{reason: telemetry.MalformedResponse, status: 502, request: simple, config: answering("HTTP/9 what\r\n\r\n")},
		{reason: telemetry.MalformedResponse, status: 502, request: simple, config: answering("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 70000) + "\r\n\r\n")},
		{reason: telemetry.BackendOverload, status: 503, config: busy(&model.Limits{Requests: 1}), client: beside},

		{reason: telemetry.Draining, edit: func(o *Options) { o.DrainTimeout = 20 * time.Millisecond },
			config: func(t *testing.T) *model.Config { return toAddresses(echo(t, "")) }, client: func(t *testing.T, s *testServer) int {
				c := dial(t, s.addr())
				io.WriteString(c, "a")
				if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				return 0
			}},
		{reason: telemetry.ClientOverload, status: 503, config: at(model.HTTP, func(t *testing.T) string { address, _, _ := reader(t); return address }),
			edit: func(o *Options) { o.MaxInFlight = 1 }, client: func(t *testing.T, s *testServer) int {
				silent := newTalk(t, s.addr())
				silent.send(postLength)
				until(t, "the upload has not begun", func() bool { return s.load().InFlight == 1 })
				other := newTalk(t, s.addr())
				until(t, "the upload keeps its place", func() bool {
					status, _ := other.get("/")
					return status == 200
				})
				resp, _ := silent.answer("POST")
				return resp.StatusCode
			}},
		{reason: telemetry.Overload, status: 503, config: busy(nil), edit: func(o *Options) { o.MaxInFlight = 1 }, client: beside},
		{reason: telemetry.Internal, unlogged: true, edit: func(o *Options) {
			var panics atomic.Bool
			panics.Store(true)
			o.Listen = func(network, _ string) (socket.Bound, error) {
				ln, err := net.Listen(network, "127.0.0.1:0")
				return socket.Bound{Stream: brittleListener{ln, &panics}}, err
			}
		}, request: simple},
	}
}

// statusOf is the status of the answer on a connection, or 0 if the connection ends without an answer.
func statusOf(c net.Conn) int {
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// TestReasonsAreAnsweredLoggedAndDocumented checks every reason: the client's answer, the access log, the metrics and
// the table of docs/metrics.md agree.
func TestReasonsAreAnsweredLoggedAndDocumented(t *testing.T) {
	t.Parallel()
	seen := map[telemetry.Reason][]int{}
	for i, p := range provocations() {
		t.Run(fmt.Sprintf("%s %d", p.reason, i), func(t *testing.T) {
			cfg := p.config
			if cfg == nil {
				cfg = func(t *testing.T) *model.Config { addr, _ := wire(t, okResponse); return plain(addr) }
			}
			l := newLogged(t, telemetry.AccessLogOptions{})
			edits := []func(*Options){l.into}
			if p.edit != nil {
				edits = append(edits, p.edit)
			}
			s := serve(t, cfg(t), edits...)
			status := 0
			if p.client != nil {
				status = p.client(t, s)
			} else {
				k := newTalk(t, s.addr())
				io.WriteString(k.Conn, p.request) // the proxy may answer before it has read everything
				status = statusOf(k.Conn)
				k.Close()
			}
			if seen[p.reason] = append(seen[p.reason], status); status != p.status {
				t.Errorf("the client was answered %d, want %d", status, p.status)
			}
			records := l.records(t, s)
			if n := s.failures(p.reason); n != 1 {
				t.Errorf("counted %d times", n)
			}
			records = slices.DeleteFunc(records, func(r map[string]any) bool { return r["reason"] != string(p.reason) })
			switch {
			case p.unlogged && len(records) == 0:
			case p.unlogged || len(records) != 1 || records[0]["status"] != float64(p.status):
				t.Errorf("the log has %v", records)
			}
		})
	}

	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n### Reasons\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := map[telemetry.Reason]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([a-z0-9, ]+) \\| ").FindAllStringSubmatch(table, -1) {
		rows[telemetry.Reason(row[1])] = row[2] + " " + row[3]
	}
	for _, reason := range telemetry.Reasons() {
		var words []string
		slices.Sort(seen[reason])
		for _, status := range slices.Compact(seen[reason]) {
			if status == 0 {
				words = append(words, "none")
			} else {
				words = append(words, strconv.Itoa(status))
			}
		}
		if len(words) == 0 {
			t.Errorf("nothing provokes %s", reason)
		}
		if rows[reason] == "" && testing.Short() {
			continue // the row may follow
		}
		if want := string(reason.Party()) + " " + strings.Join(words, ", "); rows[reason] != want {
			t.Errorf("docs/metrics.md says of %s %q, want %q", reason, rows[reason], want)
		}
		delete(rows, reason)
	}
	for reason := range rows {
		t.Errorf("docs/metrics.md has a row for %s, which is no reason", reason)
	}
}
