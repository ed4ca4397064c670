package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Routes whose parents are Services are about what clients in a mesh send to these (GEP-1294). A route that also has other
// parents is read twice, as two routes of one object: what a reference may lead to differs.

// clientsOf are the clients of a port of a Service: all, or those of a namespace, if a consumer's route is about them.
type clientsOf struct {
	portOf
	// clients is the namespace of those that the route is about, if it is a consumer's.
	clients string
}

// servicePorts are what a route has of a Service that it names as parent.
type servicePorts struct {
	service  *corev1.Service // nil if there is none
	at       key
	clients  string
	only     bool // the reference names the port
	attached []int32
	// idle are those attached whose connections an older TCPRoute has, and why.
	idle map[int32]resource.Finding
}

func (s *servicePorts) of(port int32) clientsOf {
	return clientsOf{portOf{s.at, port}, s.clients}
}

// isService says whether a reference of a route names a Service.
func isService(ref gatewayv1.ParentReference) bool {
	named := resource.ParentRefOf(ref, "")
	return named.Group == "" && named.Kind == model.KindService
}

// twice says whether a route has parents that are Services, and whether it has others, or none at all.
func (t *translator) twice(spec *gatewayv1.CommonRouteSpec) (services, others bool) {
	services = t.Mesh && slices.ContainsFunc(spec.ParentRefs, isService)
	others = !services || spec.UseDefaultGateways == gatewayv1.GatewayDefaultScopeAll ||
		slices.ContainsFunc(spec.ParentRefs, func(ref gatewayv1.ParentReference) bool { return !isService(ref) })
	return services, others
}

// readServices finds the parents of a route that are Services.
func (t *translator) readServices(r *route) {
	for i, ref := range r.spec.ParentRefs {
		if !isService(ref) {
			continue
		}
		named := resource.ParentRefOf(ref, r.namespace)
		p := &parent{ref: ref, field: fmt.Sprintf("spec.parentRefs[%d]", i), ports: &servicePorts{at: key{named.Namespace, named.Name}}}
		if named.Namespace != r.namespace {
			p.ports.clients = r.namespace
		}
		if t.attachService(r, p) {
			r.parents = append(r.parents, p)
		}
	}
}

// attachService finds the ports of a Service that would take the route if it were alone. It returns false if nothing can be said
// of the parent.
func (t *translator) attachService(r *route, p *parent) bool {
	s := p.ports
	reject := func(code, reason, field, message, fix string) bool {
		p.rejected = new(resource.Problem(code, reason, p.field+field, message, fix))
		t.report(r.ref, *p.rejected)
		return true
	}
	if !t.set.Watches(s.at.namespace) {
		t.report(r.ref, resource.Problem(codeParentUnwatched, "", p.field, fmt.Sprintf("Service %s: %s", s.at, t.unwatched(s.at.namespace)), watchIt))
		return false
	}
	if s.service = t.set.Service(s.at.namespace, s.at.name); s.service == nil {
		code, why, fix := t.absent(codeParentNotFound, "", model.KindService, s.at)
		if code == resource.CodeElsewhere {
			t.report(r.ref, resource.Problem(code, "", p.field, why, fix))
			return false
		}
		return reject(code, string(gatewayv1.RouteReasonNoMatchingParent), "", why, fix)
	}
	switch spec := &s.service.Spec; {
	case spec.Type == corev1.ServiceTypeExternalName:
		return reject(codeParentService, string(gatewayv1.RouteReasonUnsupportedValue), "", fmt.Sprintf("Service %s is of type ExternalName: clients connect elsewhere", s.at), "name a Service with an address of its own")
	case spec.ClusterIP == corev1.ClusterIPNone:
		return reject(codeParentService, string(gatewayv1.RouteReasonUnsupportedValue), "", fmt.Sprintf("Service %s is headless: clients connect to its pods", s.at), "name a Service with an address of its own")
	}
	named, number := string(value(p.ref.SectionName, "")), value(p.ref.Port, 0)
	s.only = named != "" || number != 0
	var speaks []string
	for i := range s.service.Spec.Ports {
		port := &s.service.Spec.Ports[i]
		if named != "" && named != port.Name || number != 0 && number != port.Port || port.Protocol != "" && port.Protocol != corev1.ProtocolTCP {
			continue
		}
		speaks = append(speaks, fmt.Sprint(port.Port))
		if r.carries.Requests() && resource.ServedProtocol(port) == model.TCP {
			continue
		}
		s.attached = append(s.attached, port.Port)
	}
	switch {
	case len(speaks) == 0:
		return reject(codeNoPort, string(gatewayv1.RouteReasonNoMatchingParent), "", strings.TrimSuffix(fmt.Sprintf("Service %s has no TCP port %s", s.at, selection(p.ref)), " "), "correct sectionName and port, or remove them")
	case len(s.attached) == 0:
		return reject(codeNoPort, string(gatewayv1.RouteReasonNoMatchingParent), "", fmt.Sprintf("by appProtocol, name or number, port %s of Service %s carries no HTTP", strings.Join(speaks, ", "), s.at),
			"correct the port's appProtocol, or use a TCPRoute")
	}
	return true
}

// precedence of route kinds at a port of a Service, the first before the second and so on (GEP-1294, "Route types").
var precedence = []model.RouteKind{model.RouteGRPC, model.RouteHTTP, model.RouteTCP}

// rankServices notes which routes go first at each port of a Service.
func (t *translator) rankServices() {
	t.first = map[clientsOf]*route{}
	for _, r := range t.routes {
		if !r.mesh || !r.served() {
			continue
		}
		for _, p := range r.parents {
			if p.rejected != nil {
				continue
			}
			for _, port := range p.ports.attached {
				at := p.ports.of(port)
				if first := t.first[at]; first == nil || slices.Index(precedence, r.carries) < slices.Index(precedence, first.carries) {
					t.first[at] = r
				}
			}
		}
	}
}

// yieldPorts takes a route off the ports of Services that routes of another kind have, and returns why. A TCPRoute after the first
// one of a port stays attached there and is accepted, as at listeners.
func (t *translator) yieldPorts(r *route) (lost []resource.Finding) {
	if !r.served() {
		return nil // it has none
	}
	for _, p := range r.parents {
		if p.rejected != nil {
			continue
		}
		s := p.ports
		var kept []int32
		var taken []resource.Finding
		s.idle = nil
		for _, port := range s.attached {
			first := t.first[s.of(port)]
			switch {
			case first == nil || first == r || first.carries == r.carries && r.carries.Requests():
				kept = append(kept, port)
			case first.carries == r.carries:
				kept = append(kept, port)
				if s.idle == nil {
					s.idle = map[int32]resource.Finding{}
				}
				s.idle[port] = resource.Problem(codeListenerTaken, "ListenerTaken", p.field, fmt.Sprintf("TCPRoute %s is older and has all connections to port %d of Service %s", first.key, port, s.at), "merge the two routes")
				lost = append(lost, s.idle[port])
			default:
				taken = append(taken, resource.Problem(codePortTaken, "Conflicted", p.field, fmt.Sprintf("port %d of Service %s has %s %s, and routes of that kind go before others", port, s.at, first.ref.Kind, first.key),
					"give the routes different ports, or write them as one kind"))
			}
		}
		s.attached, lost = kept, append(lost, taken...)
		if len(kept) == 0 && len(taken) > 0 {
			p.rejected = &taken[0]
		}
	}
	return lost
}

// idleProblems are why a route gets nothing of some ports, in their order.
func (s *servicePorts) idleProblems() (all []resource.Finding) {
	for _, port := range s.attached {
		if why, idle := s.idle[port]; idle {
			all = append(all, why)
		}
	}
	return all
}

// ignoredAtServices reports hostnames, of which a Service has none: its clients are known by where they connect.
func (t *translator) ignoredAtServices(r *route) {
	if r.hostnames[0] != "" && slices.ContainsFunc(r.parents, func(p *parent) bool { return p.rejected == nil }) {
		t.report(r.ref, resource.Problem(codeHostnamesOfService, "", "spec.hostnames", "hostnames mean nothing where the parent is a Service: all requests to it are the route's", "remove them, or match the header Host"))
	}
}

// emitServiceRoutes emits a route once for each port of a Service that it has.
func emitServiceRoutes(r *route) (all []model.ServiceRoute) {
	if len(r.rules) == 0 {
		return nil
	}
	only := map[clientsOf]bool{}
	for _, p := range r.parents {
		if p.rejected != nil {
			continue
		}
		for _, port := range p.ports.attached {
			if _, idle := p.ports.idle[port]; !idle {
				at := p.ports.of(port)
				only[at] = only[at] || p.ports.only
			}
		}
	}
	out := model.Route{Ref: r.ref, Created: created(r.meta), Kind: r.carries, PathPolicy: r.pathPolicy}
	for at := range maps.Keys(only) {
		out.Rules = backToPort(r.rules, at.number)
		all = append(all, model.ServiceRoute{Service: model.ServiceName(at.service.namespace, at.service.name, at.number), Clients: at.clients, Only: only[at], Route: out})
	}
	model.SortServiceRoutes(all)
	return all
}

// backToPort are rules whose redirects that keep the port (HTTPRequestRedirectFilter.port) keep the Service's, wherever a sidecar
// accepts the requests.
func backToPort(rules []model.Rule, port int32) []model.Rule {
	cloned := false
	for i := range rules {
		if r := rules[i].Filters.Redirect; r != nil && r.Port == 0 && r.Scheme == "" {
			if !cloned {
				rules, cloned = slices.Clone(rules), true
			}
			back := *r
			back.Port = port
			rules[i].Filters.Redirect = &back
		}
	}
	return rules
}
