package balancer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Class is the loadBalancerClass of Services that are ours; those without a class are ours too.
const Class = "weir.invalid/node"

// Pool is the range of addresses that can be given. Services that ask for none get those up to Last; those after it, up to Asked,
// are only for Services that ask for one.
type Pool struct{ First, Last, Asked netip.Addr }

// decision is what becomes of one Service.
type decision struct {
	service *corev1.Service
	// address that it has from now on; invalid if none.
	address netip.Addr
	// reason and message say why it has none.
	reason, message string
}

// The reasons for which a Service has no address, of its events.
const (
	reasonNotInPool = "AddressNotInPool"
	reasonTaken     = "AddressTaken"
	reasonExhausted = "PoolExhausted"
	reasonAssigned  = "AddressAssigned"
)

// assign decides about all Services. What a Service has, which the caller knows, it keeps as long as it asks for nothing else; older
// ones come first. Addresses that nobody asked for are taken in turn, starting after last, so that one that was given back is not used again at once.
// The address given in turn last is returned too.
func (p Pool) assign(services []*corev1.Service, has func(*corev1.Service) netip.Addr, last netip.Addr) ([]decision, netip.Addr) {
	services = slices.DeleteFunc(slices.Clone(services), func(s *corev1.Service) bool { return !ours(s) })
	slices.SortFunc(services, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(key(a), key(b)))
	})
	decisions := make([]decision, len(services))
	owner := make(map[netip.Addr]string)
	for i, s := range services {
		decisions[i].service = s
		if a := has(s); a.IsValid() && p.holds(a) && owner[a] == "" && (s.Spec.LoadBalancerIP == "" || s.Spec.LoadBalancerIP == a.String()) {
			decisions[i].address = a
			owner[a] = key(s)
		}
	}
	for i, s := range services {
		d := &decisions[i]
		if d.address.IsValid() {
			continue
		}
		if s.Spec.LoadBalancerIP != "" {
			d.address, d.reason, d.message = p.asked(s.Spec.LoadBalancerIP, owner)
		} else if d.address = p.next(last, owner); d.address.IsValid() {
			last = d.address
		} else {
			d.reason, d.message = reasonExhausted, fmt.Sprintf("all addresses from %s to %s are taken", p.First, p.Last)
		}
		if d.address.IsValid() {
			owner[d.address] = key(s)
		}
	}
	return decisions, last
}

// asked gives an address that a Service names.
func (p Pool) asked(text string, owner map[netip.Addr]string) (address netip.Addr, reason, message string) {
	address, err := netip.ParseAddr(text)
	if err != nil || !p.holds(address) {
		return netip.Addr{}, reasonNotInPool, fmt.Sprintf("spec.loadBalancerIP: %s is not one of the addresses from %s to %s", text, p.First, p.Asked)
	}
	if other := owner[address]; other != "" {
		return netip.Addr{}, reasonTaken, fmt.Sprintf("spec.loadBalancerIP: Service %s has %s", other, address)
	}
	return address, "", ""
}

// next is the first free address after last; invalid if there is none.
func (p Pool) next(last netip.Addr, owner map[netip.Addr]string) netip.Addr {
	start := p.First
	if last.IsValid() && last.Less(p.Last) {
		start = last.Next()
	}
	for at := start; ; {
		if owner[at] == "" {
			return at
		}
		if at = at.Next(); p.Last.Less(at) {
			at = p.First
		}
		if at == start {
			return netip.Addr{}
		}
	}
}

// holds is true for addresses of the pool.
func (p Pool) holds(a netip.Addr) bool { return !a.Less(p.First) && !p.Asked.Less(a) }

func ours(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && (s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass == Class)
}

// current is the address in the Service's status; invalid if there is none.
func current(s *corev1.Service) netip.Addr {
	if len(s.Status.LoadBalancer.Ingress) != 1 {
		return netip.Addr{}
	}
	a, _ := netip.ParseAddr(s.Status.LoadBalancer.Ingress[0].IP)
	return a
}

func key(s *corev1.Service) string { return s.Namespace + "/" + s.Name }
