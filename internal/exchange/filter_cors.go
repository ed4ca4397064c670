package exchange

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
)

// cors is a prepared CORS filter (Gateway API, HTTPCORSFilter; Fetch standard, "CORS protocol").
type cors struct {
	any         bool
	origins     []origin
	credentials bool
	methods     string // "": no method, "*": all
	headers     string
	expose      string
	maxAge      string
}

// origin is a serialised origin, split into its parts, or a pattern of origins (RFC 6454 §6.2, Fetch standard
// "serializing an origin").
type origin struct {
	scheme string
	host   string // as written
	port   string // as written; "" for the scheme's default
	// wildcard means that the origin is a pattern. Its host begins with head and ends with tail, with at least one byte
	// of labels in between.
	wildcard   bool
	head, tail string
}

// parseOrigin splits a serialised origin: scheme://host[:port] and nothing else. An origin has no user, path, query or
// fragment, and its host is a name or an IP address. "null" is not an origin. Upper case stays as it is; no browser
// sends it.
func parseOrigin(s string) (o origin, ok bool) {
	scheme, rest, found := strings.Cut(s, "://")
	if !found || !validScheme(scheme) {
		return o, false
	}
	o.scheme, o.host = scheme, rest
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && strings.IndexByte(rest[i:], ']') < 0 {
		o.host, o.port = rest[:i], rest[i+1:]
		if n, err := strconv.ParseUint(o.port, 10, 16); err != nil || n == 0 || o.port[0] == '0' {
			return o, false
		}
		if http1.EqualFold(scheme, "http") && o.port == "80" || http1.EqualFold(scheme, "https") && o.port == "443" {
			o.port = ""
		}
	}
	return o, validOriginHost(o.host)
}

func validScheme(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if letter := 'a' <= c && c <= 'z'; !letter && (i == 0 || !('0' <= s[i] && s[i] <= '9' || s[i] == '+' || s[i] == '-' || s[i] == '.')) {
			return false
		}
	}
	return s != ""
}

func validOriginHost(s string) bool {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		return ok && err == nil && a.Is6() && a.Zone() == ""
	}
	return hostLabels(s) && s != "" && s[0] != '.' && s[len(s)-1] != '.'
}

// hostLabels reports whether s consists of characters of host labels with single dots between them.
func hostLabels(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		case c == '.' && (i == 0 || s[i-1] != '.'):
		default:
			return false
		}
	}
	return true
}

// parseOriginPattern is parseOrigin for an origin that a user wrote. A "*" in its host stands for any labels, and alone
// for any host.
func parseOriginPattern(s string) (origin, bool) {
	before, after, wildcard := strings.Cut(s, "*")
	if !wildcard {
		return parseOrigin(s)
	}
	// With a letter in place of the "*" it must be an origin with that letter in its host.
	o, ok := parseOrigin(before + "x" + after)
	_, head, found := strings.Cut(before, "://")
	if !ok || !found || strings.Contains(after, "*") {
		return o, false
	}
	o.wildcard, o.head = true, head
	if len(o.head) >= len(o.host) || o.host[0] == '[' {
		return o, false // it stands for a port
	}
	o.tail = o.host[len(o.head)+1:]
	return o, true
}

// covers reports whether the origin v equals o, or matches it if o is a pattern.
func (o *origin) covers(v *origin) bool {
	if !http1.EqualFold(o.scheme, v.scheme) || o.port != v.port {
		return false
	}
	if !o.wildcard {
		return http1.EqualFold(o.host, v.host)
	}
	if o.head == "" && o.tail == "" {
		return true
	}
	n := len(v.host) - len(o.tail)
	return n > len(o.head) && http1.EqualFold(v.host[:len(o.head)], o.head) && http1.EqualFold(v.host[n:], o.tail) &&
		hostLabels(v.host[len(o.head):n])
}

func compileCORS(m *model.CORS) *cors {
	if m == nil {
		return nil
	}
	c := &cors{credentials: m.AllowCredentials, methods: list(m.AllowMethods), headers: list(m.AllowHeaders), maxAge: "5"}
	if m.MaxAge > 0 {
		c.maxAge = strconv.Itoa(int(m.MaxAge))
	}
	for _, h := range m.ExposeHeaders {
		// With credentials, "*" would mean a field of that name.
		if (h != "*" || !c.credentials) && http1.ValidToken(h) {
			c.expose = join(c.expose, h)
		}
	}
	for _, o := range m.AllowOrigins {
		if o == "*" {
			c.any = true
			continue
		}
		if parsed, ok := parseOriginPattern(o); ok {
			c.origins = append(c.origins, parsed)
		}
	}
	return c
}

func list(values []string) string {
	all := ""
	for _, v := range values {
		if v == "*" {
			return "*"
		}
		if http1.ValidToken(v) {
			all = join(all, v)
		}
	}
	return all
}

func join(list, value string) string {
	if list == "" {
		return value
	}
	return list + ", " + value
}

// allows judges the Origin of a request.
func (c *cors) allows(value string) bool {
	if c.any && (!c.credentials || value == "null") {
		return value != ""
	}
	v, ok := parseOrigin(value)
	if !ok {
		return false
	}
	if c.any {
		return true
	}
	for i := range c.origins {
		if c.origins[i].covers(&v) {
			return true
		}
	}
	return false
}

// preflight recognises a CORS preflight request.
func (ex *Exchange) preflight() bool {
	if ex.req.Method != http.MethodOptions {
		return false
	}
	_, origin := http1.GetID(ex.req.Fields, http1.FieldOrigin)
	_, method := http1.GetID(ex.req.Fields, http1.FieldAccessControlRequestMethod)
	return origin && method
}

// answerPreflight answers instead of the backend. An origin that is not allowed gets no permission, so the request
// fails in the browser.
func (ex *Exchange) answerPreflight(c *cors) error {
	fields := append(ex.local[:0],
		http1.Field{Name: "Vary", Value: "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"})
	value, _ := http1.GetID(ex.req.Fields, http1.FieldOrigin)
	if c.allows(value) {
		fields = c.grant(fields, value)
		method, _ := http1.GetID(ex.req.Fields, http1.FieldAccessControlRequestMethod)
		if m := c.choice(c.methods, method); m != "" {
			fields = append(fields, http1.Field{Name: "Access-Control-Allow-Methods", Value: m})
		}
		headers, _ := http1.GetID(ex.req.Fields, http1.FieldAccessControlRequestHeaders)
		if h := c.choice(c.headers, headers); h != "" {
			fields = append(fields, http1.Field{Name: "Access-Control-Allow-Headers", Value: h})
		}
		fields = append(fields, http1.Field{Name: "Access-Control-Max-Age", Value: c.maxAge})
	}
	return ex.reply(http.StatusNoContent, fields, "")
}

// choice returns the configured list. With credentials, "*" has no meaning, so choice returns what the request asked
// for.
func (c *cors) choice(configured, asked string) string {
	if configured == "*" && c.credentials {
		return asked
	}
	return configured
}

// grant permits an allowed origin. Every grant lists the fields of answers that the origin may see. Browsers need the
// list only in the answer itself, but Gateway API also wants it in the answer to a preflight request.
func (c *cors) grant(fields []http1.Field, value string) []http1.Field {
	if c.any && !c.credentials {
		value = "*"
	}
	fields = append(fields, http1.Field{Name: "Access-Control-Allow-Origin", Value: value})
	if c.credentials {
		fields = append(fields, http1.Field{Name: "Access-Control-Allow-Credentials", Value: "true"})
	}
	if c.expose != "" {
		fields = append(fields, http1.Field{Name: "Access-Control-Expose-Headers", Value: c.expose})
	}
	return fields
}

// markCORS replaces the backend's CORS fields with the filter's.
func (ex *Exchange) markCORS(c *cors, fields []http1.Field) []http1.Field {
	n := 0
	for i := range fields {
		if !isCORSAnswer(fields[i].Name) {
			fields[n] = fields[i]
			n++
		}
	}
	fields = fields[:n]
	if !c.any || c.credentials {
		fields = append(fields, http1.Field{Name: "Vary", Value: "Origin", ID: http1.FieldVary})
	}
	value, ok := http1.GetID(ex.req.Fields, http1.FieldOrigin)
	if !ok || !c.allows(value) {
		return fields
	}
	return c.grant(fields, value)
}

func isCORSAnswer(name string) bool {
	const prefix = "access-control-"
	if len(name) < len(prefix) || !http1.EqualFold(name[:len(prefix)], prefix) {
		return false
	}
	switch strings.ToLower(name[len(prefix):]) {
	case "allow-origin", "allow-credentials", "expose-headers":
		return true
	}
	return false
}
