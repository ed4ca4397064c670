package proxy

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"unsafe"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
)

// route finds the rule.
func (ex *exchange) route() error {
	r := &ex.req
	if ex.port == nil {
		return failNoListener
	}
	l := ex.port.Listener(r.host)
	if l == nil {
		return failNoListener
	}
	if ex.conn.tls != nil && !ex.conn.mayReach(ex.snap, ex.port, l) {
		return failMisdirected
	}
	ex.listen(l)
	m := &ex.match
	m.Host, m.Method, m.Query, m.Fields = r.host, r.method, r.query, ex
	if r.method == http.MethodConnect {
		m.Path = "/"
	} else {
		var err error
		if m.Path, err = routing.NormalizePath(r.path); err != nil {
			return &failure{status: http.StatusBadRequest, reason: telemetry.BadRequest, detail: err.Error()}
		}
	}
	if !l.Match(m, &ex.decision) {
		if f := excess(m); f != nil {
			return f
		}
		if r.method == http.MethodConnect {
			return failConnect
		}
		return failNoRoute
	}
	if r.method == http.MethodConnect && (ex.decision.Match.Method != http.MethodConnect || r.http2) {
		return failConnect
	}
	ex.rule = &ex.snap.rules[ex.decision.Rule.ID]
	if d := ex.rule.request; d > 0 {
		ex.deadline = ex.start.Add(d)
	}
	if r.method == http.MethodConnect {
		return nil
	}
	return ex.judgePath()
}

// Field implements routing.Fields.
func (ex *exchange) Field(name string) (string, bool) {
	value, found, joined := "", false, []string(nil)
	for i := range ex.req.fields {
		f := &ex.req.fields[i]
		if len(f.Name) != len(name) || !http1.EqualFold(f.Name, name) {
			continue
		}
		switch {
		case !found:
			value, found = f.Value, true
		case joined == nil:
			joined = []string{value, f.Value}
		default:
			joined = append(joined, f.Value)
		}
	}
	if joined != nil {
		value = strings.Join(joined, ", ")
	}
	if !found && name == "host" && ex.req.authority != "" {
		return ex.req.authority, true
	}
	return value, found
}

// text makes the bytes appended to scratch since the mark a string that is valid as long as the exchange.
func (ex *exchange) text(mark int) string {
	b := ex.scratch[mark:]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// join makes a target of a path and a query.
func (ex *exchange) join(path, query string, hasQuery bool) string {
	if !hasQuery {
		return path
	}
	mark := len(ex.scratch)
	ex.scratch = append(ex.scratch, path...)
	ex.scratch = append(ex.scratch, '?')
	ex.scratch = append(ex.scratch, query...)
	return ex.text(mark)
}

// asked is the authority that the backend is asked for, filters aside. Where the client named none, as in HTTP/1.0 it may, that is the
// address it came to (RFC 9112 §3.3): an HTTP/1.1 server may refuse an empty Host.
func (ex *exchange) asked() string {
	if ex.req.authority != "" || ex.conn.sock == nil {
		return ex.req.authority
	}
	a, ok := ex.conn.sock.LocalAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	local := a.AddrPort()
	return netip.AddrPortFrom(local.Addr().Unmap().WithZone(""), local.Port()).String()
}

// setHost splits the authority (RFC 9110 §7.2) into what routing compares.
func (ex *exchange) setHost() {
	h := ex.req.authority
	if i := strings.LastIndexByte(h, ':'); i >= 0 && strings.IndexByte(h[i:], ']') < 0 {
		h = h[:i]
	}
	h = strings.TrimSuffix(h, ".")
	for i := 0; i < len(h); i++ {
		if c := h[i]; 'A' <= c && c <= 'Z' {
			mark := len(ex.scratch)
			for j := 0; j < len(h); j++ {
				c := h[j]
				if 'A' <= c && c <= 'Z' {
					c |= 0x20
				}
				ex.scratch = append(ex.scratch, c)
			}
			h = ex.text(mark)
			break
		}
	}
	ex.req.host = h
}

// faultFailure is the failure that a fault of the configuration prescribes.
func faultFailure(f *model.Fault) error {
	status := f.Status
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	return &failure{status: status, reason: telemetry.FaultReason(f.Reason), detail: "the route's backend is not usable: " + f.Reason}
}
