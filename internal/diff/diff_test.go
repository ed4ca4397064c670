package diff

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

const domain = "cluster.local"

func ref(name string) model.Ref {
	return model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: name}
}

// config is a listener on port 80 with one route of the rules, for the hosts.
func config(hosts []string, rules ...model.Rule) *model.Config {
	c := &model.Config{
		Listeners: []model.Listener{{Name: "default/gw/http", Ref: model.Ref{Kind: "Gateway", Name: "gw"}, Port: 80, Protocol: model.HTTP}},
		Routes:    []model.Route{{Ref: ref("r"), Attachments: []model.Attachment{{Listener: "default/gw/http", Hostnames: hosts}}, Rules: rules}},
	}
	for _, name := range []string{"a", "b", "c"} {
		c.Services = append(c.Services, model.Service{
			Name: "default/" + name + ":80", Ref: model.Ref{Kind: "Service", Name: name}, Protocol: model.HTTP,
			Endpoints: []model.Endpoint{{Address: "127.0.0.1:1"}},
		})
	}
	return c
}

func to(m model.Match, services ...string) model.Rule {
	r := model.Rule{Ref: ref("r"), Matches: []model.Match{m}}
	for _, s := range services {
		r.Backends = append(r.Backends, model.Backend{Ref: ref("r"), Service: "default/" + s + ":80", Weight: 1})
	}
	return r
}

func prefix(value string) model.Match {
	return model.Match{Path: model.PathMatch{Type: model.Prefix, Value: value}}
}

func expression(path string) model.Match {
	return model.Match{Path: model.PathMatch{Type: model.Regex, Value: path}}
}

func with(m model.Match, header, value string) model.Match {
	m.Headers = []model.ValueMatch{{Type: model.Exact, Name: header, Value: value}}
	return m
}

func edit(c *model.Config, change func(*model.Config)) *model.Config {
	change(c)
	return c
}

func TestDifferencesAreFound(t *testing.T) {
	any := []string{"*"}
	weights := func(c *model.Config) { c.Routes[0].Rules[0].Backends[0].Weight = 3 }
	for name, c := range map[string]struct {
		before, after *model.Config
		want          []string // "example: differ"
	}{
		"nothing": {config(any, to(prefix("/"), "a")), config(any, to(prefix("/"), "a")), nil},
		"the same weights": {
			config(any, to(prefix("/"), "a", "b")),
			edit(config(any, to(prefix("/"), "b", "a")), func(c *model.Config) {
				for i := range c.Routes[0].Rules[0].Backends {
					c.Routes[0].Rules[0].Backends[i].Weight = 50
				}
			}), nil},
		"a rule that is never reached": {config(any, to(prefix("/"), "a")), config(any, to(prefix("/"), "a"), to(prefix("/"), "b")), nil},
		"weights":                      {config(any, to(prefix("/"), "a", "b")), edit(config(any, to(prefix("/"), "a", "b")), weights), []string{"/: backends"}},
		"a path":                       {config(any, to(prefix("/"), "a")), config(any, to(prefix("/"), "a"), to(prefix("/x"), "b")), []string{"/x: backends"}},
		"a header": {
			config(any, to(prefix("/"), "a")), config(any, to(prefix("/"), "a"), to(with(prefix("/"), "x-beta", "yes"), "b")),
			[]string{"/ x-beta=yes: backends"}},
		"precedence between a path and a header of another rule": {
			config(any, to(prefix("/p"), "a"), to(with(prefix("/"), "x", "1"), "b")),
			config(any, to(prefix("/"), "a"), to(with(prefix("/"), "x", "1"), "b")),
			[]string{"/: backends", "/p x=1: backends"}},
		"an expression": {
			config(any, to(prefix("/"), "a")), config(any, to(prefix("/"), "a"), to(expression("/v[0-9]+/(list|get)?"), "b")),
			[]string{"/v1/: backends"}},
		"a host": {config(any, to(prefix("/"), "a")), config([]string{"shop.example"}, to(prefix("/"), "a")), []string{"/: backends"}},
		"a port": {
			config(any, to(prefix("/"), "a")), edit(config(any, to(prefix("/"), "a")), func(c *model.Config) { c.Listeners[0].Port = 81 }),
			[]string{"/: backends", "/: backends"}},
		"timeouts": {
			config(any, to(prefix("/"), "a")),
			edit(config(any, to(prefix("/"), "a")), func(c *model.Config) { c.Routes[0].Rules[0].Timeouts.Request = 5 }), []string{"/: timeouts"}},
		"a mirror": {
			config(any, to(prefix("/"), "a")),
			edit(config(any, to(prefix("/"), "a")), func(c *model.Config) {
				c.Routes[0].Rules[0].Filters.Mirrors = []model.Mirror{{Ref: ref("r"), Service: "default/b:80", Numerator: 1, Denominator: 2}}
			}), []string{"/: mirrors"}},
		"a split": {
			config(any, to(prefix("/"), "a")),
			edit(config(any, to(prefix("/"), "a")), func(c *model.Config) {
				c.Splits = []model.Split{{
					Ref: model.Ref{Kind: "TrafficSplit", Name: "s"}, Root: "default/a:80",
					Matches: []model.SplitMatch{{Path: "/test.*", Methods: []string{"POST"}}},
					Leaves:  []model.Leaf{{Service: "default/b:80", Weight: 1}},
				}}
			}), []string{"POST /test: backends"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := Compare(c.before, c.after, domain)
			var got []string
			for _, change := range r.Changes {
				e := change.Examples[0]
				text := e.Path
				if e.Method != "GET" {
					text = e.Method + " " + text
				}
				for _, h := range e.Headers {
					text += " " + h.Name + "=" + h.Value
				}
				got = append(got, text+": "+strings.Join(change.Differ, ","))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestServicesAndListenersDifferByThemselves(t *testing.T) {
	before := config([]string{"*"}, to(prefix("/"), "a"))
	after := config([]string{"*"}, to(prefix("/"), "a"))
	after.Services[1].Endpoints[0].Address = "127.0.0.1:2"
	after.Services[2].Ref.Name = "written elsewhere"
	after.Listeners[0].TLS = &model.ListenerTLS{Certificates: []string{"default/c"}}
	r := Compare(before, after, domain)
	if got := fmt.Sprint(r.Services, r.Listeners); got != "[{default/b:80 [endpoints]}] [{default/gw/http [tls]}]" || r.Same() {
		t.Error(got)
	}
}

// TestNoDifferenceEscapes compares small random configurations, in which every request can be asked: what any of them meets is found.
func TestNoDifferenceEscapes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	some := func(n int) *model.Config {
		var rules []model.Rule
		for range n {
			m := prefix(pick("/", "/a", "/a/b", "/c"))
			if random.IntN(3) == 0 {
				m.Path.Type = model.Exact
			}
			if random.IntN(3) == 0 {
				m.Method = pick("GET", "POST")
			}
			if random.IntN(3) == 0 {
				m = with(m, pick("x", "y"), pick("1", "2"))
			}
			rules = append(rules, to(m, pick("a", "b", "c")))
		}
		return config([]string{pick("*", "h.example", "*.example")}, rules...)
	}
	different, pairs := 0, size.Of(30, 300)
	for range pairs {
		before := some(1 + random.IntN(4))
		after := config(before.Routes[0].Attachments[0].Hostnames, slices.Clone(before.Routes[0].Rules)...)
		after.Routes[0].Rules[random.IntN(len(after.Routes[0].Rules))] = some(1).Routes[0].Rules[0]
		report := Compare(before, after, domain)
		x, y := compile(before), compile(after)
		var found *Request
		for _, host := range []string{"h.example", "x.example", "elsewhere"} {
			for _, path := range []string{"/", "/a", "/a/b", "/a/b/z", "/a/z", "/c", "/c/z", "/z"} {
				for _, method := range []string{"GET", "POST"} {
					for _, h := range [][]model.HeaderValue{nil, {{Name: "x", Value: "1"}}, {{Name: "x", Value: "2"}}, {{Name: "y", Value: "1"}}, {{Name: "y", Value: "2"}}} {
						r := &Request{Scheme: "http", Port: 80, Host: host, Method: method, Path: path, Headers: h}
						if _, differ := compare(x.outcome(r), y.outcome(r)); differ != nil {
							found = r
						}
					}
				}
			}
		}
		if found != nil && report.Same() {
			t.Fatalf("%+v differs, none was found:\n%+v\n%+v", found, before.Routes, after.Routes)
		}
		for _, c := range report.Changes {
			for _, e := range c.Examples {
				if _, differ := compare(x.outcome(&e), y.outcome(&e)); !slices.Equal(differ, c.Differ) {
					t.Fatalf("%+v differs in %v, not %v", e, differ, c.Differ)
				}
			}
		}
		if found != nil {
			different++
		}
	}
	if different < pairs/6 || different > pairs*29/30 {
		t.Errorf("%d of %d pairs differ: too few or too many to show anything", different, pairs)
	}
}

func TestSamplesMeetTheirExpression(t *testing.T) {
	for _, expression := range []string{"", "a", "/v[0-9]+/(list|get)?", "(?i)Firefox", ".*Chrome.*", "[^a-z]", `\d{2,4}`, "a|b", `^/x$`, "(a|b){3}", `[\x{4e00}-\x{4e10}]`, `\bx\b`} {
		all := samples(expression)
		if len(all) == 0 {
			t.Errorf("%q: no sample", expression)
		}
		for _, s := range all {
			if !regexp.MustCompile(`^(?:` + expression + `)$`).MatchString(s) {
				t.Errorf("%q does not match %q", expression, s)
			}
		}
	}
	for _, expression := range []string{"(", `a\Bb\b.`, "[[:^any:]]"} {
		if all := samples(expression); len(all) != 0 {
			t.Errorf("%q: %q", expression, all)
		}
	}
}

func FuzzSamples(f *testing.F) {
	f.Add("/v[0-9]+")
	f.Add("((((a{9}){9}){9}){9})")
	f.Fuzz(func(t *testing.T, expression string) {
		for _, s := range samples(expression) {
			if len(s) > 8*longest {
				t.Errorf("a sample of %d bytes", len(s))
			}
		}
	})
}

// TestAPortThatChangesItsProtocolDiffers changes the protocol of a port from each to each other.
func TestAPortThatChangesItsProtocolDiffers(t *testing.T) {
	of := func(p model.Protocol) *model.Config {
		rule := to(prefix("/"), "a")
		c := config([]string{"*"}, rule)
		c.Listeners[0].Protocol = p
		if !p.Requests() {
			c.Routes[0].Kind, c.Routes[0].Rules[0].Matches = model.RouteTCP, nil
		}
		return c
	}
	for _, p := range model.ListenerProtocols() {
		for _, q := range model.ListenerProtocols() {
			r := Compare(of(p), of(q), domain)
			if (len(r.Changes) > 0) != (p != q) {
				t.Errorf("from %q to %q: %+v", p, q, r.Changes)
			}
			for _, c := range r.Changes {
				for _, example := range c.Examples {
					if example.Scheme != p && example.Scheme != q {
						t.Errorf("from %q to %q the scheme %q is asked", p, q, example.Scheme)
					}
				}
			}
		}
	}
}
