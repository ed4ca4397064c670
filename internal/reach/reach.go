// Package reach judges the addresses that endpoints may have. The authors of Services, EndpointSlices and DNS zones
// must not be able to lead the proxy to addresses that are not theirs: to the proxy itself, to the machine it runs on,
// or to the metadata services of clouds.
//
// Judge judges addresses as such, Guard judges those that a process is about to dial. The package resolves nothing and
// connects to nothing; host names are judged by resource.HostNames.
package reach

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// metadata are the addresses of clouds' metadata services, which often give a machine credentials, except for
// link-local ones: Amazon, Google, Alibaba, Azure, Oracle.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"), netip.MustParseAddr("fd20:ce::254"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8") // RFC 1122 §3.2.1.3
	broadcast   = netip.AddrFrom4([4]byte{255, 255, 255, 255})

	// Prefixes of IPv6 addresses that stand for an IPv4 address, see embedded.
	compatible = netip.MustParsePrefix("::/96")           // RFC 4291 §2.5.5.1
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765 §2.1
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052 §2.1
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056 §2
)

// Judge returns why an endpoint of a cluster may not have an address, or "". No endpoint may be unspecified, loopback,
// link-local (169.254.0.0/16 and fe80::/10), multicast, broadcast or a cloud's metadata service, nor an IPv6 address
// that stands for such an IPv4 address: mapped, NAT64 (64:ff9b::/96), 6to4.
func Judge(address netip.Addr) (why string) {
	eachForm(address, func(a netip.Addr) bool {
		why = judge(a)
		return why == ""
	})
	return why
}

func judge(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "is not an IP address"
	case a.IsUnspecified() || thisNetwork.Contains(a):
		return "is unspecified"
	case a.IsLoopback():
		return "is loopback"
	case a.IsLinkLocalUnicast():
		return "is link-local"
	case a.IsMulticast():
		return "is multicast"
	case a == broadcast:
		return "is broadcast"
	}
	for _, m := range metadata {
		if a == m {
			return "is a cloud's metadata service"
		}
	}
	return ""
}

// eachForm calls yield with the address, without zone and unmapped, and with the IPv4 addresses it may stand for, until yield
// returns false.
func eachForm(a netip.Addr, yield func(netip.Addr) bool) {
	a = a.WithZone("").Unmap()
	if !yield(a) || !a.Is6() {
		return
	}
	b := a.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case compatible.Contains(a):
		if binary.BigEndian.Uint32(b[12:]) > 1 { // else unspecified or loopback
			yield(at(12))
		}
	case translated.Contains(a), nat64.Contains(a):
		yield(at(12))
	case nat64Local.Contains(a):
		// RFC 6052 §2.2: the place of the IPv4 address depends on the length of the prefix. Unused places are zero.
		for _, form := range []netip.Addr{
			netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}), netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]}), at(9), at(12),
		} {
			if !thisNetwork.Contains(form) && !yield(form) {
				return
			}
		}
	case sixToFour.Contains(a):
		yield(at(2))
	}
}

// Guard judges the addresses that a process dials. Its methods may be called at the same time. The zero value refuses
// nothing before Protect.
type Guard struct {
	// Cluster refuses what Judge refuses, and every address of this machine's (the pod's) interfaces.
	Cluster bool
	// Relays, if set, returns the sockets of this process whose connections are relayed without being understood: nothing in such a
	// connection would tell that it has come back. Addresses that lead to them are refused, as for Protect. Set it before the first call.
	Relays func() []netip.AddrPort

	protected atomic.Pointer[[]netip.AddrPort]
	addresses atomic.Pointer[interfaceAddresses]

	// interfaces replaces the system's in tests.
	interfaces func() ([]net.Addr, error)
}

// interfaceAddresses are the addresses of the interfaces at a time.
type interfaceAddresses struct {
	known map[netip.Addr]bool
	read  time.Time
}

// ownAge is how long the known addresses of the interfaces are used: they hardly ever change.
const interfaceAge = time.Second

// Protect refuses from now on every address that leads to a socket on which this process listens, such as its admin
// endpoint's. An unspecified address means the port on every address of the machine.
func (g *Guard) Protect(socket netip.AddrPort) {
	for {
		old := g.protected.Load()
		next := []netip.AddrPort{netip.AddrPortFrom(socket.Addr().Unmap().WithZone(""), socket.Port())}
		if old != nil {
			next = append(next, *old...)
		}
		if g.protected.CompareAndSwap(old, &next) {
			return
		}
	}
}

// Refuse returns why an address may not be dialled, in words that follow it, or "" if it may. Call it with the very
// address that is dialled, after names were resolved.
func (g *Guard) Refuse(to netip.AddrPort) (why string) {
	if g.Cluster {
		if why := Judge(to.Addr()); why != "" {
			return why
		}
	}
	var relays []netip.AddrPort
	if g.Relays != nil {
		relays = g.Relays()
	}
	eachForm(to.Addr(), func(a netip.Addr) bool {
		switch {
		case g.Cluster && g.isInterface(a):
			why = "is the proxy's own"
		case g.leadsTo(g.protected.Load(), a, to.Port()):
			why = "is the proxy's own admin endpoint"
		case relays != nil && g.leadsTo(&relays, a, to.Port()):
			why = "is a TCP listener of the proxy itself, so that the connection would come back"
		}
		return why == ""
	})
	return why
}

// leadsTo reports whether an address leads to one of the sockets, whose addresses are without zone and unmapped.
func (g *Guard) leadsTo(all *[]netip.AddrPort, a netip.Addr, port uint16) bool {
	if all == nil {
		return false
	}
	for _, p := range *all {
		if p.Port() != port {
			continue
		}
		switch {
		case p.Addr() == a:
			return true
		case p.Addr().IsUnspecified():
			// It is bound on all addresses of this machine.
			if a.IsLoopback() || a.IsUnspecified() || g.isInterface(a) {
				return true
			}
		case a.IsUnspecified():
			return true // connect(2) takes it for this machine
		}
	}
	return false
}

// isInterface reports whether an interface has the address. If the interfaces cannot be read, the last known addresses stay.
func (g *Guard) isInterface(a netip.Addr) bool {
	current := g.addresses.Load()
	if current == nil || time.Since(current.read) > interfaceAge {
		read := g.interfaces
		if read == nil {
			read = net.InterfaceAddrs
		}
		if all, err := read(); err == nil {
			current = &interfaceAddresses{known: make(map[netip.Addr]bool, len(all)), read: time.Now()}
			for _, address := range all {
				if n, ok := address.(*net.IPNet); ok {
					if ip, ok := netip.AddrFromSlice(n.IP); ok {
						current.known[ip.Unmap()] = true
					}
				}
			}
			g.addresses.Store(current)
		}
	}
	return current != nil && current.known[a]
}
