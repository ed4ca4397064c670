package clientaddr

import (
	"net"
	"net/netip"
)

// PairOf are the addresses of a socket's two sides.
func PairOf(s interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}) Pair {
	return Pair{Source: AddrPort(s.RemoteAddr()), Destination: AddrPort(s.LocalAddr())}
}

// AddrPort is a in the form that addresses are compared in: IPv4 as such, without a zone. It is not valid for addresses that are not TCP's.
func AddrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp == nil {
		return netip.AddrPort{}
	}
	p := tcp.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}
