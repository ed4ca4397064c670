package exchange

import (
	"net"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// escapeTarget escapes the bytes of the target that RFC 3986 does not allow there. Browsers send some of these bytes,
// and many servers read them, but not all. So the proxy and the backend both see the one spelling that all servers
// read.
func (ex *Exchange) escapeTarget() {
	q := &ex.req
	mark := len(ex.scratch)
	ex.scratch = http1.AppendEscaped(ex.scratch, q.Path)
	q.Path = ex.text(mark)
	mark = len(ex.scratch)
	ex.scratch = http1.AppendEscaped(ex.scratch, q.Query)
	q.Query = ex.text(mark)
	if q.Form == http1.FormOrigin {
		q.Target = ex.join(q.Path, q.Query, q.HasQuery)
	}
}

// forwardPath returns the path for the backend if nothing rewrites it: the client's own bytes, unless they contained
// dot segments.
func (ex *Exchange) forwardPath() string {
	raw := ex.req.Path
	if raw != ex.match.Path && (raw == "" || routing.HasDotSegment(raw)) {
		return ex.match.Path
	}
	return raw
}

// sendable returns a path modifier with its value as the proxy sends it (see model.TargetPath). routing.Compile leaves
// out modifiers that cannot be sent.
func sendable(p *model.PathPatch) *model.PathPatch {
	if p == nil {
		return nil
	}
	value, err := model.TargetPath(p.Value)
	if err == nil && value == p.Value {
		return p
	}
	return &model.PathPatch{Prefix: p.Prefix, Value: value}
}

// patchPath applies a path modifier (Gateway API, HTTPPathModifier), which must be sendable.
func (ex *Exchange) patchPath(p *model.PathPatch) string {
	if !p.Prefix {
		if p.Value == "" {
			return "/"
		}
		return p.Value
	}
	// Slashes at the seam are dropped on both sides: "/foo/" and "/foo" replace alike, and an empty or "/" replacement
	// leaves the rest.
	path, prefix := ex.forwardPath(), ex.decision.Prefix
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok || rest != "" && rest[0] != '/' {
		// The client spelt the prefix differently.
		rest = strings.TrimPrefix(ex.match.Path, prefix)
	}
	value := strings.TrimSuffix(p.Value, "/")
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

// answerRedirect answers with a Location (Gateway API, HTTPRequestRedirectFilter).
func (ex *Exchange) answerRedirect(r *model.Redirect) error {
	fields := append(ex.local[:0], http1.Field{Name: "Location", Value: ex.location(r), ID: http1.FieldLocation})
	fields = ex.rule.filters.response.apply(fields)
	return ex.reply(r.Status, fields, "")
}

// location returns the target of a redirect.
func (ex *Exchange) location(r *model.Redirect) string {
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
		// A scheme in the redirect brings its default port. Without a scheme, the listener's port stays.
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
	if ex.req.HasQuery {
		location = append(location, '?')
		location = append(location, ex.req.Query...)
	}
	return string(location)
}
