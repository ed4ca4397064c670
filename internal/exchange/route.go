package exchange

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unsafe"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// routed is the destination of an exchange's request.
type routed struct {
	match    routing.Request
	decision routing.Decision
	observer *observer // of the listener; nil if no listener serves the host
	rule     *Rule
	deadline time.Time // of the whole exchange; zero for none
	backend  *Backend
	resumed  *sessionTarget // where the request's session is; nil without a session
	endpoint *upstream.Endpoint
	awaited  bool // there was no endpoint at first
}

// route finds the rule.
func (ex *Exchange) route() error {
	r := &ex.req
	if ex.from.Port == nil {
		return failNoListener
	}
	l := ex.from.Port.Listener(r.host)
	if l == nil {
		return failNoListener
	}
	if !ex.mayReach(l) {
		return failMisdirected
	}
	ex.listen(l)
	m := &ex.match
	m.Host, m.Method, m.Query, m.Fields = r.host, r.Method, r.Query, ex
	if r.Method == http.MethodConnect {
		m.Path = "/"
	} else {
		var err error
		if m.Path, err = routing.NormalizePath(r.Path); err != nil {
			return &Failure{Status: http.StatusBadRequest, Reason: telemetry.BadRequest, Detail: err.Error()}
		}
	}
	if !l.Match(m, &ex.decision) {
		if f := excess(m); f != nil {
			return f
		}
		if r.Method == http.MethodConnect {
			return FailConnect
		}
		return FailNoRoute
	}
	if r.Method == http.MethodConnect && (ex.decision.Match.Method != http.MethodConnect || r.HTTP2) {
		return FailConnect
	}
	ex.rule = &ex.from.Snapshot.Rules[ex.decision.Rule.ID]
	if d := ex.rule.request; d > 0 {
		ex.deadline = ex.from.Start.Add(d)
	}
	if r.Method == http.MethodConnect {
		return nil
	}
	return ex.judgePath()
}

// mayReach reports whether requests for listener l may come over this connection (Gateway API, Listener.Hostname). The
// handshake's name must select the same listener, and its demand on client certificates must still be l's. Without a
// name, l must be the listener that took the connection. Without TLS, l must serve such clients.
func (ex *Exchange) mayReach(l *routing.Listener) bool {
	t := ex.from.Peer.TLS
	if t == nil {
		return l.Listener.ServesPlain()
	}
	if ex.from.Snapshot.Listeners[l.ID].Auth != t.Auth {
		return false
	}
	if t.Name == "" {
		return t.Listener == l.Listener.Name
	}
	return ex.from.Port.Listener(t.Name) == l
}

// Field implements routing.Fields.
func (ex *Exchange) Field(name string) (string, bool) {
	value, found, joined := "", false, []string(nil)
	for i := range ex.req.Fields {
		f := &ex.req.Fields[i]
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
	if !found && name == "host" && ex.req.Authority != "" {
		return ex.req.Authority, true
	}
	return value, found
}

// text turns the bytes appended to scratch since the mark into a string that is valid as long as the exchange.
func (ex *Exchange) text(mark int) string {
	b := ex.scratch[mark:]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// join makes a target from a path and a query.
func (ex *Exchange) join(path, query string, hasQuery bool) string {
	if !hasQuery {
		return path
	}
	mark := len(ex.scratch)
	ex.scratch = append(ex.scratch, path...)
	ex.scratch = append(ex.scratch, '?')
	ex.scratch = append(ex.scratch, query...)
	return ex.text(mark)
}

// asked returns the authority for the backend, before filters. If the client named none, as HTTP/1.0 allows, it is the
// address that the request came to (RFC 9112 §3.3). An HTTP/1.1 server may refuse an empty Host.
func (ex *Exchange) asked() string {
	if ex.req.Authority != "" || ex.from.Peer.Socket == nil {
		return ex.req.Authority
	}
	a, ok := ex.from.Peer.Socket.LocalAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	local := a.AddrPort()
	return netip.AddrPortFrom(local.Addr().Unmap().WithZone(""), local.Port()).String()
}

// setHost splits the authority (RFC 9110 §7.2) into the parts that routing compares.
func (ex *Exchange) setHost() {
	h := ex.req.Authority
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

// faultFailure returns the failure that a fault of the configuration prescribes.
func faultFailure(f *model.Fault) error {
	status := f.Status
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	return &Failure{Status: status, Reason: telemetry.FaultReason(f.Reason), Detail: "the route's backend is not usable: " + f.Reason}
}
