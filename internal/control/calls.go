package control

import (
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
