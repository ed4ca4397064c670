package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/size"
)

// from opens a talk from a local address.
func from(t testing.TB, address, to string) *talk {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Skipf("%s cannot be dialed from: %v", address, err)
	}
	c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return &talk{Conn: c, t: t, r: bufio.NewReader(c)}
}

func bodyOf(t testing.TB, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var proxied = model.Front{TrustedProxies: []string{loopback}, ProxyProtocol: true}

// heading is a PROXY header with that source address.
func heading(version int, source string) string {
	p := clientaddr.Pair{Destination: netip.MustParseAddrPort("198.51.100.1:8443")}
	if source != "" {
		p.Source = netip.MustParseAddrPort(source)
	}
	return string(clientaddr.AppendHeader(nil, version, p))
}

const asksOnce = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// ended reads until the connection ends. It returns true if nothing arrived.
func (k *talk) ended() bool {
	b, _ := io.ReadAll(k.r)
	return len(b) == 0
}

func TestAPortOfTheProxyProtocolTakesTheClientFromTheHeader(t *testing.T) {
	s := serve(t, behind(plain(backend(t, vouching)), proxied))
	const rest = "X-Forwarded-Proto: http\nX-Forwarded-Host: a\nX-Forwarded-Port: "
	local := "X-Forwarded-For: 127.0.0.1\n" + rest + "80\nX-Real-Ip: 127.0.0.1\n"
	for _, c := range []struct{ name, header, want string }{
		{"v1", heading(1, "192.0.2.1:4711"), "X-Forwarded-For: 192.0.2.1\n" + rest + "8443\nX-Real-Ip: 192.0.2.1\n"},
		{"v2", heading(2, "192.0.2.1:4711"), "X-Forwarded-For: 192.0.2.1\n" + rest + "8443\nX-Real-Ip: 192.0.2.1\n"},
		{"v2 IPv6", heading(2, "[2001:db8::1]:4711"), "X-Forwarded-For: 2001:db8::1\n" + rest + "8443\nX-Real-Ip: 2001:db8::1\n"},
		{"v1 unknown", heading(1, ""), local},
		{"v2 local", heading(2, ""), local},
	} {
		for _, pieces := range []int{1000, 7, 1} {
			k := newTalk(t, s.addr())
			text := c.header + asksOnce
			for len(text) > 0 {
				n := min(pieces, len(text))
				k.send(text[:n])
				text = text[n:]
			}
			for range 3 { // and on
				if _, got := k.answer("GET"); got != c.want {
					t.Errorf("%s in pieces of %d: the backend got\n%s, want\n%s", c.name, pieces, got, c.want)
				}
				k.send(asksOnce)
			}
			k.answer("GET")
		}
	}
	// A second proxy stands in front of the one that wrote the header.
	k := newTalk(t, s.addr())
	k.send(heading(2, "127.0.0.7:1") + "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1, 192.0.2.9\r\n\r\n")
	if _, got := k.answer("GET"); !strings.HasPrefix(got, "X-Forwarded-For: 192.0.2.9, 127.0.0.7\n") {
		t.Errorf("behind a header and a field the backend got\n%s", got)
	}
	k = newTalk(t, s.addr())
	k.send(heading(2, "192.0.2.1:1") + "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1\r\n\r\n")
	if _, got := k.answer("GET"); !strings.HasPrefix(got, "X-Forwarded-For: 192.0.2.1\n") {
		t.Errorf("a client that is named by a header and not trusted was believed:\n%s", got)
	}
}

func TestAPortOfTheProxyProtocolSpeaksHTTP2AndTLS(t *testing.T) {
	addr := backend(t, vouching)
	header := heading(2, "192.0.2.1:4711")
	dialing := func(s *testServer) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, _ string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, s.addr())
			if err == nil {
				_, err = io.WriteString(c, header)
			}
			return c, err
		}
	}
	get := func(client *http.Client, url string) {
		t.Helper()
		defer client.CloseIdleConnections()
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		if got := bodyOf(t, resp); !strings.HasPrefix(got, "X-Forwarded-For: 192.0.2.1\n") {
			t.Errorf("%s: the backend got\n%s", resp.Proto, got)
		}
	}
	s := serve(t, behind(plain(addr), proxied))
	c := h2cClient(t)
	c.Transport.(*http.Transport).DialContext = dialing(s)
	get(c, "http://a/")

	cfg := behind(plain(addr), proxied)
	pool := secure(t, cfg, "shop.example")
	s = serve(t, cfg)
	for _, h2 := range []bool{false, true} {
		tr := &http.Transport{DialContext: dialing(s), TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: h2}
		get(&http.Client{Transport: tr}, "https://shop.example/")
	}
	// The header comes before TLS, not inside it.
	raw, err := net.Dial("tcp", s.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(patience))
	if err := tls.Client(raw, &tls.Config{RootCAs: pool, ServerName: "shop.example"}).Handshake(); err == nil {
		t.Error("a connection without a header got through the handshake")
	}
}

func TestConnectionsWithoutAHeaderAreClosedAndCounted(t *testing.T) {
	t.Parallel()
	reached := atomic.Int64{}
	addr := backend(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	tcp := rawBackend(t, func(c net.Conn) { reached.Add(1); io.Copy(c, c) })
	for name, cfg := range map[string]*model.Config{"HTTP": plain(addr), "TCP": toAddresses(tcp)} {
		s := serve(t, behind(cfg, proxied), func(o *Options) { o.HeaderTimeout = 500 * time.Millisecond })
		bad := []string{
			asksOnce, "PROXY TCP4 1.1.1.1\r\n" + asksOnce, heading(1, "1.1.1.1:1")[:20], "PROXY TCP4 " + strings.Repeat("1", 200),
			heading(2, "1.1.1.1:1")[:14] + "\xff\xff" + strings.Repeat("x", 70000), heading(2, "1.1.1.1:1")[:20], "\x16\x03\x01", " " + heading(1, "1.1.1.1:1"),
		}
		for _, text := range bad {
			k := newTalk(t, s.addr())
			io.WriteString(k, text) // the proxy may close the connection before
			if !k.ended() {
				t.Errorf("%s: %.40q was answered", name, text)
			}
		}
		k := newTalk(t, s.addr()) // checks that the port is open
		k.Conn.(*net.TCPConn).CloseWrite()
		k.ended()
		if n := s.failures(telemetry.ProxyHeader); n != uint64(len(bad)) {
			t.Errorf("%s: %d were counted, want %d", name, n, len(bad))
		}
	}
	if reached.Load() != 0 {
		t.Errorf("%d reached a backend", reached.Load())
	}
}

func TestOnlyTrustedProxiesReachAPortOfTheProxyProtocol(t *testing.T) {
	addr := backend(t, vouching)
	tcp := echo(t, "")
	front := model.Front{TrustedProxies: []string{"127.0.0.1/32"}, ProxyProtocol: true}
	for name, cfg := range map[string]*model.Config{"HTTP": plain(addr), "TCP": toAddresses(tcp)} {
		s := serve(t, behind(cfg, front))
		for _, version := range []int{1, 2} {
			k := from(t, "127.0.0.2", s.addr())
			io.WriteString(k, heading(version, "192.0.2.1:1")+asksOnce)
			if !k.ended() {
				t.Errorf("%s: a header of version %d of somebody was believed", name, version)
			}
		}
		if n := s.failures(telemetry.ProxyHeader); n != 2 {
			t.Errorf("%s: %d were counted, want 2", name, n)
		}
	}
}

func TestAPortBecomesOneOfTheProxyProtocolAndIsNoneAgain(t *testing.T) {
	addr := backend(t, vouching)
	s := serve(t, plain(addr))
	for range 3 {
		k := newTalk(t, s.addr())
		k.send(asksOnce)
		k.answer("GET")
		if err := s.Apply(behind(plain(addr), proxied)); err != nil {
			t.Fatal(err)
		}
		k.send(asksOnce) // an open connection stays as it began
		k.answer("GET")
		p := newTalk(t, s.addr())
		p.send(heading(2, "192.0.2.1:1") + asksOnce)
		if _, got := p.answer("GET"); !strings.HasPrefix(got, "X-Forwarded-For: 192.0.2.1\n") {
			t.Errorf("the backend got\n%s", got)
		}
		if err := s.Apply(plain(addr)); err != nil {
			t.Fatal(err)
		}
		p.send(asksOnce)
		if _, got := p.answer("GET"); !strings.HasPrefix(got, "X-Forwarded-For: 192.0.2.1\n") {
			t.Errorf("the backend got\n%s", got)
		}
	}
}

func TestADrainDoesNotWaitForAHeader(t *testing.T) {
	s := serve(t, behind(plain("127.0.0.1:1"), proxied), func(o *Options) { o.HeaderTimeout, o.DrainTimeout = time.Hour, time.Hour })
	k, tcp := newTalk(t, s.addr()), newTalk(t, s.addr())
	tcp.send("PROXY TC")
	for s.connections.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	s.stop()
	<-s.ended
	if !k.ended() || !tcp.ended() {
		t.Error("something was answered")
	}
}

// announcedBackend runs an HTTP/1.1 and HTTP/2 server behind a PROXY header, over TLS if there is a config. It answers
// with the header's source and the connection's number.
func announcedBackend(t *testing.T, config *tls.Config) (addr string, conns *atomic.Int64) {
	t.Helper()
	conns = &atomic.Int64{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = ln.Addr().String()
	ln = &proxyproto.Listener{Listener: ln, ReadHeaderTimeout: 10 * time.Second,
		ConnPolicy: func(proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) { return proxyproto.REQUIRE, nil }}
	type number struct{}
	s := &httptest.Server{Listener: ln, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %d %s %s", r.RemoteAddr, r.Context().Value(number{}), r.Header.Get("X-Real-Ip"), b)
		}),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, number{}, conns.Add(1))
		},
		Protocols: new(http.Protocols),
	}}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetHTTP2(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	if config != nil {
		s.TLS, s.EnableHTTP2 = config, true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return addr, conns
}

func announcing(version int, protocol model.Protocol, addr string) *model.Config {
	sv := service(serviceName, protocol, addr)
	sv.ProxyProtocol = version
	return config([]model.Service{sv}, ruleTo(serviceName))
}

// TestAConnectionThatNamesAClientIsNobodyElses has many clients at the same time, over persistent and short
// connections.
func TestAConnectionThatNamesAClientIsNobodyElses(t *testing.T) {
	t.Parallel()
	pool, config := announcedTLS(t)
	for _, c := range []struct {
		name     string
		version  int
		protocol model.Protocol
		tls      bool
	}{{"HTTP/1.1, version 1", 1, model.HTTP, false}, {"HTTP/1.1, version 2", 2, model.HTTP, false}, {"HTTP/2, version 1", 1, model.H2C, false},
		{"HTTP/2, version 2", 2, model.H2C, false}, {"HTTP/1.1 over TLS", 2, model.HTTP, true}, {"HTTP/2 over TLS", 1, model.H2C, true}} {
		t.Run(c.name, func(t *testing.T) {
			var tc *tls.Config
			if c.tls {
				tc = config.Clone()
			}
			addr, conns := announcedBackend(t, tc)
			cfg := announcing(c.version, c.protocol, addr)
			if c.tls {
				cfg.Services[0].TLS = &model.ServiceTLS{Hostname: "shop.example", CAs: pool}
			}
			s := serve(t, behind(cfg, model.Front{TrustedProxies: []string{"127.0.0.2/32"}}))
			const clients = 8
			requests := size.Of(2, 10)
			var wg sync.WaitGroup
			for i := range clients {
				k := from(t, fmt.Sprintf("127.0.0.%d", 2+i), s.addr()) // the first address is trusted
				wg.Go(func() {
					for n := range requests {
						want := k.LocalAddr().String()
						lines := "X-Forwarded-For: 192.0.2.99\r\n"
						if i == 0 {
							lines = fmt.Sprintf("X-Forwarded-For: 192.0.2.%d\r\n", n)
							want = fmt.Sprintf("192.0.2.%d:0", n)
						}
						fmt.Fprintf(k, "POST / HTTP/1.1\r\nHost: a\r\n%sContent-Length: 2\r\n\r\nhi", lines)
						resp, err := http.ReadResponse(k.r, nil)
						if err != nil {
							t.Errorf("client %d: %v", i, err)
							return
						}
						b, err := io.ReadAll(resp.Body)
						got := strings.Fields(string(b))
						ip, _, _ := strings.Cut(want, ":")
						if err != nil || resp.StatusCode != 200 || len(got) != 4 || got[0] != want || got[2] != ip || got[3] != "hi" {
							t.Errorf("client %d: status %d, %q, %v, want %s", i, resp.StatusCode, b, err, want)
						}
					}
				})
			}
			wg.Wait()
			if n := conns.Load(); n != int64(clients*requests) {
				t.Errorf("%d connections for %d requests", n, clients*requests)
			}
			s.stop()
			<-s.ended
			for _, e := range s.endpoints() {
				if st := e.Stats(); st.Open != 0 || st.HTTP2 != 0 || st.Idle != 0 || st.InFlight != 0 {
					t.Errorf("left: %+v", st)
				}
			}
		})
	}
}

func announcedTLS(t *testing.T) (authorities string, config *tls.Config) {
	a := peertest.NewAuthority(t)
	chain, key := a.Issue(t, "shop.example")
	pair, err := tls.X509KeyPair([]byte(chain), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return a.PEM, &tls.Config{Certificates: []tls.Certificate{pair}}
}

func TestRelayedConnectionsAnnounceTheirClient(t *testing.T) {
	addr := rawBackend(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		h, err := proxyproto.Read(r)
		if err != nil || h.SourceAddr == nil {
			return
		}
		fmt.Fprintf(c, "%s>%s ", h.SourceAddr, h.DestinationAddr)
		io.Copy(c, r)
	})
	for version := 1; version <= 2; version++ {
		cfg := toAddresses(addr)
		cfg.Services[0].ProxyProtocol = version
		s := serve(t, cfg)
		k := newTalk(t, s.addr())
		k.send("hello")
		k.Conn.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(k.r); err != nil || string(b) != k.LocalAddr().String()+">"+k.RemoteAddr().String()+" hello" {
			t.Errorf("version %d: %q, %v", version, b, err)
		}
		// From a PROXY header to a PROXY header.
		cfg = behind(toAddresses(addr), proxied)
		cfg.Services[0].ProxyProtocol = version
		k = newTalk(t, serve(t, cfg).addr())
		k.send(heading(3-version, "[2001:db8::1]:4711")[:9])
		k.send(heading(3-version, "[2001:db8::1]:4711")[9:] + "hello")
		k.Conn.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(k.r); err != nil || string(b) != "[2001:db8::1]:4711>[::ffff:198.51.100.1]:8443 hello" && string(b) != "[2001:db8::1]:4711>198.51.100.1:8443 hello" {
			t.Errorf("version %d, from header to header: %q, %v", version, b, err)
		}
	}
}

func TestARelaysClientIsLogged(t *testing.T) {
	var out lines
	log := telemetry.NewAccessLog(&out, telemetry.AccessLogOptions{})
	s := serve(t, behind(toAddresses(echo(t, "")), proxied), func(o *Options) { o.AccessLog = log })
	k := newTalk(t, s.addr())
	k.send(heading(1, "192.0.2.1:4711") + "x")
	k.Conn.(*net.TCPConn).CloseWrite()
	io.ReadAll(k.r)
	s.stop()
	<-s.ended
	if err := log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	var r struct{ Client, Peer string }
	if err := json.NewDecoder(&out).Decode(&r); err != nil || r.Client != "192.0.2.1:4711" || r.Peer != k.LocalAddr().String() {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestMirrorsAnnounceTheClientToo(t *testing.T) {
	for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
		got := make(chan string, 10)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &httptest.Server{Listener: &proxyproto.Listener{Listener: ln, ReadHeaderTimeout: 10 * time.Second}, Config: &http.Server{
			Handler:   http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.RemoteAddr }),
			Protocols: new(http.Protocols),
		}}
		s.Config.Protocols.SetHTTP1(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		t.Cleanup(s.Close)
		copies := service("default/copy:80", protocol, ln.Addr().String())
		copies.ProxyProtocol = 2
		rule := ruleTo(serviceName)
		rule.Filters.Mirrors = []model.Mirror{{Service: copies.Name, Numerator: 1, Denominator: 1}}
		cfg := config([]model.Service{service(serviceName, model.HTTP, backend(t, func(http.ResponseWriter, *http.Request) {})), copies}, rule)
		w := serve(t, cfg)
		for i := range 3 {
			k := from(t, fmt.Sprintf("127.0.0.%d", 2+i), w.addr())
			k.send(asksOnce)
			k.answer("GET")
			if g := <-got; g != k.LocalAddr().String() {
				t.Errorf("%s: the copy is from %s, want %s", protocol, g, k.LocalAddr())
			}
		}
	}
}

func TestHealthChecksOfEndpointsThatAreAnnouncedToAreLocal(t *testing.T) {
	local := make(chan *proxyproto.Header, 10)
	addr := rawBackend(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		h, err := proxyproto.Read(r)
		if err != nil {
			return
		}
		if h.Command.IsLocal() {
			select {
			case local <- h:
			default:
			}
		}
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			io.Copy(io.Discard, req.Body)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	for version := 1; version <= 2; version++ {
		cfg := announcing(version, model.HTTP, addr)
		cfg.Services[0].HealthCheck = &model.HealthCheck{Type: model.CheckHTTP, Path: "/", Interval: model.Duration(100 * time.Millisecond),
			Timeout: model.Duration(5 * time.Second), Healthy: 1, Unhealthy: 1}
		serve(t, cfg)
		if h := <-local; int(h.Version) != version {
			t.Errorf("version %d, want %d", h.Version, version)
		}
	}
}

// TestTheTLSOfAProxyInFrontIsTold sends a header as HAProxy's send-proxy-v2-ssl does.
func TestTheTLSOfAProxyInFrontIsTold(t *testing.T) {
	s := serve(t, behind(plain(backend(t, vouching)), proxied))
	h := []byte(heading(2, "192.0.2.1:4711"))
	h = append(h, 0x20, 0, 5, 1, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(h[14:], uint16(len(h)-16))
	k := newTalk(t, s.addr())
	k.send(string(h) + asksOnce)
	if _, got := k.answer("GET"); !strings.Contains(got, "X-Forwarded-Proto: https\n") {
		t.Errorf("the backend got\n%s", got)
	}
}

// FuzzProxyHeader splits the first bytes of a connection into any two pieces. A request behind a header is served. A
// request without a header is not.
func FuzzProxyHeader(f *testing.F) {
	f.Add([]byte(heading(1, "192.0.2.1:1")), 3)
	f.Add([]byte(heading(2, "192.0.2.1:1")), 15)
	f.Add([]byte(heading(2, "")), 16)
	f.Add([]byte("PROXY UNKNOWN\r\n"), 14)
	for _, bad := range []string{"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n", "PROXY TCP4 192.0.2.300 192.0.2.2 1 2\r\n", "PROXY \r\n", "GET / HTTP/1.1\r\n"} {
		f.Add([]byte(bad), len(bad))
	}
	s := serve(f, behind(plain(cannedBackend(f, cannedResponse(10))), proxied), func(o *Options) { o.HeaderTimeout = 200 * time.Millisecond })
	f.Fuzz(func(t *testing.T, header []byte, at int) {
		var sc clientaddr.Scanner
		n, whole, err := sc.Take(header)
		valid := err == nil && whole && n == len(header)
		if valid {
			_, err = clientaddr.ParseHeader(sc.Bytes())
			valid = err == nil
		} else if err == nil && !whole || n < len(header) {
			return // the next bytes would belong to the header, or are unknown
		}
		c, err := net.Dial("tcp", s.addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		all := append(header, asksOnce...)
		at = min(max(at, 0), len(all))
		c.Write(all[:at])
		c.Write(all[at:])
		b := make([]byte, 12)
		if n, _ := io.ReadFull(c, b); (n > 0) != valid {
			t.Fatalf("%q: %q, want an answer: %v", header, b[:n], valid)
		}
	})
}
