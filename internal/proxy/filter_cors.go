package proxy

import (
	"net/http"
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
	methods     string // "" none, "*" all
	headers     string
	expose      string
	maxAge      string
}

// origin is an allowed one: the value must begin with head and end with tail.
type origin struct {
	head, tail string
	wildcard   bool
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
		// With credentials "*" would mean a field of that name.
		if (h != "*" || !c.credentials) && http1.ValidToken(h) {
			c.expose = join(c.expose, h)
		}
	}
	for _, o := range m.AllowOrigins {
		if o == "*" {
			c.any = true
			continue
		}
		head, tail, wildcard := strings.Cut(strings.ToLower(o), "*")
		if full := withoutDefaultPort(head + tail); len(full) >= len(head) {
			tail = full[len(head):]
		} else if !wildcard {
			head = full
		}
		c.origins = append(c.origins, origin{head, tail, wildcard})
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

// withoutDefaultPort spells origins as browsers do.
func withoutDefaultPort(o string) string {
	if s, ok := strings.CutSuffix(o, ":80"); ok && strings.HasPrefix(o, "http://") {
		return s
	}
	if s, ok := strings.CutSuffix(o, ":443"); ok && strings.HasPrefix(o, "https://") {
		return s
	}
	return o
}

func (c *cors) allows(value string) bool {
	if value == "" {
		return false
	}
	if c.any {
		return true
	}
	value = withoutDefaultPort(strings.ToLower(value))
	for _, o := range c.origins {
		if !o.wildcard {
			if value == o.head {
				return true
			}
			continue
		}
		// "*" stands for any labels, at least one byte, and not for a port.
		rest, ok := strings.CutPrefix(value, o.head)
		if ok {
			rest, ok = strings.CutSuffix(rest, o.tail)
		}
		if ok && rest != "" && (rest[0] == '[' || strings.IndexByte(rest, ':') < 0) {
			return true
		}
	}
	return false
}

// preflight recognises a CORS preflight request.
func (ex *exchange) preflight() bool {
	if ex.req.method != http.MethodOptions {
		return false
	}
	_, origin := http1.GetID(ex.req.fields, http1.FieldOrigin)
	_, method := http1.GetID(ex.req.fields, http1.FieldAccessControlRequestMethod)
	return origin && method
}

// answerPreflight answers in the backend's stead. An origin that is not allowed gets no permission, which fails the request in the browser.
func (ex *exchange) answerPreflight(c *cors) error {
	fields := append(ex.local[:0],
		http1.Field{Name: "Vary", Value: "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"})
	value, _ := http1.GetID(ex.req.fields, http1.FieldOrigin)
	if c.allows(value) {
		fields = c.grant(fields, value)
		method, _ := http1.GetID(ex.req.fields, http1.FieldAccessControlRequestMethod)
		if m := c.choice(c.methods, method); m != "" {
			fields = append(fields, http1.Field{Name: "Access-Control-Allow-Methods", Value: m})
		}
		headers, _ := http1.GetID(ex.req.fields, http1.FieldAccessControlRequestHeaders)
		if h := c.choice(c.headers, headers); h != "" {
			fields = append(fields, http1.Field{Name: "Access-Control-Allow-Headers", Value: h})
		}
		fields = append(fields, http1.Field{Name: "Access-Control-Max-Age", Value: c.maxAge})
	}
	return ex.reply(http.StatusNoContent, fields, "")
}

// choice is the list, or with credentials, where "*" has no meaning, what the request asked for.
func (c *cors) choice(configured, asked string) string {
	if configured == "*" && c.credentials {
		return asked
	}
	return configured
}

// grant permits an allowed origin. What it may see of answers is told with every grant: browsers ask for it only in the answer itself, but
// Gateway API wants it in that to a preflight request, too.
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

// markCORS replaces what the backend said of CORS by what the filter says.
func (ex *exchange) markCORS(c *cors, fields []http1.Field) []http1.Field {
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
	value, ok := http1.GetID(ex.req.fields, http1.FieldOrigin)
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
