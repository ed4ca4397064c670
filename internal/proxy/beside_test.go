package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
)

// TestAProxyBesideAnEndIsNoStation sends what proxies say of each other, and a copy's mark, through a sidecar: the
// application gets them as they came, and nothing else. What Connection names goes no further, but for the fields that others vouch for.
func TestAProxyBesideAnEndIsNoStation(t *testing.T) {
	got := make(chan http.Header, 1)
	cfg := plain(backend(t, func(w http.ResponseWriter, r *http.Request) { got <- r.Header }))
	s := serve(t, cfg, func(o *Options) {
		o.Beside, o.Via, o.RequestIDs, o.MaxPasses = true, exchange.ViaOff, exchange.RequestIDsOff, 2
	})
	k := newTalk(t, s.addr())
	for _, c := range []struct{ fields, want string }{
		{"", ""},
		{"X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Client-Cert: c\r\nX-Real-IP: 2.2.2.2\r\nForwarded: for=1.1.1.1\r\nVia: 1.1 edge\r\nWeir-Mirrored: true\r\nX-Request-Id: 7\r\n",
			"Forwarded=for=1.1.1.1 Via=1.1 edge Weir-Mirrored=true X-Forwarded-Client-Cert=c X-Forwarded-For=1.1.1.1 X-Forwarded-Proto=https X-Real-Ip=2.2.2.2 X-Request-Id=7"},
		{"Connection: X-Forwarded-For, Proxy-Hint\r\nX-Forwarded-For: 1.1.1.1\r\nProxy-Hint: x\r\n", "X-Forwarded-For=1.1.1.1"},
	} {
		k.send("GET / HTTP/1.1\r\nHost: a\r\n" + c.fields + "\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
			t.Fatalf("%q: status %d", c.fields, resp.StatusCode)
		}
		select {
		case h := <-got:
			if !strings.HasPrefix(h.Get("Weir-Via"), "1.1 weir") {
				t.Errorf("%q: nothing detects loops: %v", c.fields, h)
			}
			h.Del("Weir-Via")
			if have := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(flat(h)), "["), "]"); have != c.want {
				t.Errorf("%q: the application gets\n%s, want\n%s", c.fields, have, c.want)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the application gets nothing")
		}
	}
}

// flat is fields as text, sorted.
func flat(h http.Header) (all []string) {
	var b strings.Builder
	h.Write(&b)
	for line := range strings.Lines(b.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		all = append(all, name+"="+value)
	}
	return all
}
