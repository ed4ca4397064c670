package sidecar

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Routes are those whose parents are Services, by the model's name of the port and the namespace of the clients.
type Routes map[string]map[string][]model.ServiceRoute

// NewRoutes puts routes in order.
func NewRoutes(all []model.ServiceRoute) Routes {
	r := Routes{}
	for _, x := range all {
		if r[x.Service] == nil {
			r[x.Service] = map[string][]model.ServiceRoute{}
		}
		r[x.Service][x.Clients] = append(r[x.Service][x.Clients], x)
	}
	return r
}

// of returns the routes for what clients of a namespace send to a port of a Service: those of consumers there, else the producers'.
func (r Routes) of(service, namespace string) []model.ServiceRoute {
	all := r[service]
	if r.own(service, namespace) {
		return all[namespace]
	}
	return all[""]
}

// Differs reports whether clients of a namespace have routes of their own for some Service.
func (r Routes) Differs(namespace string) bool {
	for service := range r {
		if r.own(service, namespace) {
			return true
		}
	}
	return false
}

func (r Routes) own(service, namespace string) bool {
	return namespace != "" && len(r[service][namespace]) > 0
}

// Clients is a namespace if its clients have routes of their own for what is at an address and port (To). Else it is empty, and
// stands for all that have none.
func (x *Index) Clients(namespace string, to netip.AddrPort) string {
	if len(x.routes) == 0 || !x.routes.own(x.led.read().to[to].service, namespace) {
		return ""
	}
	return namespace
}

// serve adds a listener for what is sent to a Service with the routes that users wrote for it. It returns false if there are none.
func (t *translator) serve(l model.Listener, d destination, at []model.Attachment) bool {
	all := t.routes.of(d.service, t.clients)
	if len(all) == 0 {
		return false
	}
	requests := all[0].Route.Kind.Requests() // of one port all carry the same, or two kinds of requests
	l.Protocol = model.HTTP
	if !requests {
		l.Protocol = model.TCP
	}
	// Where nobody says that all is HTTP, what is none passes as without routes.
	l.Detect = requests && d.protocol == unknown && !slices.ContainsFunc(all, func(r model.ServiceRoute) bool { return r.Only })
	t.cfg.Listeners = append(t.cfg.Listeners, l)
	for _, r := range all {
		out := r.Route
		out.ClientCertificate, out.Attachments = Identity, at
		out.Ref.Field = l.Name // a route of several addresses is several routes
		t.cfg.Routes = append(t.cfg.Routes, out)
	}
	if l.Detect {
		out := model.Route{Ref: d.ref, Kind: model.RouteTCP, ClientCertificate: Identity, Attachments: at}
		out.Rules = []model.Rule{t.rule(d.ref, model.RouteTCP, d.service)}
		t.cfg.Routes = append(t.cfg.Routes, out)
	}
	return true
}

// ToService returns a listener for what clients of a namespace send to a port of a Service, by its place in spec.ports, with its
// routes: for requests, or for connections. It has no address. Services that these refer to are needed beside them.
func (x *Index) ToService(clients string, s *corev1.Service, port int, requests bool) model.Config {
	t := &translator{set: x.set, routes: x.routes, clients: clients}
	p := &s.Spec.Ports[port]
	d := destination{service: model.ServiceName(s.Namespace, s.Name, p.Port), protocol: resource.ServedProtocol(p), ref: portRef(s, port)}
	t.lead(d)
	l := &t.cfg.Listeners[0]
	if l.Detect {
		l.Detect = false
		if !requests {
			l.Protocol = model.TCP
		}
		t.cfg.Routes = slices.DeleteFunc(t.cfg.Routes, func(r model.Route) bool { return r.Kind.Requests() != requests })
	}
	l.Port, l.Redirect = p.Port, ""
	return t.cfg
}

// Routed reports whether users wrote routes for what clients of a namespace send to a port of a Service, by the model's name.
func (x *Index) Routed(clients, service string) bool { return len(x.routes.of(service, clients)) > 0 }
