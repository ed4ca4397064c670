package openapi

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/model"
)

// operation is an operation that requests can be made for.
type operation struct {
	id, method, template string
	// paths are the expressions of the paths, one for each base path; examples are paths that they match.
	paths, examples []string
	// parameters is how many the template has. OpenAPI prefers those with fewer.
	parameters int
	tags       []string
	// scopes are the sets of scopes of which a request needs one, each sorted. An empty one is a request without any.
	scopes [][]string
}

func (o *operation) name() string { return o.method + " " + brief(o.template, maxWhere) }

var methodForm = regexp.MustCompile(`^[A-Z][A-Z0-9_-]*$`)

// operations maps all operations, sorted by path and method.
func (m *mapper) operations(doc *openapi3.T) error {
	if doc.Paths == nil {
		return nil
	}
	items := doc.Paths.Map()
	for _, template := range slices.Sorted(maps.Keys(items)) {
		item := items[template]
		if item == nil {
			continue
		}
		all := item.Operations()
		for _, method := range slices.Sorted(maps.Keys(all)) {
			if all[method] == nil {
				continue
			}
			if len(m.ops)+m.leftOut >= maxOperations {
				return fmt.Errorf("the document has more than %d operations: split it", maxOperations)
			}
			m.operation(doc, item, template, method, all[method])
		}
	}
	return nil
}

func (m *mapper) operation(doc *openapi3.T, item *openapi3.PathItem, template, method string, from *openapi3.Operation) {
	o := &operation{id: from.OperationID, method: method, template: template}
	where := o.name()
	if !methodForm.MatchString(method) || len(method) > access.MaxMethod {
		m.leave(where, "%q is no method in upper case of at most %d characters", method, access.MaxMethod)
		return
	}
	tokens, wrong := parseTemplate(template)
	if wrong != "" {
		m.leave(where, "the path cannot be used: %s", wrong)
		return
	}
	servers, of := doc.Servers, "servers"
	if len(item.Servers) > 0 {
		servers, of = item.Servers, where
	}
	if from.Servers != nil && len(*from.Servers) > 0 {
		servers, of = *from.Servers, where
	}
	bases := m.basePaths(of, servers)
	if len(bases) == 0 {
		m.leave(where, "no server has a usable path")
		return
	}
	params := map[string]*openapi3.Parameter{}
	for _, list := range []openapi3.Parameters{item.Parameters, from.Parameters} { // those of the operation override
		for _, p := range list {
			if p != nil && p.Value != nil && p.Value.In == "path" {
				params[p.Value.Name] = p.Value
			}
		}
	}
	for i := range tokens {
		t := &tokens[i]
		if t.param == "" {
			continue
		}
		o.parameters++
		p := params[t.param]
		if p == nil {
			m.note(where, "parameter %s is not declared, so any text without a slash is allowed", t.param)
			t.exact, t.typed, t.example = anyText, anyText, "a"
			continue
		}
		v, notes := parameterValue(p)
		for _, n := range notes {
			m.note(where, "parameter %s: %s", t.param, n)
		}
		if v.exact == "" {
			m.leave(where, "parameter %s has no value that a path can have", t.param)
			return
		}
		t.exact, t.typed, t.example = v.exact, v.typed, v.example
	}
	for _, base := range bases {
		path, ok := m.expression(where, base, tokens)
		if !ok {
			continue
		}
		o.paths = append(o.paths, path)
		o.examples = append(o.examples, base+example(tokens))
	}
	if len(o.paths) == 0 {
		m.leave(where, "no path can be used")
		return
	}
	o.tags = slices.Compact(slices.Sorted(slices.Values(from.Tags)))
	security := doc.Security
	if from.Security != nil {
		security = *from.Security
	}
	o.scopes = scopes(security)
	m.ops = append(m.ops, o)
}

// scopes returns the sets of scopes of which a request needs one. A scheme without scopes counts as one by its name.
func scopes(security openapi3.SecurityRequirements) (out [][]string) {
	for _, requirement := range security {
		var set []string
		for scheme, names := range requirement {
			if len(names) == 0 {
				names = []string{scheme}
			}
			set = append(set, names...)
		}
		slices.Sort(set)
		out = append(out, slices.Compact(set))
	}
	if len(out) == 0 {
		out = [][]string{nil}
	}
	return out
}

// token is a part of a template: literal text in the plain form of paths, or a parameter with the expressions of its
// values, exactly and by the type alone.
type token struct {
	literal, param        string
	exact, typed, example string
}

func parseTemplate(template string) (tokens []token, wrong string) {
	if !strings.HasPrefix(template, "/") {
		return nil, "it does not begin with a slash"
	}
	for rest := template; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			i = len(rest)
		}
		if i > 0 {
			text, wrong := literalPath(rest[:i])
			if wrong != "" {
				return nil, wrong
			}
			tokens = append(tokens, token{literal: text})
		}
		if rest = rest[i:]; rest == "" {
			break
		}
		end := strings.IndexAny(rest[1:], "{}/")
		if rest[0] == '}' || end < 1 || rest[1+end] != '}' {
			return nil, "it has a brace without its counterpart, or without a name"
		}
		name := rest[1 : 1+end]
		if strings.HasSuffix(name, "+") || strings.HasSuffix(name, "*") || strings.HasPrefix(name, "+") {
			return nil, fmt.Sprintf("it has {%s}, which seems to stand for several segments; a parameter of OpenAPI is a part of one", name)
		}
		tokens = append(tokens, token{param: name})
		rest = rest[end+2:]
	}
	// A path that is not in normal form is no request's.
	var b strings.Builder
	for _, t := range tokens {
		if b.WriteString(t.literal); t.param != "" {
			b.WriteString("a")
		}
	}
	if wrong := notNormal(b.String()); wrong != "" {
		return nil, wrong
	}
	return tokens, ""
}

// notNormal says why no request has a path, in its plain form; empty if there may be one.
func notNormal(path string) string {
	normal, err := model.NormalizePath(path)
	switch {
	case err != nil:
		return "it is no path of a request: " + err.Error()
	case normal != path:
		return fmt.Sprintf("it is no path of a request, which would have %s instead", normal)
	case strings.Contains(path, "%2F") || strings.Contains(path, "%5C"):
		return "it has an escaped slash or backslash, which servers read in different ways, so no rule with paths allows it"
	}
	return ""
}

func example(tokens []token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(t.literal + t.example)
	}
	return b.String()
}

// expression returns the expression for the paths below a base path. Parameters fall back to their types if it is too large.
func (m *mapper) expression(where, base string, tokens []token) (string, bool) {
	build := func(typed bool) string {
		var b strings.Builder
		b.WriteString(regexp.QuoteMeta(base))
		for _, t := range tokens {
			switch {
			case t.param == "":
				b.WriteString(regexp.QuoteMeta(t.literal))
			case typed:
				b.WriteString(t.typed)
			default:
				b.WriteString(t.exact)
			}
		}
		return b.String() + "$"
	}
	usable := func(path string) bool {
		_, err := model.CheckPattern(path)
		return err == nil && utf8.RuneCountInString(path) <= access.MaxPath
	}
	path := build(false)
	if usable(path) {
		return path, true
	}
	typed := build(true)
	if !usable(typed) {
		m.note(where, "the path below %q would be an expression of more than %d characters", base, access.MaxPath)
		return "", false
	}
	m.note(where, "the expression would be too large; all its parameters fall back to their types")
	return typed, true
}

var schemeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// basePaths returns the paths of servers, each once, in the plain form and without a slash at the end.
func (m *mapper) basePaths(where string, servers openapi3.Servers) (out []string) {
	add := func(url, path string) {
		plain, wrong := literalPath(path)
		if wrong == "" && plain != "" && plain != "/" {
			wrong = notNormal(plain)
		}
		if wrong != "" {
			m.note(where, "the path of server %s cannot be used: %s", url, wrong)
			return
		}
		if plain = strings.TrimSuffix(plain, "/"); slices.Contains(out, plain) {
			return
		}
		if len(out) >= maxBases {
			m.note(where, "there are more than %d base paths; that of %s is left out", maxBases, url)
			return
		}
		out = append(out, plain)
	}
	if m.options.BasePaths != nil {
		where = "the base paths that were given"
		for _, p := range m.options.BasePaths {
			add(p, p)
		}
		return out
	}
	if len(servers) == 0 {
		return []string{""}
	}
	for _, s := range servers {
		if s == nil {
			continue
		}
		urls, wrong := expand(s)
		if wrong != "" {
			m.note(where, "server %s cannot be used: %s", s.URL, wrong)
			continue
		}
		for _, url := range urls {
			path := url
			scheme := schemeForm.FindString(path)
			path = path[len(scheme):]
			if authority, ok := strings.CutPrefix(path, "//"); ok {
				if i := strings.IndexAny(authority, "/?#"); i >= 0 {
					path = authority[i:]
				} else {
					path = ""
				}
			} else if scheme != "" || path != "" && path[0] != '/' {
				m.note(where, "server %s cannot be used: its URL is relative to where the document is; write one that begins with a slash", url)
				continue
			}
			add(url, path)
		}
	}
	return out
}

// expand returns the URLs that a server has with all values of its variables.
func expand(s *openapi3.Server) (urls []string, wrong string) {
	urls = []string{""}
	for rest := s.URL; rest != ""; {
		i := strings.IndexByte(rest, '{')
		if i < 0 {
			i = len(rest)
		}
		literal, end := rest[:i], i
		values := []string{""}
		if i < len(rest) {
			n := strings.IndexByte(rest[i:], '}')
			if n < 0 {
				return nil, "its URL has a brace without its counterpart"
			}
			end = i + n + 1
			name := rest[i+1 : end-1]
			v := s.Variables[name]
			switch {
			case v == nil:
				return nil, fmt.Sprintf("it has no variable %s", name)
			case len(v.Enum) > 0:
				values = v.Enum
			default:
				values = []string{v.Default}
			}
			// Only the path matters: a variable before it has one value.
			if before := urls[0] + literal; strings.Contains(before, "//") && !strings.Contains(before[strings.Index(before, "//")+2:], "/") && !slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, "/") }) {
				values = values[:1]
			}
		}
		if len(urls)*len(values) > 4*maxBases {
			return nil, "its variables have too many values together"
		}
		var next []string
		for _, u := range urls {
			for _, v := range values {
				next = append(next, u+literal+v)
			}
		}
		urls, rest = next, rest[end:]
	}
	return urls, ""
}

// overlaps tells of operations whose expression also matches paths that the document has by themselves, such as
// "/pets/{id}" those of "/pets/new", which OpenAPI prefers. Paths with parameters are tried by one example.
func (m *mapper) overlaps() {
	left := 1 << 20
	segments := map[int][]*operation{}
	for _, o := range m.ops {
		n := strings.Count(o.template, "/")
		segments[n] = append(segments[n], o)
	}
	documented := map[string]bool{}
	for _, o := range m.ops {
		documented[o.name()] = true
	}
	for _, n := range slices.Sorted(maps.Keys(segments)) {
		group := segments[n]
		slices.SortStableFunc(group, func(a, b *operation) int { return cmp.Compare(a.parameters, b.parameters) })
		for _, o := range group {
			if o.parameters == group[0].parameters {
				continue
			}
			var compiled []*regexp.Regexp
			for _, p := range o.paths {
				if re, err := regexp.Compile("^(?:" + p + ")"); err == nil {
					compiled = append(compiled, re)
				}
			}
			seen := map[string]bool{}
			for _, other := range group {
				if other.parameters >= o.parameters {
					break
				}
				if seen[other.template] {
					continue
				}
				if left -= len(other.examples) * len(compiled); left < 0 {
					m.note("", "the document is too large to tell of all operations that also allow paths of others")
					return
				}
				if !slices.ContainsFunc(other.examples, func(path string) bool {
					return slices.ContainsFunc(compiled, func(re *regexp.Regexp) bool { return re.MatchString(path) })
				}) {
					continue
				}
				seen[other.template] = true
				what := fmt.Sprintf("%s %s, which the document does not have", o.method, other.template)
				if documented[o.method+" "+other.template] {
					what = fmt.Sprintf("%s %s, in whatever role this one is", o.method, other.template)
				}
				m.note(o.name(), "it also allows %s: a pattern or an enum of its parameters can tell them apart", what)
			}
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Compare(a, b) })
}
