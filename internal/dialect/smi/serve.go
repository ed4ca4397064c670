package smi

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// none is the value of Options.Serve for no Service.
var none = []string{"none"}

// serve opens the ports of services to clients that call them by their host names, as they would without any proxy.
func (t *translator) serve() {
	t.served = map[key]bool{}
	var services []*corev1.Service
	for _, at := range t.toServe() {
		s := t.set.Service(at.namespace, at.name)
		if s == nil {
			t.report(model.Ref{Kind: "Service", Namespace: at.namespace, Name: at.name}, resource.Problem(codeServeNotFound, "ServiceNotFound", "",
				"the Service to serve by its host names does not exist", "create it or correct the name"))
			continue
		}
		services = append(services, s)
		t.served[at] = true
	}
	short := map[string]key{} // the service with each bare name
	for _, s := range services {
		if first, ok := short[s.Name]; !ok || s.Namespace == "default" {
			short[s.Name] = key{s.Namespace, s.Name}
		} else {
			t.report(serviceRef(s, ""), resource.Problem(codeShortName, "ShortNameTaken", "metadata.name",
				fmt.Sprintf("the host name %s means Service %s here", s.Name, first), fmt.Sprintf("call this one %s.%s", s.Name, s.Namespace)))
		}
	}
	for _, s := range services {
		at := key{s.Namespace, s.Name}
		var domains []string
		for _, split := range t.roots[at] {
			if !slices.Contains(append(domains, clusterDomain), split.domain) {
				domains = append(domains, split.domain)
			}
		}
		names := hostnames(at, short[s.Name] == at, domains...)
		for i := range s.Spec.Ports {
			t.servePort(s, i, names)
		}
	}
}

// byDefault says that nobody chose the services to serve: the roots of the splits are.
func (t *translator) byDefault() bool {
	return len(t.options.Serve) == 0 && len(t.options.Gateways) == 0
}

// toServe lists the services to serve, sorted.
func (t *translator) toServe() []key {
	var all []key
	switch {
	case slices.Equal(t.options.Serve, none):
		return nil
	case len(t.options.Serve) > 0:
		for _, text := range t.options.Serve {
			namespace, name, found := strings.Cut(text, "/")
			if !found {
				namespace, name = "default", text
			}
			all = append(all, key{namespace, name})
		}
	case t.byDefault():
		for at := range t.roots {
			all = append(all, at)
		}
		for at := range t.before {
			if s := t.set.Service(at.namespace, at.name); s != nil && len(t.roots[at]) == 0 {
				all = append(all, at)
				t.report(serviceRef(s, ""), resource.Problem(codeServedOn, "ServedOn", "",
					fmt.Sprintf("no TrafficSplit has Service %s as its root any more: it is still served, by its own endpoints", at),
					fmt.Sprintf("to keep it after a restart, start weir with --serve %s; to end it, delete the Service or restart weir", at)))
			}
		}
	}
	slices.SortFunc(all, func(a, b key) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

func serviceRef(s *corev1.Service, field string) model.Ref {
	return model.Ref{Kind: "Service", Namespace: s.Namespace, Name: s.Name, Field: field}
}

// servePort adds a route to the service for its host names on the listener of the port.
func (t *translator) servePort(s *corev1.Service, i int, names []string) {
	port := s.Spec.Ports[i]
	if port.Protocol != "" && port.Protocol != corev1.ProtocolTCP {
		return
	}
	ref := serviceRef(s, fmt.Sprintf("spec.ports[%d]", i))
	_, requests := resource.ParseAppProtocol(port.AppProtocol)
	if !requests {
		t.serveConnections(s, port.Port, ref)
		return
	}
	listener, taken := t.listener(port.Port, ref)
	if taken != "" {
		t.report(ref, resource.Problem(codePortTaken, "PortTaken", ref.Field,
			fmt.Sprintf("port %d cannot be served by host name: listener %s has it for another protocol", port.Port, taken), "change one of the two ports"))
		return
	}
	route := model.Route{
		Ref: ref, Attachments: []model.Attachment{{Listener: listener, Hostnames: names}},
		Rules: []model.Rule{{
			Ref: ref, Name: fmt.Sprint(port.Port),
			Matches:  []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}},
			Backends: []model.Backend{{Ref: ref, Service: model.ServiceName(s.Namespace, s.Name, port.Port), Weight: 1}},
		}},
	}
	if !s.CreationTimestamp.IsZero() {
		route.Created = s.CreationTimestamp.UTC()
	}
	t.cfg.Routes = append(t.cfg.Routes, route)
}

// listener returns the name of the listener for a port, one of a Gateway if that accepts any host there; or the
// listener that has the port for another protocol.
func (t *translator) listener(port int32, ref model.Ref) (name, taken string) {
	for _, g := range t.options.Gateways {
		for _, l := range g.Spec.Listeners {
			if int32(l.Port) != port {
				continue
			}
			of := g.Namespace + "/" + g.Name + "/" + string(l.Name)
			if l.Protocol != gatewayv1.HTTPProtocolType {
				return "", of
			}
			if (l.Hostname == nil || *l.Hostname == "") && len(g.Spec.Addresses) == 0 {
				return of, ""
			}
		}
	}
	name = fmt.Sprintf("services/%d", port)
	switch i := slices.IndexFunc(t.cfg.Listeners, func(l model.Listener) bool { return l.Name == name }); {
	case i < 0:
		t.cfg.Listeners = append(t.cfg.Listeners, model.Listener{Name: name, Ref: ref, Port: port, Protocol: model.HTTP})
	case t.cfg.Listeners[i].Protocol != model.HTTP:
		return "", name
	}
	return name, ""
}

// unused reports roots without traffic.
func (t *translator) unused() {
	if len(t.splits) == 0 || t.options.Partial && len(t.set.HTTPRoutes)+len(t.set.GRPCRoutes)+len(t.set.TCPRoutes) == 0 {
		return // of a part of a cluster's objects the routes may be elsewhere
	}
	serve := ", or serve it by its host names with --serve %s"
	if slices.Equal(t.options.Serve, none) {
		serve = "%.0s"
	}
	routed := map[key]bool{}
	for u := range t.set.RouteUses() {
		routed[key{u.Namespace, u.Service}] = true
	}
	for _, s := range t.splits {
		if s.service != nil && !routed[s.root] && !t.served[s.root] {
			t.report(s.ref, resource.Problem(codeUnused, "Unused", "spec.service",
				fmt.Sprintf("no route leads to Service %s, so there is nothing to split", s.root),
				"add a route to it"+fmt.Sprintf(serve, s.root)))
		}
	}
}
