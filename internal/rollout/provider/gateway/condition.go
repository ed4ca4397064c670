package gateway

import (
	"cmp"
	"maps"
	"reflect"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// Kinds of paths, in their order of precedence (Gateway API, HTTPRouteRule.matches). The place of regular expressions is
// the implementation's to choose; here it is Weir's: after all prefixes but "/".
const (
	exact = iota
	prefix
	expression
	anyPath
)

// path is the condition of a match on the path.
type path struct {
	kind int
	// value of a prefix has no slash at the end; that of anyPath is empty.
	value string
	// as is how a user wrote it, nil if nobody did.
	as map[string]any
}

func newPath(as map[string]any) path {
	value := text(as["value"])
	switch as["type"] {
	case "Exact":
		return path{exact, value, as}
	case "RegularExpression":
		return path{expression, value, as}
	}
	if value = strings.TrimRight(value, "/"); value == "" {
		return path{kind: anyPath}
	}
	return path{prefix, value, as}
}

func (p path) equal(q path) bool { return p.kind == q.kind && p.value == q.value }

// verdict is what is known of two conditions together.
type verdict int

const (
	possible    verdict = iota // both can hold, and what that means can be written
	never                      // no request fulfils both
	inexpressed                // some requests may fulfil both, but no match says so
)

// within reports whether every path that p names is one that a prefix names.
func (p path) within(prefix string) bool {
	if p.kind == expression {
		pattern, err := model.CompilePattern(p.value)
		return err == nil && strings.HasPrefix(pattern.Prefix, prefix+"/")
	}
	return p.value == prefix || strings.HasPrefix(p.value, prefix+"/")
}

// and is the path of requests that have both.
func (p path) and(q path) (path, verdict) {
	if p.kind > q.kind {
		p, q = q, p
	}
	switch {
	case q.kind == anyPath, p.equal(q):
		return p, possible
	case p.kind == exact && q.kind == exact:
		return path{}, never
	case q.kind == prefix: // p is exact, or another prefix
		if p.within(q.value) {
			return p, possible
		}
		if p.kind == prefix && q.within(p.value) {
			return q, possible
		}
		return path{}, never
	case p.kind == prefix: // q is an expression
		if q.within(p.value) {
			return q, possible
		}
	case p.kind == exact:
		pattern, err := model.CompilePattern(q.value)
		if err == nil && pattern.MatchString(p.value) {
			return p, possible
		}
		if err == nil {
			return path{}, never
		}
	}
	return path{}, inexpressed
}

// test is a condition on a header field or a query parameter.
type test struct {
	name       string
	expression bool
	value      string
	as         map[string]any // how a user wrote it
}

func (t test) and(u test) (test, verdict) {
	if t.expression == u.expression && t.value == u.value {
		return t, possible
	}
	if t.expression && u.expression {
		return test{}, inexpressed
	}
	if t.expression {
		t, u = u, t
	}
	if !u.expression {
		return test{}, never
	}
	pattern, err := model.CompilePattern(u.value)
	switch {
	case err != nil:
		return test{}, inexpressed
	case pattern.MatchString(t.value):
		return t, possible
	}
	return test{}, never
}

// condition is what a match demands of a request. other are fields of the match that are not known here.
type condition struct {
	path    path
	method  string
	headers map[string]test // by lower-case name
	query   map[string]test
	other   map[string]any
}

// and is what requests fulfil that both conditions are for.
func (c condition) and(d condition) (out condition, v verdict) {
	out.path, v = c.path.and(d.path)
	if v == never {
		return out, never
	}
	var w verdict
	out.method = cmp.Or(c.method, d.method)
	if c.method != "" && d.method != "" && c.method != d.method {
		return out, never
	}
	if out.headers, w = both(c.headers, d.headers); w == never {
		return out, never
	} else if w == inexpressed {
		v = w
	}
	if out.query, w = both(c.query, d.query); w == never {
		return out, never
	} else if w == inexpressed {
		v = w
	}
	switch {
	case len(d.other) == 0:
		out.other = c.other
	case len(c.other) == 0:
		out.other = d.other
	case !equalOther(c.other, d.other):
		v = inexpressed
	default:
		out.other = c.other
	}
	return out, v
}

func both(a, b map[string]test) (map[string]test, verdict) {
	out, v := maps.Clone(a), possible
	if out == nil {
		out = map[string]test{}
	}
	for name, t := range b {
		u, twice := out[name]
		if !twice {
			out[name] = t
			continue
		}
		merged, w := u.and(t)
		if w == never {
			return nil, never
		}
		if out[name] = merged; w == inexpressed {
			v = w
		}
	}
	return out, v
}

func equalOther(a, b map[string]any) bool {
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b))
}

// equal reports whether both are fulfilled by the same requests, as far as their text says.
func (c condition) equal(d condition) bool {
	same := func(t, u test) bool { return t.expression == u.expression && t.value == u.value }
	return c.path.equal(d.path) && c.method == d.method && maps.EqualFunc(c.headers, d.headers, same) && maps.EqualFunc(c.query, d.query, same) && equalOther(c.other, d.other)
}

// compare orders by precedence: of matches that hold, the one with the lowest key decides.
func (c condition) compare(d condition) int {
	method := func(m string) int {
		if m == "" {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(c.path.kind, d.path.kind), c.path.compareLength(d.path), cmp.Compare(method(c.method), method(d.method)),
		cmp.Compare(len(d.headers), len(c.headers)), cmp.Compare(len(d.query), len(c.query)))
}

// compareLength puts the longer one first. The length of exact paths does not matter: only one of them matches.
func (p path) compareLength(q path) int {
	if p.kind == exact {
		return 0
	}
	return cmp.Compare(len(q.value), len(p.value))
}
