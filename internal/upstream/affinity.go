package upstream

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
)

// PickFor is Pick for a client. If the service keeps clients at their endpoints, the endpoint is, of those that can be
// used, the one that ranks first for the client's address. The ranks depend on the addresses of the client and of the
// endpoints alone (rendezvous hashing), so that all proxies choose the same one, and an endpoint that comes or goes moves
// none but its own clients.
func (s *Service) PickFor(client netip.Addr, avoid *Endpoint) *Endpoint {
	if !s.sticky || !client.IsValid() {
		return s.Pick(avoid)
	}
	of := spotOf(client)
	if len(s.near) > 0 {
		if e := first(s.near, of, avoid, true); e != nil {
			return e
		}
	}
	return first(s.endpoints, of, avoid, false)
}

// first returns the endpoint of the highest rank, other than avoid, that has room and is healthy. If none is, it is avoid
// if that is healthy, then one that is not, and nil if only good.
func first(endpoints []*Endpoint, client uint64, avoid *Endpoint, good bool) *Endpoint {
	top := highest(endpoints, client, func(e *Endpoint) bool { return e != avoid && e.Room() })
	if top != nil {
		if ok, probe := top.admit(); ok || probe {
			return top
		}
	}
	if e := highest(endpoints, client, func(e *Endpoint) bool { return e != avoid && e.Room() && e.Healthy() }); e != nil || good {
		return e
	}
	if avoid != nil && avoid.Room() && (top == nil || avoid.Healthy()) {
		return avoid
	}
	return top
}

// highest returns the endpoint of the highest rank for a client of those that may be chosen, nil if there is none.
func highest(endpoints []*Endpoint, client uint64, may func(*Endpoint) bool) (best *Endpoint) {
	most := uint64(0)
	for _, e := range endpoints {
		if rank := mix(e.spot ^ client); may(e) && (best == nil || rank > most) {
			best, most = e, rank
		}
	}
	return best
}

// spotOf is a number for a client's address, spotAt one for an endpoint's: the same in all processes.
func spotOf(client netip.Addr) uint64 {
	a := client.Unmap().As16()
	return mix(binary.BigEndian.Uint64(a[:8])) ^ mix(binary.BigEndian.Uint64(a[8:])+1)
}

func spotAt(address string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(address))
	return mix(h.Sum64())
}

// mix has each bit of the result depend on all of x (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
