package exchange

import (
	"net"
	"net/netip"
	"strings"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// Front is a listener's model.Front; nil trusts no proxy.
type Front struct {
	Trust *clientaddr.Trust
	field model.ClientAddressField
	// Header means that connections begin with a PROXY header.
	Header bool
}

func newFront(f *model.Front) *Front {
	if f == nil || len(f.TrustedProxies) == 0 && !f.ProxyProtocol {
		return nil
	}
	var networks []netip.Prefix
	for _, text := range f.TrustedProxies {
		if p, err := model.ParseTrusted(text); err == nil { // the model has been validated
			networks = append(networks, p)
		}
	}
	return &Front{Trust: clientaddr.NewTrust(networks), field: f.ClientAddress, Header: f.ProxyProtocol}
}

// vouched is what an exchange learns from trusted proxies in front.
type vouched struct {
	reported     *clientReport // clientReport, if there is a trusted proxy in front
	clientReport clientReport
}

// clientReport is what trusted proxies in front reported about a request. Its strings are valid as long as the exchange.
type clientReport struct {
	client netip.Addr
	// text is the client. chain is the X-Forwarded-For to send: the client, and the trusted addresses between it and
	// this proxy.
	text, chain string
	// forwarded is the Forwarded field to send; empty if the proxies in front did not use it.
	forwarded string
	// scheme, host and port are what the client requested; empty if the proxies in front did not report them.
	scheme, host, port string
}

// listen reads what proxies in front report, if the listener trusts the connection's other side.
func (ex *Exchange) listen(l *routing.Listener) {
	state := &ex.from.Snapshot.Listeners[l.ID]
	ex.observer = state.observer
	f := state.Front
	ex.id.guarded = f != nil
	ex.believe(f)
}

// believe reads what proxies in front report, if the connection's other side is one of them.
func (ex *Exchange) believe(f *Front) {
	if f == nil || !f.Trust.Contains(ex.from.Peer.Address) {
		return
	}
	t := &ex.clientReport
	*t = clientReport{}
	ex.reported = t

	var w clientaddr.Walk
	w.Begin(f.Trust)
	used := ex.walk(&w, f.field)
	hops := w.Hops()
	t.client, t.text = ex.from.Peer.Address, ex.from.Peer.IP
	mark := len(ex.scratch)
	for i := len(hops) - 1; i >= 0; i-- {
		ex.scratch = append(hops[i].AppendTo(ex.scratch), ", "...)
		if i == len(hops)-1 {
			t.client, t.text = hops[i], ex.text(mark)[:len(ex.scratch)-mark-2]
		}
	}
	ex.scratch = append(ex.scratch, ex.from.Peer.IP...)
	t.chain = ex.text(mark)

	scheme, host := ex.soleField(http1.FieldXForwardedProto), ex.soleField(http1.FieldXForwardedHost)
	if used == http1.FieldForwarded {
		if w.Proto != "" {
			scheme = w.Proto
		}
		if w.Host != "" {
			host = w.Host
		}
	}
	for _, s := range [...]string{"http", "https", "ws", "wss"} {
		if len(s) == len(scheme) && http1.EqualFold(s, scheme) {
			t.scheme = s
		}
	}
	if host != "" && http1.ValidAuthority(host) {
		t.host = host
	}
	if port := ex.soleField(http1.FieldXForwardedPort); portNumber(port) != 0 {
		t.port = port
	} else if t.scheme != "" {
		t.port = impliedPort(t.scheme, t.asked(ex))
	}
	if used == http1.FieldForwarded {
		t.forwarded = ex.forwardedField(hops)
	}
}

// walk finds the client. It returns the field that it searched, or FieldOther if there is none.
func (ex *Exchange) walk(w *clientaddr.Walk, field model.ClientAddressField) http1.FieldID {
	for _, f := range [...]struct {
		name model.ClientAddressField
		id   http1.FieldID
	}{{model.XForwardedFor, http1.FieldXForwardedFor}, {model.Forwarded, http1.FieldForwarded}, {model.XRealIP, http1.FieldXRealIP}} {
		if field != "" && field != f.name {
			continue
		}
		there := false
		for i := len(ex.req.Fields) - 1; i >= 0; i-- {
			if ex.req.Fields[i].ID != f.id {
				continue
			}
			if there = true; !ex.step(w, f.id, ex.req.Fields[i].Value) {
				break
			}
		}
		if there {
			return f.id
		}
	}
	return http1.FieldOther
}

// step walks over a line. It returns false when the walk is over.
func (ex *Exchange) step(w *clientaddr.Walk, id http1.FieldID, line string) bool {
	switch id {
	case http1.FieldXForwardedFor:
		return w.ForwardedFor(line)
	case http1.FieldForwarded:
		return w.Forwarded(line)
	}
	w.RealIP(ex.soleField(id))
	return false
}

// soleField returns the value of a field that has one line with one member. With several members, the proxy cannot tell
// which one the proxy in front wrote.
func (ex *Exchange) soleField(id http1.FieldID) (value string) {
	for i := range ex.req.Fields {
		if f := &ex.req.Fields[i]; f.ID == id {
			if value != "" {
				return ""
			}
			value = f.Value
		}
	}
	if strings.IndexByte(value, ',') >= 0 {
		return ""
	}
	return value
}

// asked returns the authority that the client requested, as far as it is known.
func (t *clientReport) asked(ex *Exchange) string {
	if t.host != "" {
		return t.host
	}
	return ex.req.Authority
}

// impliedPort returns the port of an authority, or else the scheme's default.
func impliedPort(scheme, authority string) string {
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && strings.IndexByte(authority[i:], ']') < 0 && portNumber(authority[i+1:]) != 0 {
		return authority[i+1:]
	}
	if scheme == "https" || scheme == "wss" {
		return "443"
	}
	return "80"
}

// portNumber returns 0 if s is not a port number.
func portNumber(s string) int32 {
	if len(s) == 0 || len(s) > 5 || s[0] == '0' {
		return 0
	}
	n := int32(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0
		}
		n = n*10 + int32(s[i]-'0')
	}
	if n > 65535 {
		return 0
	}
	return n
}

// forwardedField writes the chain as Forwarded (RFC 7239). The first element says what the client requested.
func (ex *Exchange) forwardedField(hops []netip.Addr) string {
	t := ex.reported
	mark := len(ex.scratch)
	for i := len(hops); i >= 0; i-- {
		a := ex.from.Peer.Address
		if i > 0 {
			a = hops[i-1]
		}
		ex.scratch = clientaddr.AppendNode(append(ex.scratch, "for="...), a)
		if i == len(hops) {
			ex.scratch = append(append(ex.scratch, ";proto="...), ex.shownScheme()...)
			if host := t.asked(ex); host != "" {
				ex.scratch = append(append(append(ex.scratch, ";host=\""...), host...), '"') // an authority has neither quotes nor backslashes
			}
		}
		if i > 0 {
			ex.scratch = append(ex.scratch, ", "...)
		}
	}
	return ex.text(mark)
}

// clientAddr returns the client's address, found across trusted proxies in front. Limits, policies and logs must use
// it. It is not valid if the connection has none.
func (ex *Exchange) clientAddr() netip.Addr {
	if ex.reported != nil {
		return ex.reported.client
	}
	return ex.from.Peer.Address
}

// clientIP is clientAddr as text.
func (ex *Exchange) clientIP() string {
	if ex.reported != nil {
		return ex.reported.text
	}
	return ex.from.Peer.IP
}

// shownScheme is the X-Forwarded-Proto to send: a trusted proxy's, or the scheme that the client used here.
func (ex *Exchange) shownScheme() string {
	if ex.reported != nil && ex.reported.scheme != "" {
		return ex.reported.scheme
	}
	return ex.from.Peer.Scheme
}

// scheme is "http" or "https", as the client used it here.
func (ex *Exchange) scheme() string {
	switch s := ex.shownScheme(); s {
	case "ws":
		return "http"
	case "wss":
		return "https"
	default:
		return s
	}
}

// askedPort is the port that the client requested according to trusted proxies; 0 if they do not report one.
func (ex *Exchange) askedPort() int32 {
	if ex.reported == nil {
		return 0
	}
	return portNumber(ex.reported.port)
}

// untold reports whether an untrusted peer sent a field that only proxies vouch for: X-Forwarded-Prefix,
// X-Forwarded-Client-Cert and other fields with that prefix. Fields that the proxy writes itself are in own.
func (ex *Exchange) untold(f *http1.Field) bool {
	const prefix = "X-Forwarded-"
	return f.ID == http1.FieldOther && len(f.Name) > len(prefix) && f.Name[0]|0x20 == 'x' && ex.reported == nil && !ex.pipe.Beside && http1.EqualFold(f.Name[:len(prefix)], prefix)
}

// forwardedFields appends what the proxy reports about the client: its address, and what it requested.
func (ex *Exchange) forwardedFields(out []http1.Field) []http1.Field {
	chain, host, port := ex.from.Peer.IP, ex.req.Authority, ex.from.Peer.Port
	if t := ex.reported; t != nil {
		chain, host = t.chain, t.asked(ex)
		if t.port != "" {
			port = t.port
		}
	}
	out = append(out,
		http1.Field{Name: "X-Forwarded-For", Value: chain, ID: http1.FieldXForwardedFor},
		http1.Field{Name: "X-Forwarded-Proto", Value: ex.shownScheme(), ID: http1.FieldXForwardedProto})
	if host != "" {
		out = append(out, http1.Field{Name: "X-Forwarded-Host", Value: host, ID: http1.FieldXForwardedHost})
	}
	if port != "" {
		out = append(out, http1.Field{Name: "X-Forwarded-Port", Value: port, ID: http1.FieldXForwardedPort})
	}
	out = append(out, http1.Field{Name: "X-Real-IP", Value: ex.clientIP(), ID: http1.FieldXRealIP})
	if ex.reported != nil && ex.reported.forwarded != "" {
		out = append(out, http1.Field{Name: "Forwarded", Value: ex.reported.forwarded, ID: http1.FieldForwarded})
	}
	return out
}

// logged returns the client for the access log, and the other side of the connection if that is different.
func (ex *Exchange) logged() (client, peer string) {
	switch {
	case ex.reported != nil && ex.reported.client != ex.from.Peer.Address:
		return ex.reported.text, ex.socketAddr()
	case ex.from.Peer.Announced != nil:
		return ex.from.Peer.Name(), ex.socketAddr()
	}
	return ex.socketAddr(), ""
}

// socketAddr is the address of the socket's other side as text, valid as long as the exchange.
func (ex *Exchange) socketAddr() string {
	a, ok := ex.from.Peer.Socket.RemoteAddr().(*net.TCPAddr)
	if !ok || a == nil {
		return ex.from.Peer.Socket.RemoteAddr().String()
	}
	p := a.AddrPort()
	mark := len(ex.scratch)
	ex.scratch = netip.AddrPortFrom(p.Addr().Unmap(), p.Port()).AppendTo(ex.scratch)
	return ex.text(mark)
}

// Addresses returns the client's address and the address it connected to, for a PROXY header to an endpoint. The port
// is known only if no field names the client.
func (ex *Exchange) Addresses() clientaddr.Pair {
	p := ex.from.Peer.Addresses()
	if a := ex.clientAddr(); a != p.Source.Addr() {
		p.Source = netip.AddrPortFrom(a, 0)
	}
	return p
}
