package routing

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

func exact(path string) model.Match {
	return model.Match{Path: model.PathMatch{Type: model.Exact, Value: path}}
}

func prefix(path string) model.Match {
	return model.Match{Path: model.PathMatch{Type: model.Prefix, Value: path}}
}

func regex(pattern string) model.Match {
	return model.Match{Path: model.PathMatch{Type: model.Regex, Value: pattern}}
}

func withMethod(m model.Match, method string) model.Match {
	m.Method = method
	return m
}

func withHeader(m model.Match, name, value string) model.Match {
	m.Headers = append(m.Headers, model.ValueMatch{Type: model.Exact, Name: name, Value: value})
	return m
}

func withQuery(m model.Match, name, value string) model.Match {
	m.Query = append(m.Query, model.ValueMatch{Type: model.Exact, Name: name, Value: value})
	return m
}

// on is a route for hostnames with one rule for each match; the rules are named after the route and their place.
func on(name string, hostnames []string, matches ...model.Match) model.Route {
	route := model.Route{
		Ref:         model.Ref{Kind: "HTTPRoute", Namespace: "ns", Name: name},
		Attachments: []model.Attachment{{Listener: "web", Hostnames: hostnames}},
	}
	for i, m := range matches {
		route.Rules = append(route.Rules, model.Rule{Name: fmt.Sprintf("%s.%d", name, i), Matches: []model.Match{m}})
	}
	return route
}

func tableOf(t testing.TB, routes ...model.Route) *Table {
	t.Helper()
	table, err := Compile(&model.Config{
		Listeners: []model.Listener{{Name: "web", Port: 80, Protocol: model.HTTP}},
		Routes:    routes,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// decide returns the name of the rule, empty if there is none.
func decide(table *Table, req Request) string {
	if req.Method == "" {
		req.Method = "GET"
	}
	var d Decision
	if !table.Ports()[0].Listener(req.Host).Match(&req, &d) {
		return ""
	}
	return d.Rule.Rule.Name
}

func TestHostnamesArePreferredFromExactToAny(t *testing.T) {
	all := []model.Match{prefix("/")}
	table := tableOf(t,
		on("any", []string{"*"}, all...),
		on("com", []string{"*.com"}, all...),
		on("wild", []string{"*.example.com"}, all...),
		on("deep", []string{"*.a.example.com"}, all...),
		on("exact", []string{"a.example.com"}, all...),
	)
	for host, want := range map[string]string{
		"a.example.com":     "exact.0",
		"b.a.example.com":   "deep.0",
		"c.b.a.example.com": "deep.0",
		"b.example.com":     "wild.0",
		"x.b.example.com":   "wild.0",
		"example.com":       "com.0",
		"notexample.com":    "com.0",
		"com":               "any.0",
		"example.org":       "any.0",
		"":                  "any.0",
		".example.com":      "com.0",
	} {
		if got := decide(table, Request{Host: host, Path: "/"}); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}

func TestAHostFallsOnToLessSpecificHostnames(t *testing.T) {
	table := tableOf(t,
		on("any", []string{"*"}, prefix("/")),
		on("wild", []string{"*.example.com"}, prefix("/w"), exact("/x/y")),
		on("exact", []string{"a.example.com"}, prefix("/x"), withHeader(exact("/w"), "k", "v")),
	)
	for path, want := range map[string]string{"/x/y": "exact.0", "/w": "wild.0", "/other": "any.0"} {
		if got := decide(table, Request{Host: "a.example.com", Path: path}); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestPathsArePreferredByTypeAndLength(t *testing.T) {
	table := tableOf(t, on("r", []string{"*"},
		prefix("/"),            // 0
		prefix("/a"),           // 1
		prefix("/a/b/"),        // 2
		exact("/a/b"),          // 3
		exact("/a/b/"),         // 4
		regex("/a/.*"),         // 5
		regex("/z[0-9]+"),      // 6
		regex("/z[0-9]+(/.*)"), // 7
		regex(".*"),            // 8
		prefix("/z/y"),         // 9
		exact("/"),             // 10
		exact("/%7Ehome"),      // 11
	))
	for path, want := range map[string]string{
		"/":       "r.10",
		"/a":      "r.1",
		"/a/":     "r.1",
		"/ab":     "r.8",
		"/a/b":    "r.3",
		"/a/b/":   "r.4",
		"/a/b/c":  "r.2",
		"/a/bc":   "r.1",
		"/z12":    "r.6",
		"/z12/x":  "r.7",
		"/z/y/1":  "r.9",
		"/z":      "r.8",
		"/~home":  "r.11",
		"/~home/": "r.8",
	} {
		if got := decide(table, Request{Path: path}); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestTheCatchAllComesAfterExpressions(t *testing.T) {
	table := tableOf(t, on("r", []string{"*"}, prefix("/"), regex("/v[0-9]/.*")))
	for path, want := range map[string]string{"/v1/x": "r.1", "/vx": "r.0"} {
		if got := decide(table, Request{Path: path}); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestExpressionsMatchTheWholePath(t *testing.T) {
	table := tableOf(t, on("r", []string{"*"}, regex("/a|/b/c"), regex("/d")))
	for path, want := range map[string]string{"/a": "r.0", "/b/c": "r.0", "/a/c": "", "/x/b/c": "", "/d": "r.1", "/d/": "", "/d\n": ""} {
		if got := decide(table, Request{Path: path}); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestEqualPathsArePreferredByMethodHeadersAndQuery(t *testing.T) {
	table := tableOf(t, on("r", []string{"*"},
		prefix("/a"),                      // 0
		withQuery(prefix("/a"), "q", "1"), // 1
		withQuery(withQuery(prefix("/a"), "q", "1"), "p", "1"),          // 2
		withHeader(prefix("/a"), "h", "1"),                              // 3
		withHeader(withHeader(prefix("/a"), "h", "1"), "g", "1"),        // 4
		withMethod(prefix("/a"), "POST"),                                // 5
		withQuery(withHeader(prefix("/a"), "h", "1"), "q", "1"),         // 6
		withHeader(withHeader(prefix("/a/b"), "h", "1"), "never", "1"),  // 7
		withMethod(withHeader(exact("/a/b"), "never", "1"), "POST"),     // 8
		withHeader(withHeader(prefix("/a"), "h", "2"), "H", "ignored!"), // 9
	))
	for _, c := range []struct {
		req  Request
		want string
	}{
		{Request{Path: "/a"}, "r.0"},
		{Request{Path: "/a", Query: "q=1"}, "r.1"},
		{Request{Path: "/a", Query: "p=1&q=1"}, "r.2"},
		{Request{Path: "/a", Query: "p=1&q=1", Fields: fieldMap{"h": "1"}}, "r.6"},
		{Request{Path: "/a", Fields: fieldMap{"h": "1"}}, "r.3"},
		{Request{Path: "/a", Fields: fieldMap{"h": "1", "g": "1"}}, "r.4"},
		{Request{Path: "/a", Method: "POST", Fields: fieldMap{"h": "1", "g": "1"}}, "r.5"},
		{Request{Path: "/a/b/c", Fields: fieldMap{"h": "1"}}, "r.3"},
		{Request{Path: "/a/b", Method: "POST"}, "r.5"},
		{Request{Path: "/a", Fields: fieldMap{"h": "2"}}, "r.9"},
	} {
		if got := decide(table, c.req); got != c.want {
			t.Errorf("%+v: %q, want %q", c.req, got, c.want)
		}
	}
}

func TestEqualMatchesArePreferredByAgeThenNameThenOrder(t *testing.T) {
	at := func(r model.Route, namespace string, second int64) model.Route {
		r.Created = time.Unix(second, 0)
		r.Ref.Namespace = namespace
		return r
	}
	m := prefix("/a")
	any := []string{"*"}
	young, old := at(on("a", any, m), "ns", 200), at(on("z", any, m, m), "ns", 100)
	dash, slash := at(on("z", any, m), "a-b", 100), at(on("y", any, m), "a", 100)
	for _, c := range []struct {
		routes []model.Route
		want   string
	}{
		{[]model.Route{young, old}, "z.0"},
		{[]model.Route{young, old, at(on("y", any, m), "ns", 100)}, "y.0"},
		// "a-b/z" is before "a/y" as text.
		{[]model.Route{slash, dash}, "z.0"},
	} {
		if got := decide(tableOf(t, c.routes...), Request{Path: "/a"}); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestAnyMatchOfARuleIsEnough(t *testing.T) {
	route := on("r", []string{"*"}, exact("/a"))
	route.Rules[0].Matches = append(route.Rules[0].Matches, prefix("/b"))
	table := tableOf(t, route)
	var d Decision
	req := Request{Path: "/b/c", Method: "GET"}
	if !table.Listeners()[0].Match(&req, &d) || d.Match != &table.Rules()[0].Rule.Matches[1] || d.Prefix != "/b" {
		t.Errorf("decided %+v", d)
	}
}

func TestHeaderNamesIgnoreCaseAndAbsentFieldsNeverMatch(t *testing.T) {
	m := prefix("/")
	m.Headers = []model.ValueMatch{{Type: model.Regex, Name: "User-Agent", Value: ".*"}}
	table := tableOf(t, on("r", []string{"*"}, m))
	for _, c := range []struct {
		fields Fields
		want   string
	}{
		{nil, ""},
		{fieldMap{}, ""},
		{fieldMap{"user-agent": ""}, "r.0"},
		{fieldMap{"user-agent": "curl"}, "r.0"},
	} {
		if got := decide(table, Request{Path: "/", Fields: c.fields}); got != c.want {
			t.Errorf("%v: %q, want %q", c.fields, got, c.want)
		}
	}
}

func TestQueryParametersAreComparedDecoded(t *testing.T) {
	patterned := prefix("/")
	patterned.Query = []model.ValueMatch{{Type: model.Regex, Name: "r e", Value: "a [0-9]"}}
	table := tableOf(t, on("r", []string{"*"}, withQuery(prefix("/"), "k", "a b&c"), patterned, withQuery(prefix("/"), "empty", ""), withQuery(prefix("/"), "p", "100%")))
	for query, want := range map[string]string{
		"k=a+b%26c":         "r.0",
		"k=a%20b%26c":       "r.0",
		"%6b=a+b%26c":       "r.0",
		"K=a+b%26c":         "",
		"x=1&&k=a+b%26c":    "r.0",
		"k=a+b&c":           "",
		"k=other&k=a+b%26c": "",
		"k=a+b%26cd":        "",
		"r+e=a+7":           "r.1",
		"r%20e=a%207":       "r.1",
		"r%20e=a%2":         "",
		"empty":             "r.2",
		"empty=":            "r.2",
		"empty=x":           "",
		"p=100%":            "r.3",
		"p=100%25":          "r.3",
		"":                  "",
	} {
		if got := decide(table, Request{Path: "/", Query: query}); got != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
}

func TestManyNamesAreRememberedApart(t *testing.T) {
	// More names than a walk remembers, asked for again and again.
	var matches []model.Match
	for i := range 40 {
		m := prefix("/")
		m.Headers = []model.ValueMatch{{Type: model.Exact, Name: fmt.Sprint("h", i%9), Value: fmt.Sprint(i)}}
		matches = append(matches, m)
	}
	table := tableOf(t, on("r", []string{"*"}, matches...))
	fields := fieldMap{}
	for i := range 9 {
		fields[fmt.Sprint("h", i)] = "none"
	}
	fields["h3"] = "30"
	if got := decide(table, Request{Path: "/", Fields: fields}); got != "r.30" {
		t.Errorf("%q, want r.30", got)
	}
}

func TestListenersAreIsolated(t *testing.T) {
	cfg := &model.Config{
		Listeners: []model.Listener{
			{Name: "any", Port: 80, Protocol: model.HTTP},
			{Name: "wild", Port: 80, Protocol: model.HTTP, Hostname: "*.example.com"},
			{Name: "exact", Port: 80, Protocol: model.HTTP, Hostname: "a.example.com"},
			{Name: "second", Port: 80, Protocol: model.HTTP, Hostname: "a.example.com"},
			{Name: "secure", Port: 443, Protocol: model.HTTPS, Hostname: "a.example.com"},
			{Name: "local", Address: "127.0.0.1", Port: 80, Protocol: model.HTTP},
		},
	}
	table, err := Compile(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var ports []string
	for _, p := range table.Ports() {
		ports = append(ports, fmt.Sprintf("%s:%d %s %d", p.Address, p.Number, p.Protocol, len(p.Listeners)))
		if table.Port("tcp", p.Address, p.Number) != p {
			t.Errorf("Port(%q, %d) is another", p.Address, p.Number)
		}
	}
	if got, want := fmt.Sprint(ports), "[:80 http 4 127.0.0.1:80 http 1 :443 https 1]"; got != want {
		t.Errorf("ports %s, want %s", got, want)
	}
	for host, want := range map[string]string{"a.example.com": "exact", "b.example.com": "wild", "example.com": "any", "": "any"} {
		if got := table.Port("tcp", "", 80).Listener(host).Listener.Name; got != want {
			t.Errorf("%q: listener %q, want %q", host, got, want)
		}
	}
	if l := table.Port("tcp", "", 443).Listener("b.example.com"); l != nil {
		t.Errorf("listener %q serves a host it does not name", l.Listener.Name)
	}
	if table.Port("tcp", "", 81) != nil || table.Port("tcp", "::1", 80) != nil || table.Port("udp", "", 80) != nil {
		t.Error("a port nobody listens on")
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	header := withHeader(prefix("/a"), "User-Agent", "x")
	header.Headers[0] = model.ValueMatch{Type: model.Regex, Name: "User-Agent", Value: ".*Firefox.*"}
	table := tableOf(t, on("r", []string{"*.example.com"}, header, withQuery(prefix("/a"), "k", "a b"), regex("/r[0-9]+"), prefix("/")))
	l := table.Listeners()[0]
	for _, req := range []*Request{
		{Host: "a.example.com", Path: "/a/b", Method: "GET", Fields: fieldMap{"user-agent": "a Firefox"}},
		{Host: "a.example.com", Path: "/a/b", Method: "GET", Query: "x=%20&k=a+b", Fields: fieldMap{"user-agent": "curl"}},
		{Host: "a.example.com", Path: "/r12", Method: "GET"},
		{Host: "a.b.example.com", Path: "/z", Method: "GET"},
		{Host: "other", Path: "/z", Method: "GET"},
	} {
		var d Decision
		if n := testing.AllocsPerRun(200, func() { l.Match(req, &d) }); n != 0 {
			t.Errorf("%+v: %v allocations", req, n)
		}
	}
}
