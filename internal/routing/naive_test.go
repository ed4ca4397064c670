package routing

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

// fieldMap is a request's header fields by lower-case name.
type fieldMap map[string]string

func (f fieldMap) Field(name string) (string, bool) {
	value, ok := f[name]
	return value, ok
}

// found is what a matcher decides, comparable between matchers.
type found struct{ route, rule, match int }

// naiveMatch scans all matches of all routes and keeps the best by the order the package documents. It shares no code
// with the table.
func naiveMatch(cfg *model.Config, listener string, req *Request) (best found, ok bool) {
	var bestKey []int
	var bestName string
	for i := range cfg.Routes {
		route := &cfg.Routes[i]
		for _, a := range route.Attachments {
			if a.Listener != listener {
				continue
			}
			for _, hostname := range a.Hostnames {
				hostRank, covered := naiveHost(hostname, req.Host)
				if !covered {
					continue
				}
				for j := range route.Rules {
					for k := range route.Rules[j].Matches {
						m := &route.Rules[j].Matches[k]
						if !naiveHolds(m, req) {
							continue
						}
						// Larger is better, except for creation and the parts after it.
						key := append(append([]int{}, hostRank...), naivePath(m.Path)...)
						key = append(key, len(m.Method), len(m.Headers), len(m.Query), -int(route.Created.Unix()))
						if m.Method != "" {
							key[len(key)-4] = 1
						}
						name := route.Ref.Namespace + "/" + route.Ref.Name
						better := !ok || naiveBetter(key, bestKey, name, bestName)
						if better {
							best, bestKey, bestName, ok = found{i, j, k}, key, name, true
						}
					}
				}
			}
		}
	}
	return best, ok
}

// naiveBetter says whether a later found match ranks before the best so far; equals keep the earlier one, which is
// the order of rules and matches.
func naiveBetter(key, best []int, name, bestName string) bool {
	for i := range key {
		if key[i] != best[i] {
			return key[i] > best[i]
		}
	}
	return name < bestName
}

func naiveHost(hostname, host string) (rank []int, covered bool) {
	switch {
	case hostname == "*":
		return []int{0, 0}, true
	case strings.HasPrefix(hostname, "*."):
		return []int{1, len(hostname)}, strings.HasSuffix(host, hostname[1:]) && len(host) > len(hostname)-1
	}
	return []int{2, 0}, host == hostname
}

func naivePath(p model.PathMatch) []int {
	switch {
	case p.Type == model.Exact:
		return []int{3, 0}
	case p.Type == model.Regex:
		return []int{1, len(p.Value)}
	case p.Value == "/":
		return []int{0, 0}
	}
	return []int{2, len(strings.TrimRight(p.Value, "/"))}
}

func naiveHolds(m *model.Match, req *Request) bool {
	switch m.Path.Type {
	case model.Exact:
		if req.Path != m.Path.Value {
			return false
		}
	case model.Prefix:
		if !strings.HasPrefix(req.Path+"/", strings.TrimRight(m.Path.Value, "/")+"/") {
			return false
		}
	case model.Regex:
		if !naiveRegex(m.Path.Value, req.Path) {
			return false
		}
	}
	if m.Method != "" && m.Method != req.Method {
		return false
	}
	for _, h := range m.Headers {
		value, ok := req.Fields.Field(strings.ToLower(h.Name))
		if !ok || !naiveValue(h, value) {
			return false
		}
	}
	for _, q := range m.Query {
		values, _ := url.ParseQuery(req.Query)
		if !values.Has(q.Name) || !naiveValue(q, values.Get(q.Name)) {
			return false
		}
	}
	return true
}

func naiveValue(m model.ValueMatch, value string) bool {
	if m.Type == model.Regex {
		return naiveRegex(m.Value, value)
	}
	return m.Value == value
}

var naiveRegexes = map[string]*regexp.Regexp{}

func naiveRegex(pattern, value string) bool {
	e := naiveRegexes[pattern]
	if e == nil {
		e = regexp.MustCompile(pattern)
		e.Longest()
		naiveRegexes[pattern] = e
	}
	// Whole match: the longest one that starts at the beginning also ends at the end.
	at := e.FindStringIndex(value)
	return at != nil && at[0] == 0 && at[1] == len(value)
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

var (
	someHostnames = []string{"*", "*.com", "*.example.com", "*.a.example.com", "example.com", "a.example.com", "b.example.com", "x.a.example.com", "other.org"}
	someHosts     = []string{"example.com", "a.example.com", "b.example.com", "x.a.example.com", "y.x.a.example.com", "c.example.com", "notexample.com", "other.org", "com", "", "localhost"}
	someSegments  = []string{"a", "b", "ab", "abc", "c", "a.b", "%2F"}
	somePatterns  = []string{"/a.*", "/[a-c]+", "/a/b", ".*", "/(a|b)/.*", "/a.+|/b.*", "^/ab.*$", "/.*c"}
	someMethods   = []string{"GET", "POST", "PUT"}
	someNames     = []string{"X-A", "x-b", "version"}
	someValues    = []string{"1", "2", "one two", ""}
	someQueries   = []string{"version=1", "version=2&X-A=1", "x-b=one+two", "x-b=one%20two&version=1", "X-A", "version=%31", "v=1&&x-b=1&x-b=2", ""}
)

func randomPath(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(4) {
		b.WriteString("/" + pick(r, someSegments...))
	}
	if b.Len() == 0 || r.IntN(6) == 0 {
		b.WriteByte('/')
	}
	return b.String()
}

func randomValueMatches(r *rand.Rand) (list []model.ValueMatch) {
	for _, i := range r.Perm(len(someNames))[:max(0, r.IntN(5)-2)] {
		m := model.ValueMatch{Type: model.Exact, Name: someNames[i], Value: pick(r, someValues...)}
		if r.IntN(4) == 0 {
			m.Type, m.Value = model.Regex, pick(r, "[0-9]", "one.*", ".*", "1|2")
		}
		list = append(list, m)
	}
	return list
}

func randomConfig(r *rand.Rand) *model.Config {
	cfg := &model.Config{}
	for i := range 1 + r.IntN(4) {
		cfg.Listeners = append(cfg.Listeners, model.Listener{
			Name: fmt.Sprint("listener", i), Port: 80, Protocol: model.HTTP, Hostname: pick(r, "", "*.example.com", "*.com", "a.example.com"),
		})
	}
	for i := range 1 + r.IntN(12) {
		route := model.Route{
			Ref:     model.Ref{Kind: "HTTPRoute", Namespace: pick(r, "ns", "ns-b"), Name: fmt.Sprint("route", i*7%5, i)},
			Created: time.Unix(int64(1000+r.IntN(3)), 0),
		}
		for range 1 + r.IntN(3) {
			a := model.Attachment{Listener: cfg.Listeners[r.IntN(len(cfg.Listeners))].Name}
			for range 1 + r.IntN(3) {
				a.Hostnames = append(a.Hostnames, pick(r, someHostnames...))
			}
			route.Attachments = append(route.Attachments, a)
		}
		for range 1 + r.IntN(4) {
			var rule model.Rule
			for range 1 + r.IntN(3) {
				m := model.Match{Headers: randomValueMatches(r), Query: randomValueMatches(r)}
				switch r.IntN(5) {
				case 0, 1:
					m.Path = model.PathMatch{Type: model.Exact, Value: randomPath(r)}
				case 2, 3:
					m.Path = model.PathMatch{Type: model.Prefix, Value: randomPath(r)}
				case 4:
					m.Path = model.PathMatch{Type: model.Regex, Value: pick(r, somePatterns...)}
				}
				if r.IntN(3) == 0 {
					m.Method = pick(r, someMethods...)
				}
				rule.Matches = append(rule.Matches, m)
			}
			route.Rules = append(route.Rules, rule)
		}
		cfg.Routes = append(cfg.Routes, route)
	}
	return cfg
}

func randomRequest(r *rand.Rand) *Request {
	fields := fieldMap{}
	for _, name := range someNames {
		if r.IntN(2) == 0 {
			fields[strings.ToLower(name)] = pick(r, someValues...)
		}
	}
	return &Request{
		Host: pick(r, someHosts...), Method: pick(r, someMethods...), Path: randomPath(r), Query: pick(r, someQueries...), Fields: fields,
	}
}

// naiveListener returns the index of the listener for a host, -1 if there is none.
func naiveListener(cfg *model.Config, host string) int {
	best, bestRank := -1, []int{-1, 0}
	for i, l := range cfg.Listeners {
		hostname := l.Hostname
		if hostname == "" {
			hostname = "*"
		}
		rank, covered := naiveHost(hostname, host)
		if covered && (rank[0] > bestRank[0] || rank[0] == bestRank[0] && rank[1] > bestRank[1]) {
			best, bestRank = i, rank
		}
	}
	return best
}

// compareWithNaive checks listener selection, Match and Explain for one request.
func compareWithNaive(t *testing.T, cfg *model.Config, table *Table, req *Request) (matched bool) {
	t.Helper()
	got, want := -1, naiveListener(cfg, req.Host)
	if l := table.Port("tcp", "", 80).Listener(req.Host); l != nil {
		got = l.ID
	}
	if got != want {
		t.Fatalf("listener for %q is %d, want %d", req.Host, got, want)
	}
	for _, l := range table.Listeners() {
		want, wantOK := naiveMatch(cfg, l.Listener.Name, req)
		var d Decision
		ok := l.Match(req, &d)
		if ok != wantOK {
			t.Fatalf("%+v on %s: matched %v, want %v %+v", req, l.Listener.Name, ok, wantOK, want)
		}
		e := l.Explain(req)
		if e.Decision != d {
			t.Fatalf("%+v on %s: explained %+v, decided %+v", req, l.Listener.Name, e.Decision, d)
		}
		if !ok {
			continue
		}
		matched = true
		if rule := &cfg.Routes[want.route].Rules[want.rule]; d.Listener != l || d.Rule.Rule != rule || d.Match != &rule.Matches[want.match] {
			t.Fatalf("%+v on %s: decided\n%+v of %v, want\n%+v of %v", req, l.Listener.Name, d.Match, d.Rule.Route.Ref, rule.Matches[want.match], cfg.Routes[want.route].Ref)
		}
		if d.Match.Path.Type == model.Prefix {
			if rest := strings.TrimPrefix(req.Path, d.Prefix); d.Prefix != strings.TrimRight(d.Match.Path.Value, "/") || rest != "" && rest[0] != '/' {
				t.Fatalf("path %q matched prefix %q by %q", req.Path, d.Match.Path.Value, d.Prefix)
			}
		}
	}
	return matched
}

func TestMatchDecidesAsANaiveScanOfAllRules(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	configs := size.Of(60, 600)
	matched, total := 0, 0
	for range configs {
		cfg := randomConfig(r)
		table, err := Compile(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			total++
			if compareWithNaive(t, cfg, table, randomRequest(r)) {
				matched++
			}
		}
	}
	if matched < total/4 || matched > total*19/20 {
		t.Errorf("%d of %d requests matched: the random configurations test too little", matched, total)
	}
}

func FuzzMatchDecidesAsANaiveScan(f *testing.F) {
	f.Add(uint64(1), "a.example.com", "GET", "/a/b", "version=1", "1")
	f.Add(uint64(7), "x.a.example.com", "POST", "/", "", "one two")
	f.Fuzz(func(t *testing.T, seed uint64, host, method, path, query, value string) {
		path, err := NormalizePath(path)
		if err != nil {
			t.Skip()
		}
		// The naive matcher reads queries by the library, which drops parts that it cannot decode or that have ";".
		if _, err := url.ParseQuery(query); err != nil || strings.HasPrefix(host, ".") {
			t.Skip()
		}
		cfg := randomConfig(rand.New(rand.NewPCG(seed, 0)))
		table, left := Compile(cfg, nil)
		if left != nil {
			t.Fatal(left)
		}
		compareWithNaive(t, cfg, table, &Request{
			Host: host, Method: method, Path: path, Query: query, Fields: fieldMap{"x-a": value, "x-b": value},
		})
	})
}
