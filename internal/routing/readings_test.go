package routing

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

// policies is a configuration of one listener with a route for each path, in this order of age. A path may begin with "=" (exact) or "~"
// (regular expression) and end in " strict" or " as-written".
func policies(t testing.TB, listener model.PathPolicy, paths ...string) *Listener {
	t.Helper()
	cfg := &model.Config{Listeners: []model.Listener{{Name: "l", Port: 80, Protocol: model.HTTP, PathPolicy: listener}}}
	for i, p := range paths {
		value, policy, _ := strings.Cut(p, " ")
		match := model.PathMatch{Type: model.Prefix, Value: value}
		switch value[0] {
		case '=':
			match = model.PathMatch{Type: model.Exact, Value: value[1:]}
		case '~':
			match = model.PathMatch{Type: model.Regex, Value: value[1:]}
		}
		cfg.Routes = append(cfg.Routes, model.Route{
			Ref: model.Ref{Kind: "HTTPRoute", Namespace: "n", Name: fmt.Sprintf("%02d %s", i, value)}, PathPolicy: model.PathPolicy(policy),
			Attachments: []model.Attachment{{Listener: "l", Hostnames: []string{"*"}}},
			Rules:       []model.Rule{{Matches: []model.Match{{Path: match}}}},
		})
	}
	table, err := Compile(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table.Listeners()[0]
}

// judge returns what happens to a path: the rule's path, and the refusal. The rule is empty if there is none, and for a
// path that is refused in any case.
func judge(t testing.TB, l *Listener, raw string) (rule string, refused Reading) {
	t.Helper()
	normal, err := NormalizePath(raw)
	if err != nil {
		return "", OneReading
	}
	req, d := &Request{Host: "h", Method: "GET", Path: normal}, Decision{}
	if !l.Match(req, &d) {
		return "", OneReading
	}
	r, _ := l.Refuses(raw, req, &d, nil)
	return d.Match.Path.Value, r.Reading
}

// Each kind of path with either policy, set on the Gateway, on the protected route, and on the other.
func TestPathPolicies(t *testing.T) {
	for _, c := range []struct {
		raw     string
		matched string // as written, of "/admin" and "/"
		reading Reading
		// spared: the path is ambiguous, but no reading leads to "/admin".
		spared bool
	}{
		{"/admin", "/admin", OneReading, false},
		{"/admin/", "/admin", OneReading, false},
		{"/admin/users/17", "/admin", OneReading, false},
		{"/administration", "/", OneReading, false},
		{"/shop/a-b_c.d~e", "/", OneReading, false},
		{"/.well-known/acme", "/", OneReading, false},
		{"/shop/a:b@c!$&'()*+,=", "/", OneReading, false},
		{"/shop/a%20b", "/", OneReading, false},
		{"/shop/100%25", "/", OneReading, false},
		{"/shop/caf%C3%A9", "/", OneReading, false},
		{"/shop/c%23", "/", OneReading, false},
		{"/shop/ABC", "/", OneReading, false},
		{"/%61dmin", "/admin", OneReading, false},
		{"/admin/ABC", "/admin", OneReading, false},

		{"/./admin", "/admin", DotSegment, false},
		{"/a/../admin", "/admin", DotSegment, false},
		{"/a/%2e%2E/admin", "/admin", DotSegment, false},
		{"/admin/../x", "/", DotSegment, true},
		{"//admin", "/admin", EmptySegment, false},
		{"/admin//x", "/admin", EmptySegment, false},
		{"/x//y", "/", EmptySegment, true},
		{`/\admin`, "/", Backslash, false},
		{`/admin\x`, "/", Backslash, false},
		{"/admin%5cx", "/", Backslash, false},
		{"/x%5Cadmin", "/", Backslash, true},
		{"/admin%2fx", "/", EscapedSlash, false},
		{"/%2Fadmin", "/", EscapedSlash, false},
		{"/x%2Fadmin", "/", EscapedSlash, true},
		{"/%2561dmin", "/", DoubleEscape, false},
		{"/admin%252Fx", "/", DoubleEscape, false},
		{"/%25%36%31dmin", "/", DoubleEscape, false},
		{"/x/%2561dmin", "/", DoubleEscape, true},
		{"/admin;x", "/", PathParameter, false},
		{"/admin;x/y", "/", PathParameter, false},
		{"/;x/admin", "/", PathParameter, false},
		{"/admin%3bx", "/", PathParameter, false},
		{"/x;y", "/", PathParameter, true},
		{"/admin%20", "/", OuterSpace, false},
		{"/admin%20/x", "/", OuterSpace, false},
		{"/%20admin", "/", OuterSpace, false},
		{"/x%20/y", "/", OuterSpace, true},
		{"/admin%09", "/", ControlCharacter, false},
		{"/adm%0ain", "/", ControlCharacter, false},
		{"/admin%7F/x", "/", ControlCharacter, false},
		{"/x%0a", "/", ControlCharacter, true},
		{"/admin%3Fx", "/", EscapedQuestionMark, false},
		{"/x%3Fadmin", "/", EscapedQuestionMark, true},
		{"/%c1%a1dmin", "/", InvalidUTF8, false},
		{"/admin%c0%afx", "/", InvalidUTF8, false},
		{"/x/%e0%80%ae%c0%ae/admin", "/", InvalidUTF8, false},
		{"/admin%ff", "/", InvalidUTF8, false},
		{"/caf%e9", "/", InvalidUTF8, true},
		{"/x%ed%a0%80", "/", InvalidUTF8, true},

		// Of these it depends on the rules.
		{"/ADMIN", "/", LetterCase, false},
		{"/Admin/x", "/", LetterCase, false},
		{"/%41dmin", "/", LetterCase, false},
		{"/adm%C4%B1n", "/", LetterCase, false},
		{"/admin.", "/", TrailingDot, false},
		{"/admin../x", "/", TrailingDot, false},
		{"/admin%2e", "/", TrailingDot, false},
		{"/Admin.", "/", SeveralReadings, false},
	} {
		ofTheRules := ofTheRules.has(c.reading) || c.reading == SeveralReadings
		if got := Ambiguity(c.raw); got != c.reading && !(ofTheRules && got == OneReading) {
			t.Errorf("Ambiguity(%q) = %q, want %q", c.raw, got, c.reading)
		}
		for _, p := range []struct {
			name    string
			l       *Listener
			refused bool
		}{
			{"as-written", policies(t, "", "/admin", "/"), false},
			{"as-written in words", policies(t, model.PathAsWritten, "/admin", "/ as-written"), false},
			{"strict", policies(t, model.PathStrict, "/admin", "/"), c.reading != OneReading},
			{"strict on the routes", policies(t, "", "/admin strict", "/ strict"), c.reading != OneReading},
			{"as-written on the routes", policies(t, model.PathStrict, "/admin as-written", "/ as-written"), false},
			{"strict on /admin", policies(t, "", "/admin strict", "/"), c.reading != OneReading && (c.matched == "/admin" || !c.spared)},
			{"strict but on /admin", policies(t, model.PathStrict, "/admin as-written", "/"), c.reading != OneReading && c.matched == "/"},
		} {
			rule, refused := judge(t, p.l, c.raw)
			if rule != c.matched {
				t.Errorf("%s: %q is matched by %q, want %q", p.name, c.raw, rule, c.matched)
			}
			want := OneReading
			if p.refused {
				want = c.reading
			}
			// Where several readings together lead to another rule it is enough to tell one of the path's.
			if refused != want && (refused == OneReading || want == OneReading || p.name != "strict on /admin") {
				t.Errorf("%s: %q is refused as %q, want %q", p.name, c.raw, refused, want)
			}
		}
	}
}

func TestStrictPathsByTheRules(t *testing.T) {
	for _, c := range []struct {
		what  string
		rules []string
		raw   string
		want  Reading
	}{
		{"a rule in capitals", []string{"/Admin", "/"}, "/admin", LetterCase},
		{"a rule in capitals, as written", []string{"/Admin", "/"}, "/Admin/x", OneReading},
		{"rules that differ by case are told apart by case", []string{"/Admin", "/admin", "/"}, "/admin", OneReading},
		{"and so are they", []string{"/admin", "/Admin", "/"}, "/Admin", OneReading},
		{"but not other spellings of theirs", []string{"/admin", "/Admin", "/"}, "/ADMIN", LetterCase},
		{"a less specific rule does not take it away", []string{"/ADMIN/x", "/admin", "/"}, "/ADMIN/x", OneReading},
		{"no rule matches", []string{"/admin"}, "/ADMIN", OneReading},
		{"an exact match", []string{"=/admin", "/"}, "/Admin", LetterCase},
		{"an exact match, of something else", []string{"=/admin", "/"}, "/Admin/x", OneReading},
		{"an exact match with a slash", []string{"=/admin/", "/"}, "/Admin/", LetterCase},
		{"an exact match without", []string{"=/admin", "/"}, "/Admin/", OneReading},
		{"an exact match decided", []string{"=/admin", "/admin", "/"}, "/admin", OneReading},
		{"an expression", []string{"~/adm[a-i]n(/.*)?", "/"}, "/ADMIN/x", LetterCase},
		{"an expression with capitals", []string{"~/Admin/.*", "/"}, "/admin/x", LetterCase},
		{"an expression, as written", []string{"~/Adm[A-Z]n/.*", "/"}, "/AdmIn/x", OneReading},
		{"an expression that does not match", []string{"~/admin", "/"}, "/shop/X", OneReading},
		{"an expression with a class of capitals", []string{"~/[[:upper:]]+", "/"}, "/admin", LetterCase},
		{"an expression and a dot", []string{"~/admin/.*", "/"}, "/admin./x", TrailingDot},
		{"a more specific rule before an expression", []string{"~/a.*", "/admin", "/"}, "/Admin", LetterCase},
		{"an escape in a rule", []string{"/%40admin", "/"}, "/@admin", EscapedCharacter},
		{"an escape in the request", []string{"/@admin", "/"}, "/%40admin/x", EscapedCharacter},
		{"a character that is always escaped", []string{`/"a"`, "/"}, "/%22A%22", LetterCase},
		{"letters that are no ASCII", []string{"/äpfel", "/"}, "/%C3%84pfel", LetterCase},
		{"a letter that folds to ASCII", []string{"/key", "/"}, "/%E2%84%AAey", LetterCase},
		{"a rule with a parameter is for the path as written", []string{"/a;b", "/"}, "/a", OneReading},
		{"of whose path nothing is left", []string{"/...", "/"}, "/.../x", OneReading},
		{"which is not all paths", []string{"/...", "/"}, "/X", OneReading},
		{"dots at the end of a rule", []string{"/inc.", "/"}, "/inc./x", OneReading},
		{"without them", []string{"/inc.", "/"}, "/inc/x", TrailingDot},
	} {
		if _, got := judge(t, policies(t, model.PathStrict, c.rules...), c.raw); got != c.want {
			t.Errorf("%s: with rules for %q, %q is refused as %q, want %q", c.what, c.rules, c.raw, got, c.want)
		}
	}
}

// Somebody else's strict rule takes away what he could have by a rule for the path as it is read, and nothing more.
func TestStrictRuleDoesNotRefuseWhatIsMoreSpecific(t *testing.T) {
	for _, c := range []struct {
		rules []string
		raw   string
		want  bool
	}{
		{[]string{"=/api%2Fx", "/ strict"}, "/api%2Fx", false},
		{[]string{"/api%2Fx", "/api strict"}, "/api%2Fx/y", false},
		{[]string{"/api;v", "/api strict"}, "/api;v/y", false},
		{[]string{"~/api%2F.*", "/ strict"}, "/api%2Fx", false},
		{[]string{"~/api%2F.*", "/api strict"}, "/api%2Fx", true},
		{[]string{"/npm", "/ strict"}, "/npm/@scope%2fname", false},
		{[]string{"/npm", "/npm/@scope strict"}, "/npm/@scope%2fname", true},
		{[]string{"/a/b", "/a strict"}, "/a/b/x%2Fc", false},
		{[]string{"/a", "/a/b strict"}, "/a/b%2Fc", true},
		{[]string{"/", "~/a/b.*", "/other strict"}, "/a%2Fb", false}, // nobody's rule before it is strict
		{[]string{"/", "~/a/b.* strict"}, "/a%2Fb", true},
		{[]string{"/", "/a/b", "/other strict"}, "/a%2Fb", false},
		{[]string{"/", "/a/b strict"}, "/a%2Fb", true},
		{[]string{"/a", "/a/b/c", "/a/b strict"}, "/a/b%2Fc", true}, // whoever reads it, /a/b is before /a
		{[]string{"/a", "/a;b strict"}, "/a", false},
		{[]string{"/", "/a;b strict"}, "/A;b", true},
	} {
		_, got := judge(t, policies(t, "", c.rules...), c.raw)
		if (got != OneReading) != c.want {
			t.Errorf("with rules for %q, %q is refused as %q, want %v", c.rules, c.raw, got, c.want)
		}
	}
}

func TestPathPoliciesLookAtTheRestOfAMatch(t *testing.T) {
	cfg := &model.Config{Listeners: []model.Listener{{Name: "l", Port: 80, Protocol: model.HTTP}}}
	add := func(name string, policy model.PathPolicy, m model.Match) {
		cfg.Routes = append(cfg.Routes, model.Route{
			Ref: model.Ref{Kind: "HTTPRoute", Name: name}, PathPolicy: policy,
			Attachments: []model.Attachment{{Listener: "l", Hostnames: []string{"a.example", "*.b.example"}}},
			Rules:       []model.Rule{{Matches: []model.Match{m}}},
		})
	}
	prefix := func(p string) model.PathMatch { return model.PathMatch{Type: model.Prefix, Value: p} }
	add("rest", "", model.Match{Path: prefix("/")})
	add("post", model.PathStrict, model.Match{Path: prefix("/admin"), Method: "POST"})
	add("field", model.PathStrict, model.Match{Path: model.PathMatch{Type: model.Regex, Value: "/op.*"}, Headers: []model.ValueMatch{{Type: model.Exact, Name: "x", Value: "1"}}})
	add("query", model.PathStrict, model.Match{Path: prefix("/q"), Query: []model.ValueMatch{{Type: model.Exact, Name: "x", Value: "1"}}})
	table, err := Compile(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := table.Listeners()[0]
	for _, c := range []struct {
		req  Request
		want bool
	}{
		{Request{Method: "GET", Path: "/ADMIN"}, false},
		{Request{Method: "POST", Path: "/ADMIN"}, true},
		{Request{Method: "GET", Path: "/OP"}, false},
		{Request{Method: "GET", Path: "/OP", Fields: fieldMap{"x": "1"}}, true},
		{Request{Method: "GET", Path: "/Q", Query: "x=2"}, false},
		{Request{Method: "GET", Path: "/Q", Query: "x=1"}, true},
	} {
		for _, host := range []string{"a.example", "x.b.example"} {
			c.req.Host = host
			var d Decision
			if !l.Match(&c.req, &d) || d.Rule.Route.Ref.Name != "rest" {
				t.Fatalf("%+v is not for the rest", c.req)
			}
			r, _ := l.Refuses(c.req.Path, &c.req, &d, nil)
			if (r.Reading != OneReading) != c.want || c.want && r.Other.Route.PathPolicy != model.PathStrict {
				t.Errorf("%+v: refused as %q, want %v", c.req, r.Reading, c.want)
			}
		}
	}
}

// A reader is a server as far as it reads paths, written without a look at how Refuses does it: what it makes of the target it is sent.
type reader struct {
	name string
	read func(path string) string
	fold bool // file names and locations have no letter case
}

var (
	parameters   = regexp.MustCompile(`;[^/]*`)
	escapedSlash = regexp.MustCompile(`(?i)%2f`)
	slashes      = regexp.MustCompile(`/+`)
	pathEnds     = regexp.MustCompile(`[. ]+(/|$)`)
	controls     = regexp.MustCompile(`[\x00-\x1f\x7f]`)
)

func clean(p string) string { return path.Clean("/" + p) }

// undo decodes as url.PathUnescape does and leaves what cannot be decoded.
func undo(p string) string {
	out := ""
	for {
		before, rest, ok := strings.Cut(p, "%")
		out += before
		if !ok {
			return out
		}
		if d, err := url.PathUnescape("%" + rest[:min(2, len(rest))]); err == nil {
			out, p = out+d, rest[2:]
		} else {
			out, p = out+"%", rest
		}
	}
}

func overlong(p string) string {
	if strings.IndexByte(p, 0xc0) < 0 && strings.IndexByte(p, 0xc1) < 0 && strings.IndexByte(p, 0xe0) < 0 {
		return p
	}
	for c := range 128 {
		p = strings.ReplaceAll(p, string([]byte{0xc0 | byte(c>>6), 0x80 | byte(c&63)}), string(rune(c)))
		p = strings.ReplaceAll(p, string([]byte{0xe0, 0x80 | byte(c>>6), 0x80 | byte(c&63)}), string(rune(c)))
	}
	return p
}

func windows(p string) string {
	p = clean(strings.ReplaceAll(p, `\`, "/"))
	return clean(pathEnds.ReplaceAllString(p, "$1"))
}

var readers = []reader{
	{"raw", func(p string) string { return p }, false},
	{"unescaped unreserved", func(p string) string { return p }, true},
	{"nginx", func(p string) string { return clean(slashes.ReplaceAllString(undo(p), "/")) }, false},
	{"nginx on Windows", func(p string) string { return windows(undo(p)) }, true},
	{"Go", func(p string) string { return clean(undo(p)) }, false},
	{"servlet", func(p string) string { return clean(undo(parameters.ReplaceAllString(p, ""))) }, false},
	{"servlet that keeps %2F", func(p string) string {
		return clean(undo(escapedSlash.ReplaceAllString(parameters.ReplaceAllString(p, ""), "%252F")))
	}, false},
	{"servlet that decodes first", func(p string) string { return clean(parameters.ReplaceAllString(undo(p), "")) }, false},
	{"chain", func(p string) string { return clean(undo(undo(p))) }, false},
	{"chain of three", func(p string) string { return clean(undo(undo(undo(p)))) }, false},
	{"chain to a servlet", func(p string) string { return clean(undo(parameters.ReplaceAllString(undo(p), ""))) }, true},
	{"IIS", func(p string) string { return windows(overlong(undo(p))) }, true},
	{"old IIS", func(p string) string { return windows(overlong(undo(overlong(undo(p))))) }, true},
	{"everything", func(p string) string {
		return windows(parameters.ReplaceAllString(strings.ReplaceAll(controls.ReplaceAllString(overlong(undo(undo(p))), ""), `\`, "/"), ""))
	}, true},
	{"rewriting", func(p string) string { before, _, _ := strings.Cut(undo(p), "?"); return clean(before) }, false},
	{"without controls", func(p string) string { return clean(controls.ReplaceAllString(undo(p), "")) }, false},
	{"trimming", func(p string) string {
		var all []string
		for _, s := range strings.Split(undo(p), "/") {
			all = append(all, strings.TrimSpace(s))
		}
		return clean(strings.Join(all, "/"))
	}, false},
}

// under says whether the server so has a path in a folder.
func (r *reader) under(p, folder string) bool {
	p = r.read(p)
	if r.fold {
		p = strings.ToLower(p)
	}
	return p == folder || strings.HasPrefix(p, folder+"/")
}

// ambiguousPath is made of pieces that make paths ambiguous, and others.
func ambiguousPath(r *rand.Rand) string {
	pieces := []string{
		"/", "/", "/", "/", "admin", "admin", "Admin", "ADMIN", "adm", "in", "a", "b", "x", ".", "..", ";", ";v=1", "%2f", "%2F", "%5c", "%252f", "%25",
		"2f", "61", "%2561", "%61", "%41", "%20", "%09", "%0a", "%3f", "%3b", "%2e", "%252e", "%c0%af", "%c0%ae", "%c1%a1", "%e0%80%af", "%ff", "%C3%A4",
		"%40", "@", "dmin", "~", "-", "%", "%7f", "%5C", "%23", "+", "%c3",
	}
	var b strings.Builder
	b.WriteByte('/')
	for range r.IntN(8) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// mutated is "/admin/x" with a few changes.
func mutated(r *rand.Rand) string {
	p := "/admin/x"
	if r.IntN(3) == 0 {
		p = "/admin"
	}
	for range 1 + r.IntN(3) {
		at := 1 + r.IntN(len(p))
		insert := []string{";", ";a", "%2f", "%5c", "/", "/./", "/../", "%20", ".", "%09", "%c0%af", "%3f", "%252f", "%2e", "/x/../"}
		switch r.IntN(4) {
		case 0:
			p = p[:at] + insert[r.IntN(len(insert))] + p[at:]
		case 1:
			p = p[:at-1] + fmt.Sprintf("%%%02x", p[at-1]) + p[at:]
		case 2:
			p = p[:at-1] + fmt.Sprintf("%%25%02x", p[at-1]) + p[at:]
		default:
			p = p[:at-1] + strings.ToUpper(p[at-1:at]) + p[at:]
		}
		if p[0] != '/' {
			p = "/" + p
		}
	}
	return p
}

// passes checks of one path that no server reads it as one of /admin if it passes a rule for everything but that.
func passes(t *testing.T, strict []*Listener, raw string) {
	t.Helper()
	normal, err := NormalizePath(raw)
	if err != nil {
		return
	}
	forwarded := raw
	if HasDotSegment(raw) {
		forwarded = normal
	}
	for i, l := range strict {
		rule, refused := judge(t, l, raw)
		if rule != "/" || refused != OneReading {
			continue
		}
		for _, r := range readers {
			if r.under(forwarded, "/admin") {
				t.Errorf("listener %d: %q passes, and %s reads it as %q", i, raw, r.name, r.read(forwarded))
			}
		}
	}
}

func strictListeners(t testing.TB) []*Listener {
	return []*Listener{
		policies(t, model.PathStrict, "/admin", "/"), policies(t, "", "/admin strict", "/"),
		policies(t, model.PathStrict, "~/admin(/.*)?", "/"), policies(t, "", "~/admin(/.*)? strict", "/"),
		policies(t, model.PathStrict, "=/admin", "/admin/x", "~/admin/.*", "/"),
	}
}

func TestNoServerReadsWhatPassesAsWhatIsProtected(t *testing.T) {
	strict, written := strictListeners(t), policies(t, "", "/admin", "/")
	r := rand.New(rand.NewPCG(12, 1))
	around := map[string]int{}
	for i := range size.Of(1200, 12_000) {
		raw := mutated(r)
		if i%3 == 0 {
			raw = ambiguousPath(r)
		}
		passes(t, strict, raw)
		if rule, _ := judge(t, written, raw); rule == "/" {
			forwarded := raw
			if HasDotSegment(raw) {
				forwarded, _ = NormalizePath(raw)
			}
			for _, reader := range readers {
				if reader.under(forwarded, "/admin") {
					around[reader.name]++
				}
			}
		}
	}
	// The same does not hold as written, except for servers that read paths as they are.
	for _, reader := range readers {
		if n := around[reader.name]; (n == 0) != (reader.name == "raw") {
			t.Errorf("%s: %d ways around a rule as written", reader.name, n)
		}
	}
}

func FuzzNoServerReadsWhatPassesAsWhatIsProtected(f *testing.F) {
	for _, s := range []string{"/admin;x", "/admin%2fx", "//admin", "/ADMIN", "/%2561dmin", "/admin%c0%af", `/admin\x`, "/x%3f/../admin", "/a%0adm"} {
		f.Add(s)
	}
	strict := strictListeners(f)
	f.Fuzz(func(t *testing.T, raw string) {
		for i := range len(raw) {
			if raw[i] >= 0x80 || raw[i] == '\\' { // is escaped before it comes here
				t.Skip()
			}
		}
		passes(t, strict, raw)
	})
}

// TestStrictPathsHaveOneRule: in random configurations, if a path is accepted under strict, each server finds the rule
// that matched as written: the most specific of those whose own path it reads as the beginning of the request's.
func TestStrictPathsHaveOneRule(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 2))
	names := []string{"/", "/a", "/A", "/admin", "/Admin/x", "/a/b", "/@a", "/%40a", "/a.", "/b", "=/admin", "=/a/", "=/A", "/x", "/ä"}
	accepted := 0
	lists := size.Of(100, 1000)
	for range lists {
		var rules []string
		for range 1 + r.IntN(6) {
			rules = append(rules, names[r.IntN(len(names))])
		}
		l := policies(t, model.PathStrict, rules...)
		for range 12 {
			raw := ambiguousPath(r)
			if r.IntN(2) == 0 {
				raw = strings.TrimPrefix(names[r.IntN(len(names))], "=") + []string{"", "/", "/x", "."}[r.IntN(4)]
			}
			rule, refused := judge(t, l, raw)
			if rule == "" || refused != OneReading {
				continue
			}
			accepted++
			for _, reader := range readers {
				read := func(p string) string {
					normal, err := NormalizePath(p)
					if err != nil {
						return p
					}
					if p = reader.read(normal); reader.fold {
						p = strings.ToLower(p)
					}
					return p
				}
				best, length := []string(nil), -1
				for _, other := range rules {
					value, exact := strings.CutPrefix(other, "=")
					p, own := read(raw), strings.TrimSuffix(read(value), "/")
					n := 2 * len(own)
					switch {
					case exact && p == read(value) && strings.HasSuffix(raw, "/") == strings.HasSuffix(value, "/"):
						n++
					case !exact && (p == own || strings.HasPrefix(p, own+"/")):
					default:
						continue
					}
					if n > length {
						best, length = nil, n
					}
					if n == length {
						best = append(best, value)
					}
				}
				if !slices.Contains(best, rule) {
					t.Fatalf("rules for %q: %q is served by that for %q, and %s reads %q, for one of %q", rules, raw, rule, reader.name, read(raw), best)
				}
			}
		}
	}
	if accepted < lists*7/10 {
		t.Errorf("only %d paths were accepted: too little is tested", accepted)
	}
}

// Paths of unreserved characters and single slashes are only refused if letter case, or dots at an end, make them
// another rule's.
func TestStrictAcceptsOrdinaryPaths(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 3))
	rules := []string{"/admin", "/a;b", "/a%2Fb", "/Shop", "~/v[0-9]+/.*", "=/x/", "/inc.", "/"}
	l := policies(t, model.PathStrict, rules...)
	refused := 0
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	for range 30_000 {
		var b strings.Builder
		for range 1 + r.IntN(4) {
			b.WriteByte('/')
			if r.IntN(3) == 0 {
				b.WriteString([]string{"admin", "Admin", "shop", "a", "b", "inc", "inc.", "v1", "V1", "x"}[r.IntN(10)])
				continue
			}
			for range 1 + r.IntN(5) {
				b.WriteByte(unreserved[r.IntN(len(unreserved))])
			}
		}
		raw := b.String()
		if HasDotSegment(raw) {
			continue
		}
		rule, reading := judge(t, l, raw)
		if reading == OneReading {
			continue
		}
		refused++
		first, _, _ := strings.Cut(strings.ToLower(raw[1:]), "/")
		first = strings.TrimRight(first, ".")
		known := slices.Contains([]string{"admin", "shop", "inc"}, first) || regexp.MustCompile(`^v[0-9]+$`).MatchString(first) || strings.EqualFold(strings.ReplaceAll(raw, ".", ""), "/x/")
		if !known || rule != "/" {
			t.Errorf("%q is refused as %q", raw, reading)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused: too little is tested")
	}
}

func TestRefusesDoesNotAllocate(t *testing.T) {
	for _, c := range []struct {
		name string
		l    *Listener
	}{
		{"as-written", policies(t, "", "/admin", "/")},
		{"strict", policies(t, model.PathStrict, "/admin", "~/v[0-9]/x", "/")},
		{"strict with capitals", policies(t, model.PathStrict, "/Admin", "/")},
		{"strict on one", policies(t, "", "/admin strict", "/")},
	} {
		for _, raw := range []string{"/", "/shop/cart.html", "/admin/x", "/shop/ABC", "/caf%C3%A9/a%20b", "/shop/a:b@c./d"} {
			normal, err := NormalizePath(raw)
			if err != nil {
				t.Fatal(err)
			}
			req, d, scratch := &Request{Host: "h", Method: "GET", Path: normal}, Decision{}, make([]byte, 0, 256)
			if !c.l.Match(req, &d) {
				t.Fatal(raw)
			}
			if n := testing.AllocsPerRun(100, func() {
				var r Refusal
				if r, scratch = c.l.Refuses(raw, req, &d, scratch); r.Reading != OneReading && c.name != "strict with capitals" {
					t.Errorf("%s: %q is refused as %q", c.name, raw, r.Reading)
				}
			}); n != 0 && !(c.name == "strict with capitals" && raw == "/admin/x") {
				t.Errorf("%s: %q allocates %v times", c.name, raw, n)
			}
		}
	}
}

func TestReadingsHaveNames(t *testing.T) {
	names := map[string]bool{}
	for _, r := range Readings() {
		if r.String() == "" || names[r.String()] || r.Words() == "" || r.Servers() == "" {
			t.Errorf("reading %d: %q, %q, %q", r, r, r.Words(), r.Servers())
		}
		names[r.String()] = true
	}
}

func BenchmarkRefuses(b *testing.B) {
	for _, policy := range []model.PathPolicy{model.PathAsWritten, model.PathStrict} {
		l := policies(b, policy, "/admin", "/shop", "/")
		for _, raw := range []string{"/shop/cart/items/17", "/shop/Cart/Items/17", "/shop/caf%C3%A9/a%20b"} {
			b.Run(fmt.Sprintf("%s%s", policy, raw), func(b *testing.B) {
				normal, _ := NormalizePath(raw)
				req, d, scratch := &Request{Host: "h", Method: "GET", Path: normal}, Decision{}, make([]byte, 0, 256)
				l.Match(req, &d)
				b.ReportAllocs()
				for b.Loop() {
					_, scratch = l.Refuses(raw, req, &d, scratch)
				}
			})
		}
	}
}
