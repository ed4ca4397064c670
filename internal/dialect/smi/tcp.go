package smi

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// serveConnections adds a TCP listener for a port of a service that does not carry HTTP. Connections name no host, so the
// first service has the port.
func (t *translator) serveConnections(s *corev1.Service, port int32, ref model.Ref) {
	if taken := t.taken(port); taken != "" {
		t.report(ref, resource.Problem(codePortTaken, "PortTaken", ref.Field,
			fmt.Sprintf("port %d cannot be served as TCP: listener %s has it", port, taken), "change one of the two ports"))
		return
	}
	name := fmt.Sprintf("services/%d", port)
	t.cfg.Listeners = append(t.cfg.Listeners, model.Listener{Name: name, Ref: ref, Port: port, Protocol: model.TCP})
	route := model.Route{
		Ref: ref, Kind: model.RouteTCP, Attachments: []model.Attachment{{Listener: name, Hostnames: []string{"*"}}},
		Rules: []model.Rule{{
			Ref: ref, Name: fmt.Sprint(port),
			Backends: []model.Backend{{Ref: ref, Service: model.ServiceName(s.Namespace, s.Name, port), Weight: 1}},
		}},
	}
	if !s.CreationTimestamp.IsZero() {
		route.Created = s.CreationTimestamp.UTC()
	}
	t.cfg.Routes = append(t.cfg.Routes, route)
}

// taken is the listener that has a port, of whatever protocol; empty if there is none.
func (t *translator) taken(port int32) (first string) {
	for _, g := range t.options.Gateways {
		for _, l := range g.Spec.Listeners {
			if int32(l.Port) == port {
				if name := g.Namespace + "/" + g.Name + "/" + string(l.Name); first == "" || name < first {
					first = name
				}
			}
		}
	}
	if i := slices.IndexFunc(t.cfg.Listeners, func(l model.Listener) bool { return l.Port == port }); i >= 0 && first == "" {
		return t.cfg.Listeners[i].Name
	}
	return first
}

// connections reports whether a port of a Service carries connections that are not HTTP.
func (t *translator) connections(at key, port int64) bool {
	s := t.set.Service(at.namespace, at.name)
	return s != nil && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		_, requests := resource.ParseAppProtocol(p.AppProtocol)
		return int64(p.Port) == port && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) && !requests
	})
}
