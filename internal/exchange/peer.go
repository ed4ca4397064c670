package exchange

import (
	"crypto/x509"
	"net"
	"net/netip"
	"strconv"

	"github.com/weirmesh/weir/internal/clientaddr"
)

// Peer is who is at the other end of a client's connection, as long as that lasts. Exchanges read it and change nothing.
type Peer struct {
	// Address is the client's, or that of a proxy in front (see exchange.clientAddr): as a PROXY header has it, or the socket's. It is not valid if it is
	// not TCP's. IP is the same as text, and what the socket says where there is no address.
	Address netip.Addr
	IP      string
	// Scheme is "http" or "https".
	Scheme string
	// Port is the port that the client came to, as text.
	Port string
	// Socket is the connection's; nil in previews.
	Socket Socket
	// Announced is what a PROXY header said; nil: there was none.
	Announced *Announced
	// TLS is what the handshake said; nil in cleartext.
	TLS *TLSPeer
}

// Socket has the addresses of a connection's two sides.
type Socket interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}

// TLSPeer is a client as a TLS handshake knows it.
type TLSPeer struct {
	// Name is the server's name that the client asked for (SNI), in lower case and without the root's dot; empty if it named none.
	Name string
	// Auth is what the listener asked of the client's certificate then.
	Auth ClientAuth
	// Verified is the client's certificate, if an authority of the listener's vouches for it: whom policies may take the client for. nil if none does.
	Verified *x509.Certificate
}

// ClientAuth is what a listener asks of a client's certificate. Connections that were let in under another one must not reach the
// listener.
type ClientAuth struct {
	// Authorities are PEM; empty asks for nothing.
	Authorities string
	// Optional: a client may come without.
	Optional bool
	// Refused: the listener takes no connection.
	Refused bool
}

// Announced is what a PROXY header said of a connection.
type Announced struct {
	clientaddr.Header
	ip   string // of the source, as text
	port string // of the destination
}

// NewAnnounced is nil for a header that says nothing of a client.
func NewAnnounced(h clientaddr.Header) *Announced {
	if !h.Source.IsValid() {
		return nil
	}
	return &Announced{h, h.Source.Addr().String(), strconv.Itoa(int(h.Destination.Port()))}
}

// Come sets who has come over a socket to a port.
func (p *Peer) Come(s Socket, scheme, port string) {
	p.Socket, p.Scheme, p.Port = s, scheme, port
	if p.Address = clientaddr.AddrPort(s.RemoteAddr()).Addr(); p.Address.IsValid() {
		p.IP = p.Address.String()
	} else {
		p.IP = s.RemoteAddr().String()
	}
}

// Become makes the peer the one that was announced; nil changes nothing.
func (p *Peer) Become(a *Announced) {
	if a == nil {
		return
	}
	p.Announced, p.Address, p.IP, p.Port = a, a.Source.Addr(), a.ip, a.port
	if a.TLS {
		p.Scheme = "https"
	}
}

// Name is the client's address as logs tell it: the socket's, or that of a PROXY header.
func (p *Peer) Name() string {
	if p.Announced != nil {
		return p.Announced.Source.String()
	}
	return p.Socket.RemoteAddr().String()
}

// Addresses of the connection: as a PROXY header has them, or the socket's.
func (p *Peer) Addresses() clientaddr.Pair {
	switch {
	case p.Announced != nil:
		return p.Announced.Pair
	case p.Socket == nil:
		return clientaddr.Pair{}
	}
	return clientaddr.PairOf(p.Socket)
}
