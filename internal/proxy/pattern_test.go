package proxy

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

// TestRequestThatIsTooLongForItsPatternsIsRefused: a text that is too costly to match is refused. If it counted as a
// mismatch, it would pass a rule that blocks requests.
func TestRequestThatIsTooLongForItsPatternsIsRefused(t *testing.T) {
	t.Parallel()
	addr, _ := wire(t, okResponse)
	fits := size.Of(300, 2000)
	const costly = ".{0,1000}.{0,1000}.{0,490}!" // just below the bound
	deny := func(m model.Match) *model.Config {
		cfg := plain(addr)
		rule := cfg.Routes[0].Rules[0]
		rule.Matches, rule.Backends = []model.Match{m}, nil
		rule.Fault = &model.Fault{Status: 503, Reason: "NoBackends"}
		cfg.Routes[0].Rules = []model.Rule{rule, cfg.Routes[0].Rules[0]}
		return cfg
	}
	root := model.PathMatch{Type: model.Prefix, Value: "/"}
	for name, x := range map[string]struct {
		match  model.Match
		send   func(text string) string
		status int
	}{
		"header": {model.Match{Path: root, Headers: []model.ValueMatch{{Type: model.Regex, Name: "x-a", Value: costly}}},
			func(text string) string { return "GET / HTTP/1.1\r\nHost: a\r\nX-A: " + text + "\r\n\r\n" }, 431},
		"lines of a header": {model.Match{Path: root, Headers: []model.ValueMatch{{Type: model.Regex, Name: "x-a", Value: costly}}},
			func(text string) string {
				return "GET / HTTP/1.1\r\nHost: a\r\nX-A: " + text[:len(text)/2] + "\r\nX-A: " + text[len(text)/2:] + "\r\n\r\n"
			}, 431},
		"query": {model.Match{Path: root, Query: []model.ValueMatch{{Type: model.Regex, Name: "q", Value: costly}}},
			func(text string) string { return "GET /?q=" + text + " HTTP/1.1\r\nHost: a\r\n\r\n" }, 414},
		"path": {model.Match{Path: model.PathMatch{Type: model.Regex, Value: "/p" + costly}},
			func(text string) string { return "GET /p" + text + " HTTP/1.1\r\nHost: a\r\n\r\n" }, 414},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, deny(x.match))
			if left := s.LeftOut(); left != nil {
				t.Fatal(left)
			}
			for _, ask := range []struct {
				text   string
				status int
			}{{strings.Repeat("a", fits), 200}, {strings.Repeat("a", fits) + "!", 503}, {strings.Repeat("a", 5000), x.status}, {strings.Repeat("a", 5000) + "!", x.status}, {"a", 200}} {
				k := newTalk(t, s.addr())
				k.send(x.send(ask.text))
				resp, body := k.answer("GET")
				if resp.StatusCode != ask.status {
					t.Errorf("%d bytes: status %d, want %d", len(ask.text), resp.StatusCode, ask.status)
				}
				if ask.status == x.status && !strings.Contains(body, "too long for the patterns") {
					t.Errorf("%q", body)
				}
			}
		})
	}
}

// TestRequestThatIsTooLongForThePatternsOfASplit is the same for the matches of splits. If a mirror's split cannot be
// determined, no copy is sent, and the request is served.
func TestRequestThatIsTooLongForThePatternsOfASplit(t *testing.T) {
	addr, _ := wire(t, okResponse)
	split := func(cfg *model.Config, root string) {
		cfg.Splits = []model.Split{{Ref: model.Ref{Kind: "TrafficSplit", Namespace: "default", Name: "s"}, Root: root, Leaves: []model.Leaf{{Service: root, Weight: 1}},
			Matches: []model.SplitMatch{{Headers: []model.ValueMatch{{Type: model.Regex, Name: "x-a", Value: ".{0,1000}.{0,1000}.{0,490}!"}}}}}}
	}
	request := "GET / HTTP/1.1\r\nHost: a\r\nX-A: " + strings.Repeat("a", 5000) + "\r\n\r\n"
	cfg := plain(addr)
	split(cfg, serviceName)
	s := serve(t, cfg)
	k := newTalk(t, s.addr())
	k.send(request)
	if resp, _ := k.answer("GET"); resp.StatusCode != 431 {
		t.Errorf("status %d", resp.StatusCode)
	}
	k.Close()

	copies, got := wire(t, okResponse)
	cfg = plain(addr)
	cfg.Services = append(cfg.Services, service("default/copies:80", model.HTTP, copies))
	cfg.Routes[0].Rules[0].Filters.Mirrors = []model.Mirror{{Service: "default/copies:80", Numerator: 1, Denominator: 1}}
	split(cfg, "default/copies:80")
	s = serve(t, cfg)
	k = newTalk(t, s.addr())
	k.send(request)
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	k.send("GET /second HTTP/1.1\r\nHost: a\r\nX-A: a!\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if first := <-got; !strings.Contains(first, "/second") {
		t.Errorf("a copy was sent: %.80q", first)
	}
}
