package access

import (
	"fmt"
	"regexp"
	"strings"
)

// The rules of the client that has some, on port 8080; nobody may do anything on 8081.
var (
	publicPath = regexp.MustCompile(`^/public/[a-z0-9]+$`)
	uploadPath = regexp.MustCompile(`^/upload$`)
	teamPath   = regexp.MustCompile(`^/team/`)
	teamValue  = regexp.MustCompile(`^(?:a|b)$`)
)

// received is a request as the backend got it.
type received struct {
	line   string
	fields [][2]string
	// trailers came behind the body.
	trailers [][2]string
	// raw is the whole head.
	raw string
}

// forbidden says why a server might do for the request what the rules do not permit; empty if none does.
func (r *received) forbidden() string {
	if strings.ContainsAny(strings.ReplaceAll(r.raw, "\r\n", ""), "\r\n\x00") {
		return "a line has CR, LF or NUL"
	}
	parts := strings.Split(r.line, " ")
	if len(parts) != 3 || parts[2] != "HTTP/1.1" {
		return "the request line can be read in several ways"
	}
	lengths := len(r.values("content-length"))
	if codings := len(r.values("transfer-encoding")); lengths+codings > 1 || len(r.values("host")) != 1 {
		return "the length or the host is there several times"
	}
	methods := append([]string{parts[0]}, r.overrides()...)
	paths := readings(parts[1])
	if !strings.HasPrefix(parts[1], "/") {
		return "the target is no path"
	}
	for _, m := range methods {
		for _, p := range paths {
			if !r.permitted(m, p) {
				return fmt.Sprintf("a server may read it as %s %q", m, p)
			}
		}
	}
	return ""
}

// permitted asks the rules.
func (r *received) permitted(method, path string) bool {
	switch {
	case method == "POST" && uploadPath.MatchString(path), method == "GET" && publicPath.MatchString(path):
		return true
	case method != "GET" || !teamPath.MatchString(path):
		return false
	}
	// A server may take the first of several, the last, or all of them joined; and the trailers for fields.
	own := r.values("x-team")
	for _, f := range r.trailers {
		if variable(f[0]) == "x_team" {
			own = append(own, f[1])
		}
	}
	for _, v := range own {
		if !teamValue.MatchString(v) {
			return false
		}
	}
	return len(own) == 1
}

// values are those of all fields that a server may take for the one with the name.
func (r *received) values(name string) (all []string) {
	for _, f := range r.fields {
		if variable(f[0]) == variable(name) {
			all = append(all, f[1])
		}
	}
	return all
}

// variable is a field's name as CGI and its like have it.
func variable(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			return c
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		}
		return '_'
	}, name)
}

// overrides are the methods that frameworks take instead of the request's.
func (r *received) overrides() (all []string) {
	for _, name := range []string{"x-http-method-override", "x-http-method", "x-method-override"} {
		for _, v := range r.values(name) {
			all = append(all, strings.ToUpper(strings.TrimSpace(v)))
		}
	}
	return all
}

// reading is a target's path on its way through a server.
type reading struct {
	path    string
	decoded bool
}

// steps are what servers do with a path, in any order.
var steps = []func(string) string{
	func(p string) string { return cut(p, "\x00") },
	func(p string) string { return cut(p, "#") },
	func(p string) string { return cut(p, "?") },
	func(p string) string { return strings.ReplaceAll(p, `\`, "/") },
	strings.ToLower,
	func(p string) string { return segments(p, func(s string) string { return cut(s, ";") }) },
	func(p string) string { return segments(p, func(s string) string { return strings.TrimRight(s, ". ") }) },
	func(p string) string { return segments(p, strings.TrimSpace) },
	merge,
	resolve,
	func(p string) string { return resolve(merge(p)) },
	func(p string) string {
		return strings.NewReplacer("\xc0\xaf", "/", "\xc0\xae", ".", "\xe0\x80\xaf", "/", "\xc1\x9c", `\`).Replace(p)
	},
	func(p string) string {
		return strings.NewReplacer("\t", "", "\r", "", "\n", "", "\x00", "", "\x7f", "").Replace(p)
	},
}

// depth is how many steps are combined; most bounds the readings of a path, which are enough to tell the worst.
const (
	depth = 4
	most  = 4000
)

// readings are the paths that servers may take a target for: the query is cut first, as all do, and at least one
// decoding took place.
func readings(target string) (all []string) {
	first := reading{path: cut(target, "?")}
	seen := map[reading]bool{first: true}
	queue := []reading{first}
	for range depth {
		var next []reading
		add := func(r reading) {
			if !seen[r] && len(seen) < most {
				seen[r] = true
				next = append(next, r)
			}
		}
		for _, r := range queue {
			add(reading{decode(r.path), true})
			for _, step := range steps {
				add(reading{step(r.path), r.decoded})
			}
		}
		queue = next
	}
	for r := range seen {
		if r.decoded {
			all = append(all, r.path, strings.ReplaceAll(r.path, "+", " "))
		}
	}
	return all
}

func cut(s, at string) string { before, _, _ := strings.Cut(s, at); return before }

func segments(p string, each func(string) string) string {
	all := strings.Split(p, "/")
	for i, s := range all {
		if s != "." && s != ".." {
			all[i] = each(s)
		}
	}
	return strings.Join(all, "/")
}

func merge(p string) string {
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	return p
}

// resolve removes dot segments (RFC 3986 §5.2.4).
func resolve(p string) string {
	var out []string
	all := strings.Split(p, "/")
	for i, s := range all {
		last := i == len(all)-1
		switch s {
		case ".":
		case "..":
			if len(out) > 1 {
				out = out[:len(out)-1]
			}
		default:
			out = append(out, s)
			continue
		}
		if last {
			out = append(out, "")
		}
	}
	return strings.Join(out, "/")
}

// decode replaces escapes; those that are none stay.
func decode(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		if p[i] == '%' && i+2 < len(p) {
			if high, low := strings.IndexByte(hex, lower(p[i+1])), strings.IndexByte(hex, lower(p[i+2])); high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		b.WriteByte(p[i])
	}
	return b.String()
}

const hex = "0123456789abcdef"

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
