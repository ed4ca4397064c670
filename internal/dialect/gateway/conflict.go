package gateway

import (
	"fmt"

	"github.com/weirmesh/weir/internal/resource"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// socket is a port on an address; with the Gateway's name if each has proxies of its own.
type socket struct {
	gateway key
	address string
	port    gatewayv1.PortNumber
}

func (t *translator) socket(g *gateway, address string, port gatewayv1.PortNumber) socket {
	s := socket{address: address, port: port}
	if t.ProxyPerGateway {
		s.gateway = g.key
	}
	return s
}

// holders are the listeners that have a socket, which all have one protocol.
type holders struct {
	first  *listener
	byHost map[string]*listener
}

// findConflicts marks the listeners that are not distinct. Within one object, listeners on one port with different
// protocols, or with the same hostname, are all left out: none is picked as the winner (GatewaySpec.listeners). Between
// objects the first one has the port or hostname: a Gateway precedes its ListenerSets, and these are ordered by age
// (ListenerSetSpec.listeners). Gateways that share one data plane can also conflict: then the older one comes first,
// with all its ListenerSets. A listener that serves nobody in any case, for example because its certificate is missing,
// takes nothing from other objects.
func (t *translator) findConflicts() {
	taken := map[socket]*holders{}
	for _, g := range t.order {
		t.settle(g, g.ownListeners, taken)
		for _, s := range g.sets {
			t.settle(g, s.listeners, taken)
		}
	}
	if !t.ProxyPerGateway {
		t.findUnavailable()
	}
}

// settle marks the listeners of one object that conflict with what is taken, then those that conflict with each other,
// and adds the others to what is taken.
func (t *translator) settle(g *gateway, object []*listener, taken map[socket]*holders) {
	var left []*listener
	for _, l := range object {
		if l.contends() {
			if t.compareTaken(l, taken); l.conflict == nil {
				left = append(left, l)
			}
		}
	}
	for i, l := range left {
		for _, other := range left[:i] {
			if l.spec.Port == other.spec.Port {
				l.compare(other)
				other.compare(l)
			}
		}
	}
	for _, l := range left {
		if l.conflict != nil || l.dead() {
			continue
		}
		for _, a := range g.addresses {
			s := t.socket(g, a, l.spec.Port)
			if taken[s] == nil {
				taken[s] = &holders{first: l, byHost: map[string]*listener{}}
			}
			taken[s].byHost[l.hostname] = l
		}
	}
}

func (t *translator) compareTaken(l *listener, taken map[socket]*holders) {
	for _, a := range l.gateway.addresses {
		h := taken[t.socket(l.gateway, a, l.spec.Port)]
		if h == nil {
			continue
		}
		l.compare(h.first)
		if other := h.byHost[l.hostname]; other != nil {
			l.compare(other)
		}
	}
}

// dead is true of listeners that serve nobody, whatever happens to others. They take no port from others.
func (l *listener) dead() bool { return l.unusable || l.notAccepted != nil }

// contends is true of listeners that can be in conflict. Other problems of a listener do not matter.
func (l *listener) contends() bool {
	return l.gateway.served() && (l.notAccepted == nil || l.notAccepted.Reason != "UnsupportedProtocol")
}

// compare marks l if it is in conflict with other, which is on the same port.
func (l *listener) compare(other *listener) {
	if other.spec.Protocol != l.spec.Protocol {
		l.clash("ProtocolConflict", ".protocol", fmt.Sprintf("port %d has protocol %s for listener %s",
			l.spec.Port, other.spec.Protocol, l.discreet(other)))
	} else if !l.sameFront(other) {
		l.clash("ProtocolConflict", ".port", fmt.Sprintf("port %d is listener %s's, and the Gateways differ in the annotations %s and %s, which must be the same on one port",
			l.spec.Port, l.discreet(other), proxyProtocol, trustedProxies))
	} else if other.hostname == l.hostname {
		what := "hostname " + l.hostname
		if l.hostname == "" {
			what = "no hostname"
		}
		l.clash("HostnameConflict", ".hostname", fmt.Sprintf("listener %s has %s on port %d too", l.discreet(other), what, l.spec.Port))
	}
}

// discreet names another listener, except one of a ListenerSet in a namespace that the reader may not be allowed to see
// (ListenerSetSpec.listeners).
func (l *listener) discreet(other *listener) string {
	if other.set != nil && other.set.namespace != l.holder().Namespace {
		return fmt.Sprintf("of another ListenerSet of Gateway %s", other.gateway)
	}
	return other.String()
}

// clash records a conflict; of several the first in a fixed order is told.
func (l *listener) clash(reason, field, message string) {
	p := resource.Problem(codeConflict, reason, l.field+field, message, "give each listener its own hostname or port")
	// A conflict of protocols is the graver one; "P" sorts after "H".
	if l.conflict == nil || reason > l.conflict.Reason || reason == l.conflict.Reason && message < l.conflict.Message {
		l.conflict = &p
	}
}

// findUnavailable handles ports that one Gateway binds on all addresses and another on a single address, which the
// kernel refuses: the older Gateway has the port.
func (t *translator) findUnavailable() {
	owners := map[gatewayv1.PortNumber]map[string]*gateway{}
	for _, g := range t.order {
		if !g.served() {
			continue
		}
		for _, l := range g.listeners {
			if l.conflict != nil || l.dead() {
				continue
			}
			port := l.spec.Port
			for _, a := range g.addresses {
				for taken, owner := range owners[port] {
					if taken == a || !everywhere(taken) && !everywhere(a) || owner == g {
						continue
					}
					p := new(resource.Problem(codePortUnavailable, "PortUnavailable", l.field+".port",
						fmt.Sprintf("Gateway %s has port %d on %s, which shuts out %s", owner, port, addressName(taken), addressName(a)),
						"use another port, or give both Gateways IP addresses"))
					if l.notAccepted == nil || p.Message < l.notAccepted.Message {
						l.notAccepted = p
					}
				}
			}
			if l.notAccepted != nil {
				continue
			}
			if owners[port] == nil {
				owners[port] = map[string]*gateway{}
			}
			for _, a := range g.addresses {
				if owners[port][a] == nil {
					owners[port][a] = g
				}
			}
		}
	}
}

func everywhere(address string) bool { return address == "" || address == "0.0.0.0" || address == "::" }

func addressName(address string) string {
	if address == "" {
		return "all addresses"
	}
	return "address " + address
}
