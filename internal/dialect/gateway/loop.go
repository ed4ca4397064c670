package gateway

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/resource"
)

// loops are the ways by which a connection to a TCP listener would come back to where it was accepted, without end: nothing in it tells
// the proxy that it has been there. Requests count their hops and need no such care.
type loops struct {
	// leads are the Gateways to whose TCP listeners the ports of Services lead; sorted.
	leads map[portOf][]key
	// back are the pairs of Gateways of which the second leads to the first, over others perhaps, or both are one.
	back map[[2]key]bool
}

// portOf is a port of a Service.
type portOf struct {
	service key
	number  int32
}

func (l loops) equal(o loops) bool {
	return maps.EqualFunc(l.leads, o.leads, slices.Equal[[]key]) && maps.Equal(l.back, o.back)
}

// sockets are where the TCP listeners of Gateways are reached, as far as objects tell.
type sockets struct {
	ports    map[key]map[int32]bool // of TCP listeners
	at       map[netip.Addr][]key
	names    map[string][]key // by host name, in lower case, without the last dot
	services map[key]key      // the Gateways' own Services
	local    []key            // those that listen on all addresses of the machine
}

func (s *sockets) addAddress(g key, address string) {
	if a, err := netip.ParseAddr(address); err == nil {
		a = a.Unmap().WithZone("")
		s.at[a] = append(s.at[a], g)
	} else if address != "" {
		name := strings.TrimSuffix(strings.ToLower(address), ".")
		s.names[name] = append(s.names[name], g)
	}
}

// readSockets finds them. With proxies for each Gateway it is the Services of a Gateway, with their addresses and those of the pods behind
// them; otherwise the addresses that the Gateway binds.
func (b *basis) readSockets(set *resource.Set, separate bool) *sockets {
	s := &sockets{ports: map[key]map[int32]bool{}, at: map[netip.Addr][]key{}, names: map[string][]key{}, services: map[key]key{}}
	for _, g := range b.order {
		for _, l := range g.listeners {
			if l.programmed() && !l.protocol.Requests() {
				if s.ports[g.key] == nil {
					s.ports[g.key] = map[int32]bool{}
				}
				s.ports[g.key][l.spec.Port] = true
			}
		}
		if s.ports[g.key] == nil {
			continue
		}
		if !separate {
			for _, a := range g.addresses {
				if a == "" {
					s.local = append(s.local, g.key)
				}
				s.addAddress(g.key, a)
			}
			continue
		}
		for _, a := range g.obj.Spec.Addresses {
			s.addAddress(g.key, a.Value)
		}
		for _, a := range g.obj.Status.Addresses {
			s.addAddress(g.key, a.Value)
		}
	}
	if !separate || len(s.ports) == 0 {
		return s
	}
	for _, service := range set.Services {
		g, own := gatewayOfService(service)
		if !own || s.ports[g] == nil {
			continue
		}
		s.services[key{service.Namespace, service.Name}] = g
		for _, a := range slices.Concat(service.Spec.ClusterIPs, []string{service.Spec.ClusterIP}, service.Spec.ExternalIPs) {
			s.addAddress(g, a)
		}
		for _, i := range service.Status.LoadBalancer.Ingress {
			s.addAddress(g, i.IP)
			s.addAddress(g, i.Hostname)
		}
		for _, slice := range set.EndpointSlicesOf(service.Namespace, service.Name) {
			for _, e := range slice.Endpoints {
				for _, a := range e.Addresses {
					s.addAddress(g, a)
				}
			}
		}
	}
	return s
}

// gatewayOfService is the Gateway that a Service leads to the proxies of: it is the Service's owner.
func gatewayOfService(s *corev1.Service) (key, bool) {
	for _, o := range s.OwnerReferences {
		if group, _, _ := strings.Cut(o.APIVersion, "/"); o.Kind == "Gateway" && group == gatewayv1.GroupName {
			return key{s.Namespace, o.Name}, true
		}
	}
	return key{}, false
}

// to returns the Gateways that have a TCP listener at an address and port.
func (s *sockets) to(host string, number int32) (all []key) {
	candidates := s.names[strings.TrimSuffix(strings.ToLower(host), ".")]
	a, err := netip.ParseAddr(host)
	if err == nil {
		a = a.Unmap().WithZone("")
		candidates = s.at[a]
	}
	if err == nil && (a.IsLoopback() || a.IsUnspecified()) || strings.EqualFold(host, "localhost") {
		candidates = slices.Concat(candidates, s.local)
	}
	for _, g := range candidates {
		if s.ports[g][number] {
			all = append(all, g)
		}
	}
	return all
}

// ofService returns the Gateways to whose TCP listeners a port of a Service leads.
func (s *sockets) ofService(set *resource.Set, at portOf) (all []key) {
	service := set.Service(at.service.namespace, at.service.name)
	if service == nil {
		return nil
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == at.number })
	if i < 0 {
		return nil
	}
	port := service.Spec.Ports[i]
	if g, own := s.services[at.service]; own && s.ports[g][at.number] {
		return []key{g}
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		number := port.Port
		if port.TargetPort.IntVal > 0 {
			number = port.TargetPort.IntVal
		}
		host := strings.TrimSuffix(strings.ToLower(service.Spec.ExternalName), ".")
		all = s.to(host, number)
		// The name of a Service in a cluster is NAME.NAMESPACE.svc, with the cluster's domain behind.
		if parts := strings.SplitN(host, ".", 4); len(parts) > 2 && parts[2] == "svc" {
			if g, own := s.services[key{parts[1], parts[0]}]; own && s.ports[g][number] {
				all = append(all, g)
			}
		}
	}
	for _, slice := range set.EndpointSlicesOf(at.service.namespace, at.service.name) {
		number, ok := resource.EndpointPort(slice, port)
		if !ok {
			continue
		}
		for _, e := range slice.Endpoints {
			for _, a := range e.Addresses {
				all = append(all, s.to(a, number)...)
			}
		}
	}
	slices.SortFunc(all, func(a, b key) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

// readLoops finds where the TCPRoutes of a set lead back. Of routes it reads only where they come from and lead to.
func (b *basis) readLoops(set *resource.Set, separate bool) loops {
	l := loops{leads: map[portOf][]key{}, back: map[[2]key]bool{}}
	if len(set.TCPRoutes) == 0 {
		return l
	}
	s := b.readSockets(set, separate)
	if len(s.ports) == 0 {
		return l
	}
	parents := make(map[key][]key, len(set.TCPRoutes))
	for _, r := range set.TCPRoutes {
		parents[key{r.Namespace, r.Name}] = b.gatewaysOf(&r.Spec.CommonRouteSpec, r.Namespace)
	}
	next := map[key]map[key]bool{}
	for u := range set.RouteUses() {
		if !u.Connections {
			continue
		}
		to := l.read(b, s, set, portOf{key{u.Namespace, u.Service}, u.Port})
		for _, from := range parents[key{u.By.Namespace, u.By.Name}] {
			for _, g := range to {
				if next[from] == nil {
					next[from] = map[key]bool{}
				}
				next[from][g] = true
			}
		}
	}
	for from, all := range next {
		for to := range all {
			if !separate || leadsTo(next, to, from, map[key]bool{}) {
				l.back[[2]key{from, to}] = true // one process relays to none of its own listeners
			}
		}
	}
	return l
}

// read notes where a port of a Service leads, by itself and by what TrafficSplits make of it.
func (l loops) read(b *basis, s *sockets, set *resource.Set, at portOf) []key {
	if to, known := l.leads[at]; known {
		return to
	}
	to := s.ofService(set, at)
	for _, leaf := range b.leaves[at.service] {
		to = append(to, s.ofService(set, portOf{leaf, at.number})...)
	}
	slices.SortFunc(to, func(a, b key) int { return strings.Compare(a.String(), b.String()) })
	to = slices.Compact(to)
	l.leads[at] = to
	return to
}

func leadsTo(next map[key]map[key]bool, from, to key, seen map[key]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	for n := range next[from] {
		if leadsTo(next, n, to, seen) {
			return true
		}
	}
	return false
}

// gatewaysOf are the Gateways that a route of a namespace names as parents, by their ListenerSets too.
func (b *basis) gatewaysOf(spec *gatewayv1.CommonRouteSpec, namespace string) (all []key) {
	for _, ref := range spec.ParentRefs {
		named := resource.ParentRefOf(ref, namespace)
		at := key{named.Namespace, named.Name}
		switch {
		case named.Group != gatewayv1.GroupName:
		case named.Kind == "Gateway" && b.gateways[at] != nil:
			all = append(all, at)
		case named.Kind == listenerSetKind && b.sets[at] != nil:
			all = append(all, b.sets[at].gateway.key)
		}
	}
	if spec.UseDefaultGateways == gatewayv1.GatewayDefaultScopeAll {
		for _, g := range b.order {
			if g.obj.Spec.DefaultScope == gatewayv1.GatewayDefaultScopeAll {
				all = append(all, g.key)
			}
		}
	}
	return all
}

// comesBack is what is wrong with a backend of a TCPRoute that leads back to the route's own Gateway; nil if it does not.
func (t *translator) comesBack(r *route, at portOf, field string) *resource.Finding {
	to := t.loops.leads[at]
	if len(to) == 0 {
		return nil
	}
	for _, from := range t.gatewaysOf(r.spec, r.namespace) {
		for _, g := range to {
			if !t.loops.back[[2]key{from, g}] {
				continue
			}
			what := "a TCP listener of Gateway " + g.String()
			if from != g {
				what += ", which leads back to Gateway " + from.String() + " or is served by the same process"
			}
			return new(resource.Problem(codeComesBack, "LeadsBack", field,
				fmt.Sprintf("port %d of Service %s leads to %s: connections would come back again and again", at.number, at.service, what),
				"name the Service of the servers themselves"))
		}
	}
	return nil
}
