package control

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/model"
)

// Calls makes configurations for what pods send to Services, as sidecars have them, for those who ask what would become of it.
type Calls struct{ sidecars *Sidecars }

// To returns what becomes of what clients of a namespace send to a port of a Service, by its place in spec.ports, of requests or of
// connections: a listener with the Service's port and the routes for it. written reports whether users wrote these routes; else they
// lead to the Service, where splits may divide them.
func (c *Calls) To(clients string, s *corev1.Service, port int, requests bool) (config *model.Config, written bool) {
	of := c.sidecars
	config, _ = of.complete(of.supply(), "", of.index.ToService(clients, s, port, requests))
	return config, of.index.Routed(clients, model.ServiceName(s.Namespace, s.Name, s.Spec.Ports[port].Port))
}

// Call is what clients of a namespace send to a port of a Service. Clients is empty for those of all namespaces without routes of
// their own.
type Call struct{ Namespace, Service, Port, Clients string }

// String is how people are told of it.
func (c Call) String() string {
	text := c.Namespace + "/" + c.Service + ":" + c.Port
	if c.Clients != "" {
		text += " from " + c.Clients
	}
	return text
}

// Written are those for which users wrote routes, in order.
func (c *Calls) Written() (all []Call) {
	for service, by := range c.sidecars.routes {
		namespace, rest, _ := strings.Cut(service, "/")
		name, port, _ := strings.Cut(rest, ":")
		for clients := range by {
			all = append(all, Call{namespace, name, port, clients})
		}
	}
	slices.SortFunc(all, func(a, b Call) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// Of returns what becomes of it, of requests and of connections; an empty configuration if there is no such Service.
func (c *Calls) Of(call Call) (requests, connections *model.Config) {
	requests, connections = &model.Config{}, &model.Config{}
	s := c.sidecars.set.Service(call.Namespace, call.Service)
	if s == nil {
		return requests, connections
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; strconv.Itoa(int(p.Port)) == call.Port && p.Protocol != corev1.ProtocolUDP {
			if config, _ := c.To(call.Clients, s, i, true); config.Listeners[0].Protocol.Requests() {
				requests = config
			}
			if config, _ := c.To(call.Clients, s, i, false); !config.Listeners[0].Protocol.Requests() {
				connections = config
			}
			break
		}
	}
	return requests, connections
}
