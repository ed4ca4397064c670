package proxy

import (
	"net"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// escapeTarget spells the target with escapes for the bytes that RFC 3986 does not allow there. Browsers send some of them, and
// many servers read them, but not all; so they are seen here, and by the backend, in the one spelling that all read.
func (ex *exchange) escapeTarget() {
	q := &ex.req
	mark := len(ex.scratch)
	ex.scratch = http1.AppendEscaped(ex.scratch, q.path)
	q.path = ex.text(mark)
	mark = len(ex.scratch)
	ex.scratch = http1.AppendEscaped(ex.scratch, q.query)
	q.query = ex.text(mark)
	if q.form == http1.FormOrigin {
		q.target = ex.join(q.path, q.query, q.hasQuery)
	}
}

// forwardPath is the path towards the backend where nothing rewrites it: the client's own bytes, unless they held dot segments.
func (ex *exchange) forwardPath() string {
	raw := ex.req.path
	if raw != ex.match.Path && (raw == "" || routing.HasDotSegment(raw)) {
		return ex.match.Path
	}
	return raw
}

// patchPath applies a path modifier (Gateway API, HTTPPathModifier).
func (ex *exchange) patchPath(p *model.PathPatch) string {
	if !p.Prefix {
		if p.Value == "" {
			return "/"
		}
		return ex.clean(p.Value)
	}
	// Both sides of the seam are taken without their slash: "/foo/" and "/foo" replace alike, and an empty or "/" replacement
	// leaves the rest.
	path, prefix := ex.forwardPath(), ex.decision.Prefix
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok || rest != "" && rest[0] != '/' {
		// The client spelt the prefix in another way.
		rest = strings.TrimPrefix(ex.match.Path, prefix)
	}
	value := strings.TrimSuffix(ex.clean(p.Value), "/")
	switch {
	case value == "" && rest == "":
		return "/"
	case value == "":
		return rest
	case rest == "":
		return value
	}
	mark := len(ex.scratch)
	ex.scratch = append(ex.scratch, value...)
	ex.scratch = append(ex.scratch, rest...)
	return ex.text(mark)
}

// clean makes a configured path fit for a request target: it begins with a slash and holds nothing that a target may not.
func (ex *exchange) clean(value string) string {
	plain := strings.HasPrefix(value, "/") || value == ""
	for i := 0; plain && i < len(value); i++ {
		plain = targetByte(value[i])
	}
	if plain {
		return value
	}
	const hex = "0123456789ABCDEF"
	mark := len(ex.scratch)
	if value[0] != '/' {
		ex.scratch = append(ex.scratch, '/')
	}
	for i := range len(value) {
		if c := value[i]; targetByte(c) {
			ex.scratch = append(ex.scratch, c)
		} else {
			ex.scratch = append(ex.scratch, '%', hex[c>>4], hex[c&15])
		}
	}
	return ex.text(mark)
}

func targetByte(c byte) bool { return c > ' ' && c < 0x7f && c != '#' && c != '?' }

// answerRedirect answers with a Location (Gateway API, HTTPRequestRedirectFilter).
func (ex *exchange) answerRedirect(r *model.Redirect) error {
	fields := append(ex.local[:0], http1.Field{Name: "Location", Value: ex.location(r), ID: http1.FieldLocation})
	fields = ex.rule.filters.response.apply(fields)
	return ex.reply(r.Status, fields, "")
}

// location is where a redirect leads.
func (ex *exchange) location(r *model.Redirect) string {
	scheme := r.Scheme
	if scheme == "" {
		scheme = ex.scheme()
	}
	host := r.Hostname
	if !http1.ValidAuthority(host) {
		host = ex.req.host
	}
	port := r.Port
	if port == 0 {
		// Named or not, a scheme brings its own port; without one the listener's port stays.
		switch {
		case r.Scheme == "http":
			port = 80
		case r.Scheme == "https":
			port = 443
		case ex.askedPort() != 0:
			port = ex.askedPort()
		default:
			port = ex.decision.Listener.Listener.Port
		}
	}
	path := ex.forwardPath()
	if r.Path != nil {
		path = ex.patchPath(r.Path)
	}
	var location []byte
	location = append(location, scheme...)
	location = append(location, "://"...)
	if host == "" {
		location = location[:0] // HTTP/1.0 without Host
	} else if scheme == "http" && port == 80 || scheme == "https" && port == 443 {
		location = append(location, host...)
	} else if strings.HasPrefix(host, "[") {
		location = append(append(location, host...), ':')
		location = strconv.AppendInt(location, int64(port), 10)
	} else {
		location = append(location, net.JoinHostPort(host, strconv.Itoa(int(port)))...)
	}
	location = append(location, path...)
	if ex.req.hasQuery {
		location = append(location, '?')
		location = append(location, ex.req.query...)
	}
	return string(location)
}
