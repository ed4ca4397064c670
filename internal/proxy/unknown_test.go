package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// TestWhatIsAtAnAddressIsAskedFirst has connections to what the configuration knows, to what it knows once it was asked, to
// what nobody knows, and to what is refused.
func TestWhatIsAtAnAddressIsAskedFirst(t *testing.T) {
	cfg := redirectedConfig(t)
	for i := range cfg.Listeners {
		cfg.Listeners[i].Redirect = model.RedirectOutbound
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	later := *cfg
	later.Listeners, later.Routes = nil, nil
	for _, l := range cfg.Listeners {
		if l.Name != "here" && l.Name != "secure" && l.TLS == nil {
			later.Listeners = append(later.Listeners, l)
		}
	}
	for _, r := range cfg.Routes {
		if r.Ref.Field != "here" && r.Ref.Field != "secure" {
			later.Routes = append(later.Routes, r)
		}
	}
	full := *cfg
	full.Listeners, full.Routes = append(later.Listeners[:len(later.Listeners):len(later.Listeners)], cfg.Listeners[1]), append(later.Routes[:len(later.Routes):len(later.Routes)], cfg.Routes[1])
	var s *testServer
	var asked atomic.Int64
	s, at := redirected(t, &later, func(o *Options) {
		o.Unknown = func(_ context.Context, to netip.AddrPort) error {
			asked.Add(1)
			switch to.Port() {
			case 8077:
				return errors.New("nobody answers")
			case 8005:
				return s.Apply(&full)
			}
			return nil
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(host string) string {
		answer, err := client.Get("http://" + at(host))
		if err != nil {
			return "error"
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return strings.TrimSpace(string(body))
	}
	for _, c := range []struct {
		host, want string
		asked      int64
	}{
		{"127.0.0.1", "first 8001", 0}, // known by its port
		{"127.0.0.6", "rest 8006", 1},
		{"127.0.0.77", "error", 2},
		{"127.0.0.5", "rest 8005", 3}, // which brings "here"
		{"127.0.0.2", "here 8002", 3},
	} {
		if got := get(c.host); got != c.want || asked.Load() != c.asked {
			t.Errorf("%s: %q, asked %d times, want %q, %d", c.host, got, asked.Load(), c.want, c.asked)
		}
	}
	here := netip.MustParseAddrPort("10.0.0.7:8002")
	if !s.Used()[here] {
		t.Error("a connection that was is not noted")
	}
	until(t, "it is noted for ever", func() bool { return !s.Used()[here] })
	nc, err := net.Dial("tcp", at("127.0.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := io.WriteString(nc, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Apply(&full); err != nil {
			t.Fatal(err)
		}
		if !s.Used()[here] {
			t.Error("a connection that is open is not noted")
		}
	}
}
