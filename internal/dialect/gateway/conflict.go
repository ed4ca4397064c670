package gateway

import (
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

type socket struct {
	address string
	port    gatewayv1.PortNumber
}

// findConflicts marks the listeners that are not distinct. Within a Gateway, among listeners on one port, those whose
// protocol is not everybody's and those whose hostname is somebody else's are all left out: none is picked as the winner
// (GatewaySpec.listeners). Gateways that share one data plane may also be in the way of each other: then the older Gateway
// keeps what it has, as ListenerSets settle it (GEP-1713).
func (t *translator) findConflicts() {
	for _, g := range t.order {
		for i, l := range g.listeners {
			for _, other := range g.listeners[:i] {
				if l.contends() && other.contends() && l.spec.Port == other.spec.Port {
					l.compare(other)
					other.compare(l)
				}
			}
		}
	}
	if t.Separate {
		return
	}
	winners := map[socket][]*listener{}
	for _, g := range t.order {
		for _, l := range g.listeners {
			if !l.contends() {
				continue
			}
			for _, a := range g.addresses {
				for _, older := range winners[socket{a, l.spec.Port}] {
					if older.gateway != g {
						l.compare(older)
					}
				}
			}
			if l.conflict != nil {
				continue
			}
			for _, a := range g.addresses {
				s := socket{a, l.spec.Port}
				winners[s] = append(winners[s], l)
			}
		}
	}
	t.findUnavailable()
}

// contends is true of listeners that could be in conflict. What else is wrong with a listener has no influence on that.
func (l *listener) contends() bool {
	return l.gateway.served() && (l.notAccepted == nil || l.notAccepted.reason != "UnsupportedProtocol")
}

// compare marks l if it is in conflict with other, which is on the same port.
func (l *listener) compare(other *listener) {
	if other.spec.Protocol != l.spec.Protocol {
		l.clash("ProtocolConflict", ".protocol", fmt.Sprintf("port %d has protocol %s for listener %s of Gateway %s",
			l.spec.Port, other.spec.Protocol, other.spec.Name, other.gateway))
	} else if other.hostname == l.hostname {
		what := "hostname " + l.hostname
		if l.hostname == "" {
			what = "no hostname"
		}
		l.clash("HostnameConflict", ".hostname", fmt.Sprintf("listener %s of Gateway %s has %s on port %d too",
			other.spec.Name, other.gateway, what, l.spec.Port))
	}
}

// clash records a conflict; of several the first in a fixed order is told.
func (l *listener) clash(reason, field, message string) {
	p := problem{codeConflict, reason, l.field + field, message, "give each listener its own hostname or port"}
	// A conflict of protocols is the graver one; "P" sorts after "H".
	if l.conflict == nil || reason > l.conflict.reason || reason == l.conflict.reason && message < l.conflict.message {
		l.conflict = &p
	}
}

// findUnavailable settles ports that one Gateway binds on all addresses and another on one of its own, which the
// kernel refuses: the older Gateway has the port.
func (t *translator) findUnavailable() {
	owners := map[gatewayv1.PortNumber]map[string]*gateway{}
	for _, g := range t.order {
		if !g.served() {
			continue
		}
		for _, l := range g.listeners {
			if l.notAccepted != nil || l.conflict != nil {
				continue
			}
			port := l.spec.Port
			for _, a := range g.addresses {
				for taken, owner := range owners[port] {
					if taken == a || !everywhere(taken) && !everywhere(a) || owner == g {
						continue
					}
					p := &problem{codePortUnavailable, "PortUnavailable", l.field + ".port",
						fmt.Sprintf("Gateway %s has port %d on %s, which shuts out %s", owner, port, addressName(taken), addressName(a)),
						"use another port, or give both Gateways IP addresses"}
					if l.notAccepted == nil || p.message < l.notAccepted.message {
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

// findOverlaps marks HTTPS listeners on one port whose hostnames overlap (condition OverlappingTLSConfig).
func (t *translator) findOverlaps() {
	ports := map[gatewayv1.PortNumber][]*listener{}
	for _, g := range t.order {
		for _, l := range g.listeners {
			if l.tls != nil && l.accepted() {
				ports[l.spec.Port] = append(ports[l.spec.Port], l)
			}
		}
	}
	for _, all := range ports {
		for _, l := range all {
			for _, other := range all {
				if other == l || !t.meetClients(l.gateway, other.gateway) {
					continue
				}
				if _, ok := intersect(l.hostname, other.hostname); ok {
					l.overlaps = append(l.overlaps, fmt.Sprintf("%s of Gateway %s", other.spec.Name, other.gateway))
				}
			}
		}
	}
	for _, g := range t.order {
		for _, l := range g.listeners {
			if len(l.overlaps) > 0 {
				slices.Sort(l.overlaps)
				t.report(g.ref, problem{codeOverlap, "", l.field + ".hostname", "the hostname overlaps with listener " +
					strings.Join(l.overlaps, ", "), "expect 421 for clients that reuse a connection for another host"})
			}
		}
	}
}

// meetClients says whether one connection may reach listeners of both Gateways.
func (t *translator) meetClients(a, b *gateway) bool {
	return a == b || !t.Separate && slices.ContainsFunc(a.addresses, func(x string) bool { return slices.Contains(b.addresses, x) })
}
