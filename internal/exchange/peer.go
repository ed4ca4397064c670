package exchange

import (
	"crypto/x509"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/internal/upstream"
)

// Peer is the other end of a client's connection, as long as the connection lasts. Exchanges only read it, and count themselves in it.
type Peer struct {
	// Address is the client's, or that of a proxy in front (see exchange.clientAddr). It comes from a PROXY header or
	// from the socket. It is not valid if the socket is not TCP. IP is the address as text; without an address, it is
	// what the socket reports.
	Address netip.Addr
	IP      string
	// Scheme is "http" or "https".
	Scheme string
	// Port is the port that the client connected to, as text.
	Port string
	// Meant is the address that the client meant to connect to, if a redirect brought the connection here.
	Meant netip.AddrPort
	// Socket is the connection's socket; nil in previews.
	Socket Socket
	// Announced is the content of a PROXY header; nil if there was none.
	Announced *Announced
	// TLS is the result of the handshake; nil in cleartext.
	TLS *TLSPeer
	// judgedBy is what the access stage found out about the peer last.
	judgedBy atomic.Pointer[policy.Subject]
	// edge is where its requests were counted last.
	edge atomic.Pointer[observed]
	// own is what its requests have of their own; nil before the first that needs it.
	own atomic.Pointer[Own]
	// streams are the connection's requests in flight over HTTP/2.
	streams atomic.Int32
}

// Own is what requests of one client's connection have of their own: connections to the address that the client meant, for a
// service that is Meant. Nil is nothing.
type Own struct {
	of       *upstream.Service
	endpoint *upstream.Endpoint
}

// End ends it. No request that needs it comes after that.
func (o *Own) End() {
	if o != nil {
		o.endpoint.Leave()
	}
}

// endpointOf is where requests of the client go for a service that is Meant; nil if no redirect says which address that is.
func (p *Peer) endpointOf(s *upstream.Service) *upstream.Endpoint {
	if !p.Meant.IsValid() {
		return nil
	}
	for {
		now := p.own.Load()
		if now != nil && now.of == s {
			return now.endpoint
		}
		next := &Own{s, s.Own(p.Meant.String())}
		if p.own.CompareAndSwap(now, next) {
			now.End()
			return next.endpoint
		}
	}
}

// TakeOwn takes away what the client's requests have of their own, for GiveOwn of the Peer that the connection has next, or to
// end it.
func (p *Peer) TakeOwn() *Own { return p.own.Swap(nil) }

// GiveOwn gives it.
func (p *Peer) GiveOwn(o *Own) { p.own.Store(o) }

// Meshed reports whether the client proved an identity: it is a proxy of the mesh, which may know another endpoint if this
// one does not take its request.
func (p *Peer) Meshed() bool { return p.TLS != nil && p.TLS.ID != (spiffe.ID{}) }

// Socket has the addresses of a connection's two sides.
type Socket interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}

// TLSPeer is a client's identity from a TLS handshake.
type TLSPeer struct {
	// Name is the server name that the client requested (SNI), in lower case and without the root's dot; empty if there
	// was none.
	Name string
	// Listener is the name of the listener that took the connection.
	Listener string
	// Auth is what the listener required of the client's certificate at that time.
	Auth ClientAuth
	// Verified is the client's certificate if one of the listener's authorities vouches for it, else nil. Policies may
	// rely on it as the client's identity.
	Verified *x509.Certificate
	// ID is the client's SPIFFE ID, which Verified proves. It is set only by listeners that have an identity, which
	// require one of every client, and is of the identity's trust domain.
	ID spiffe.ID
}

// ClientAuth is what a listener requires of a client's certificate. A connection that was accepted under another
// ClientAuth must not reach the listener.
type ClientAuth struct {
	// Authorities are PEM; empty requires nothing.
	Authorities string
	// Optional means that the client may omit the certificate.
	Optional bool
	// Identity is the name of the identity whose roots vouch for the client's SPIFFE ID; empty requires none.
	Identity string
	// Refused means that the listener accepts no connections.
	Refused bool
}

// Announced is the content of a PROXY header.
type Announced struct {
	clientaddr.Header
	ip   string // of the source, as text
	port string // of the destination
}

// NewAnnounced returns nil for a header that does not name a client.
func NewAnnounced(h clientaddr.Header) *Announced {
	if !h.Source.IsValid() {
		return nil
	}
	return &Announced{h, h.Source.Addr().String(), strconv.Itoa(int(h.Destination.Port()))}
}

// Come sets the peer that connected to a port over a socket.
func (p *Peer) Come(s Socket, scheme, port string) {
	p.Socket, p.Scheme, p.Port = s, scheme, port
	if p.Address = clientaddr.AddrPort(s.RemoteAddr()).Addr(); p.Address.IsValid() {
		p.IP = p.Address.String()
	} else {
		p.IP = s.RemoteAddr().String()
	}
}

// Secure notes that the peer began TLS after bytes in cleartext, as which policies may have judged it.
func (p *Peer) Secure(t *TLSPeer) {
	p.Scheme, p.TLS = "https", t
	p.judgedBy.Store(nil)
}

// meet sets the peer of a relayed connection. name is the text of the socket's remote address.
func (p *Peer) meet(s Socket, name string) {
	p.Socket, p.IP = s, name
	if p.Address = clientaddr.AddrPort(s.RemoteAddr()).Addr(); p.Address.IsValid() {
		p.IP = hostOf(name)
	}
}

// hostOf returns the address in a text of address and port, without allocating.
func hostOf(name string) string {
	name = strings.TrimPrefix(name[:strings.LastIndexByte(name, ':')], "[")
	name, _, _ = strings.Cut(strings.TrimSuffix(name, "]"), "%")
	return name
}

// Become replaces the peer with the announced one; nil changes nothing.
func (p *Peer) Become(a *Announced) {
	if a == nil {
		return
	}
	p.Announced, p.Address, p.IP, p.Port = a, a.Source.Addr(), a.ip, a.port
	if a.TLS {
		p.Scheme = "https"
	}
}

// Name is the client's address for logs: the socket's, or the one from a PROXY header.
func (p *Peer) Name() string {
	if p.Announced != nil {
		return p.Announced.Source.String()
	}
	return p.Socket.RemoteAddr().String()
}

// Addresses returns the connection's addresses, from a PROXY header or from the socket.
func (p *Peer) Addresses() clientaddr.Pair {
	switch {
	case p.Announced != nil:
		return p.Announced.Pair
	case p.Socket == nil:
		return clientaddr.Pair{}
	}
	return clientaddr.PairOf(p.Socket)
}
