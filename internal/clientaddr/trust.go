package clientaddr

import (
	"net/netip"
	"slices"
)

// Trust is a set of addresses. Its zero value, and nil, is the empty set.
type Trust struct {
	v4, v6 []span // in order, without overlaps
}

// span is the addresses from first to last.
type span struct{ first, last netip.Addr }

// NewTrust makes the set of all addresses of the networks.
func NewTrust(networks []netip.Prefix) *Trust {
	t := &Trust{}
	for _, p := range networks {
		p = p.Masked()
		s := span{p.Addr(), lastOf(p)}
		if p.Addr().Is4() {
			t.v4 = append(t.v4, s)
		} else {
			t.v6 = append(t.v6, s)
		}
	}
	t.v4, t.v6 = joined(t.v4), joined(t.v6)
	return t
}

// lastOf is the last address of a network.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// joined sorts spans and joins those that overlap.
func joined(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return a.first.Compare(b.first) })
	out := spans[:0]
	for _, s := range spans {
		if n := len(out); n > 0 && s.first.Compare(out[n-1].last) <= 0 {
			if s.last.Compare(out[n-1].last) > 0 {
				out[n-1].last = s.last
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// Contains reports whether the address is in the set. IPv4 written as IPv6 is IPv4; a zone does not matter.
func (t *Trust) Contains(a netip.Addr) bool {
	if t == nil || !a.IsValid() {
		return false
	}
	a = a.Unmap().WithZone("")
	spans := t.v4
	if a.Is6() {
		spans = t.v6
	}
	low, high := 0, len(spans)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if spans[mid].last.Less(a) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < len(spans) && !a.Less(spans[low].first)
}
