package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

// vouched are the fields that proxies vouch for.
var vouched = []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port", "X-Real-Ip", "Forwarded",
	"X-Forwarded-Prefix", "X-Forwarded-Client-Cert", "X-Forwarded-Server"}

// vouching answers with the vouched fields of a request, one a line.
func vouching(w http.ResponseWriter, r *http.Request) {
	for _, name := range vouched {
		for _, v := range r.Header[name] {
			fmt.Fprintf(w, "%s: %s\n", name, v)
		}
	}
}

// behind is cfg with a front at its listeners.
func behind(cfg *model.Config, f model.Front) *model.Config {
	for i := range cfg.Listeners {
		cfg.Listeners[i].Front = &f
	}
	return cfg
}

const loopback = "127.0.0.0/8"

func TestWhatClientsSayOfThemselvesIsDropped(t *testing.T) {
	forged := []string{"", "X-Forwarded-For: 1.1.1.1", "X-Forwarded-For: 1.1.1.1\r\nx-forwarded-for: 2.2.2.2", "X-FORWARDED-FOR:127.0.0.1",
		"X-Forwarded-For: " + strings.Repeat("127.0.0.1,", 4000), "X-Forwarded-For: ", "X-Forwarded-For: unknown, _x",
		"Forwarded: for=1.1.1.1;proto=https;host=evil", `forwarded: for="`, "X-Real-IP: 1.1.1.1", "x-real-ip: 1.1.1.1\r\nX-Real-Ip: 2.2.2.2",
		"X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Prefix: /admin\r\nX-Forwarded-Client-Cert: x\r\nX-FORWARDED-Server: s",
		"Connection: X-Forwarded-For, X-Real-IP, X-Forwarded-Port, Forwarded\r\nX-Forwarded-For: 1.1.1.1\r\nX-Real-IP: 1.1.1.1"}
	addr := backend(t, vouching)
	const want = "X-Forwarded-For: 127.0.0.1\nX-Forwarded-Proto: http\nX-Forwarded-Host: a:8\nX-Forwarded-Port: 80\nX-Real-Ip: 127.0.0.1\n"
	for name, front := range map[string]model.Front{
		"nobody is trusted": {}, "others are trusted": {TrustedProxies: []string{"10.0.0.0/8", "::1/128"}},
	} {
		s := serve(t, behind(plain(addr), front))
		for _, lines := range forged {
			k := newTalk(t, s.addr())
			if lines != "" {
				lines += "\r\n"
			}
			k.send("GET / HTTP/1.1\r\nHost: a:8\r\n" + lines + "\r\n")
			if _, got := k.answer("GET"); got != want {
				t.Errorf("%s: %.200q: the backend got\n%s, want\n%s", name, lines, got, want)
			}
		}
	}
}

func TestTrustedProxiesAreBelieved(t *testing.T) {
	addr := backend(t, vouching)
	const own = "X-Forwarded-Proto: http\nX-Forwarded-Host: a\nX-Forwarded-Port: 80\n"
	for _, c := range []struct {
		name  string
		field model.ClientAddressField
		lines []string
		want  string
	}{
		{"nothing is said", "", nil, "X-Forwarded-For: 127.0.0.1\n" + own + "X-Real-Ip: 127.0.0.1\n"},
		{"a client", "", []string{"X-Forwarded-For: 192.0.2.1"}, "X-Forwarded-For: 192.0.2.1, 127.0.0.1\n" + own + "X-Real-Ip: 192.0.2.1\n"},
		{"a client that forged", "", []string{"X-Forwarded-For: 127.0.0.1, 1.1.1.1, 192.0.2.1"}, "X-Forwarded-For: 192.0.2.1, 127.0.0.1\n" + own + "X-Real-Ip: 192.0.2.1\n"},
		{"a chain", "", []string{"X-Forwarded-For: 1.1.1.1, 192.0.2.1", "X-Forwarded-For: 127.0.0.9"},
			"X-Forwarded-For: 192.0.2.1, 127.0.0.9, 127.0.0.1\n" + own + "X-Real-Ip: 192.0.2.1\n"},
		{"10,000 entries", "", []string{"X-Forwarded-For: " + strings.Repeat("1.1,", 10000) + " 192.0.2.1"}, "X-Forwarded-For: 192.0.2.1, 127.0.0.1\n" + own + "X-Real-Ip: 192.0.2.1\n"},
		{"garbage", "", []string{"X-Forwarded-For: 192.0.2.1, <script>"}, "X-Forwarded-For: 127.0.0.1\n" + own + "X-Real-Ip: 127.0.0.1\n"},
		{"IPv6", "", []string{"X-Forwarded-For: [2001:DB8::1%eth0]:443"}, "X-Forwarded-For: 2001:db8::1, 127.0.0.1\n" + own + "X-Real-Ip: 2001:db8::1\n"},
		{"what was asked for", "", []string{"X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: HTTPS", "X-Forwarded-Host: shop.example", "X-Forwarded-Prefix: /p"},
			"X-Forwarded-For: 192.0.2.1, 127.0.0.1\nX-Forwarded-Proto: https\nX-Forwarded-Host: shop.example\nX-Forwarded-Port: 443\nX-Real-Ip: 192.0.2.1\nX-Forwarded-Prefix: /p\n"},
		{"a port", "", []string{"X-Forwarded-Proto: https", "X-Forwarded-Port: 8443"},
			"X-Forwarded-For: 127.0.0.1\nX-Forwarded-Proto: https\nX-Forwarded-Host: a\nX-Forwarded-Port: 8443\nX-Real-Ip: 127.0.0.1\n"},
		{"a port of the host", "", []string{"X-Forwarded-Proto: wss", "X-Forwarded-Host: b:8443"},
			"X-Forwarded-For: 127.0.0.1\nX-Forwarded-Proto: wss\nX-Forwarded-Host: b:8443\nX-Forwarded-Port: 8443\nX-Real-Ip: 127.0.0.1\n"},
		{"garbage all over", "", []string{"X-Forwarded-Proto: gopher", "X-Forwarded-Host: a b", "X-Forwarded-Port: 080", "X-Forwarded-For: ,,,"},
			"X-Forwarded-For: 127.0.0.1\n" + own + "X-Real-Ip: 127.0.0.1\n"},
		{"more than one of each", "", []string{"X-Forwarded-Proto: https", "X-Forwarded-Proto: http", "X-Forwarded-Host: evil, a", "X-Forwarded-Port: 1,2"},
			"X-Forwarded-For: 127.0.0.1\n" + own + "X-Real-Ip: 127.0.0.1\n"},
		{"Forwarded", "", []string{`Forwarded: for=1.1.1.1;proto=gopher, for="[2001:db8::1]:4711";proto=https;host="shop.example:8443", for=127.0.0.9;proto=http`},
			"X-Forwarded-For: 2001:db8::1, 127.0.0.9, 127.0.0.1\nX-Forwarded-Proto: https\nX-Forwarded-Host: shop.example:8443\nX-Forwarded-Port: 8443\nX-Real-Ip: 2001:db8::1\n" +
				`Forwarded: for="[2001:db8::1]";proto=https;host="shop.example:8443", for=127.0.0.9, for=127.0.0.1` + "\n"},
		{"Forwarded beside X-Forwarded-For", "", []string{"X-Forwarded-For: 192.0.2.1", "Forwarded: for=1.1.1.1;proto=https"},
			"X-Forwarded-For: 192.0.2.1, 127.0.0.1\n" + own + "X-Real-Ip: 192.0.2.1\n"},
		{"Forwarded alone counts", model.Forwarded, []string{"X-Forwarded-For: 1.1.1.1", "Forwarded: for=192.0.2.1;proto=https"},
			"X-Forwarded-For: 192.0.2.1, 127.0.0.1\nX-Forwarded-Proto: https\nX-Forwarded-Host: a\nX-Forwarded-Port: 443\nX-Real-Ip: 192.0.2.1\n" +
				`Forwarded: for=192.0.2.1;proto=https;host="a", for=127.0.0.1` + "\n"},
		{"X-Forwarded-For alone counts", model.XForwardedFor, []string{"X-Real-IP: 1.1.1.1", "Forwarded: for=1.1.1.1"}, "X-Forwarded-For: 127.0.0.1\n" + own + "X-Real-Ip: 127.0.0.1\n"},
		{"X-Real-IP", "", []string{"X-Real-IP: 192.0.2.1"}, "X-Forwarded-For: 192.0.2.1, 127.0.0.1\n" + own + "X-Real-Ip: 192.0.2.1\n"},
		{"X-Real-IP alone counts", model.XRealIP, []string{"X-Real-IP: 192.0.2.1", "X-Forwarded-For: 1.1.1.1"}, "X-Forwarded-For: 192.0.2.1, 127.0.0.1\n" + own + "X-Real-Ip: 192.0.2.1\n"},
		{"X-Real-IP twice", model.XRealIP, []string{"X-Real-IP: 192.0.2.1", "X-Real-IP: 1.1.1.1"}, "X-Forwarded-For: 127.0.0.1\n" + own + "X-Real-Ip: 127.0.0.1\n"},
	} {
		s := serve(t, behind(plain(addr), model.Front{TrustedProxies: []string{loopback}, ClientAddress: c.field}), func(o *Options) { o.Limits.Head = 128 << 10 })
		k := newTalk(t, s.addr())
		k.send(fields(append([]string{"GET / HTTP/1.1", "Host: a"}, c.lines...)...))
		resp, got := k.answer("GET")
		if resp.StatusCode != 200 || got != c.want {
			t.Errorf("%s: %.200q: status %d, the backend got\n%s, want\n%s", c.name, c.lines, resp.StatusCode, got, c.want)
		}
		s.stop()
	}
}

func TestARequestOfHTTP2IsJudgedLikewise(t *testing.T) {
	addr := backend(t, vouching)
	for trusted, want := range map[string]string{"10.0.0.0/8": "X-Forwarded-For: 127.0.0.1\n", loopback: "X-Forwarded-For: 192.0.2.1, 127.0.0.1\n"} {
		s := serve(t, behind(plain(addr), model.Front{TrustedProxies: []string{trusted}}))
		req, err := http.NewRequest("GET", "http://"+s.addr()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Forwarded-For", "1.1.1.1, 192.0.2.1")
		resp, err := h2cClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if got := bodyOf(t, resp); !strings.HasPrefix(got, want) {
			t.Errorf("%s trusted: the backend got\n%s, want %s", trusted, got, want)
		}
	}
}

func TestTheClientAddressIsInTheAccessLog(t *testing.T) {
	addr := backend(t, func(http.ResponseWriter, *http.Request) {})
	var out lines
	log := telemetry.NewAccessLog(&out, telemetry.AccessLogOptions{})
	cfg := behind(plain(addr), model.Front{TrustedProxies: []string{"127.0.0.1/32"}})
	cfg.Routes[0].Rules[0].Matches[0].Path.Value = "/here"
	s := serve(t, cfg, func(o *Options) { o.AccessLog = log })
	k := newTalk(t, s.addr())
	for _, target := range []string{"/here", "/nowhere"} {
		k.send("GET " + target + " HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1, 192.0.2.7\r\n\r\n")
		k.answer("GET")
	}
	k.send("GET /here HTTP/1.1\r\nHost: a\r\n\r\n")
	k.answer("GET")
	other := from(t, "127.0.0.2", s.addr())
	other.send("GET /here HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.8\r\n\r\n")
	other.answer("GET")
	s.stop()
	<-s.ended
	if err := log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	peer := k.LocalAddr().String()
	want := []string{"192.0.2.7 " + peer, "192.0.2.7 " + peer, peer + " ", other.LocalAddr().String() + " "}
	var got []string
	for d := json.NewDecoder(&out); d.More(); {
		var r struct{ Client, Peer string }
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Client+" "+r.Peer)
	}
	// Two connections may end their requests in either order.
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("client and peer are\n%q, want\n%q", got, want)
	}
}

func TestRedirectsAndCookiesKnowWhatTheClientSpokeToATrustedProxy(t *testing.T) {
	rule := model.Rule{Matches: ruleTo().Matches, Filters: model.Filters{Redirect: &model.Redirect{Status: 302, Path: &model.PathPatch{Value: "/new"}}}}
	for _, c := range []struct{ trusted, lines, want string }{
		{loopback, "X-Forwarded-Proto: https\r\n", "https://a/new"},
		{loopback, "X-Forwarded-Proto: https\r\nX-Forwarded-Port: 8443\r\n", "https://a:8443/new"},
		{loopback, "", "http://a/new"},
		{"10.0.0.0/8", "X-Forwarded-Proto: https\r\n", "http://a/new"},
	} {
		s := serve(t, behind(config(nil, rule), model.Front{TrustedProxies: []string{c.trusted}}))
		k := newTalk(t, s.addr())
		k.send("GET / HTTP/1.1\r\nHost: a\r\n" + c.lines + "\r\n")
		if resp, _ := k.answer("GET"); resp.Header.Get("Location") != c.want {
			t.Errorf("%s trusted, %q: Location %q, want %q", c.trusted, c.lines, resp.Header.Get("Location"), c.want)
		}
	}
	cfg := behind(sessionConfig(backend(t, func(http.ResponseWriter, *http.Request) {})), model.Front{TrustedProxies: []string{loopback}})
	k := newTalk(t, serve(t, cfg).addr())
	for _, proto := range []string{"http", "https"} {
		k.send("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: " + proto + "\r\n\r\n")
		resp, _ := k.answer("GET")
		if cookie := resp.Header.Get("Set-Cookie"); cookie == "" || strings.Contains(cookie, "Secure") != (proto == "https") {
			t.Errorf("%s: cookie %q", proto, cookie)
		}
	}
}

func TestClientAddressAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := serve(t, behind(plain(cannedBackend(t, cannedResponse(100))), model.Front{TrustedProxies: []string{loopback}}))
	c, err := net.Dial("tcp", s.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, lines := range map[string]string{
		"X-Forwarded-For": "X-Forwarded-For: 1.1.1.1, 192.0.2.1, 127.0.0.2\r\nX-Forwarded-Proto: https\r\n",
		"Forwarded":       "Forwarded: for=\"[2001:db8::1]\";proto=https;host=shop, for=127.0.0.2\r\n",
	} {
		r := &requester{c: c, request: []byte("GET / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n"), buf: make([]byte, 8<<10)}
		var failed error
		run := func() {
			if err := r.do(); err != nil {
				failed = err
			}
		}
		for range 100 {
			run()
		}
		if n := testing.AllocsPerRun(1000, run); n > 0 || failed != nil {
			t.Errorf("%s: %v allocations, %v", name, n, failed)
		}
	}
}
