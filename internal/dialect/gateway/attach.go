package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// parent is one parentRef of a route that names a Gateway of ours or one of its ListenerSets, or a Service.
type parent struct {
	ref     gatewayv1.ParentReference
	field   string
	gateway *gateway
	// set is nil if the Gateway itself is the parent.
	set      *listenerSet
	attached map[*listener][]string         // effective hostnames
	idle     map[*listener]resource.Finding // those attached whose traffic another route has, and why; of TCPRoutes only
	rejected *resource.Finding
	// ports is set if the parent is a Service; the fields of Gateways are empty then.
	ports *servicePorts
}

// listeners returns the listeners of the named object: naming a Gateway does not include its ListenerSets.
func (p *parent) listeners() []*listener {
	if p.set != nil {
		return p.set.listeners
	}
	return p.gateway.ownListeners
}

func (p *parent) String() string {
	if p.set != nil {
		return p.set.ref.String()
	}
	return p.gateway.ref.String()
}

// claim is the hostnames that a route has on a listener.
type claim struct {
	route     *route
	hostnames []string
}

// outcome is the result of a route among the others.
type outcome struct {
	status   resource.Status
	findings []resource.Finding
	// claims are the route's hostnames at listeners.
	claims []listenerClaim
	// places are the places of each rule.
	places [][]place
	// emitted are the model's routes; not kept where they present a client certificate.
	emitted []model.Route
	// atServices are the same for the clients of Services.
	atServices []model.ServiceRoute
}

// listenerClaim is a route's claim at a listener.
type listenerClaim struct {
	listener *listener
	claim
}

// attachRoutes decides which routes attach to which listeners and Services, the oldest route first.
func (t *translator) attachRoutes() {
	t.rankServices()
	for _, r := range t.routes {
		lost := t.yield(r)
		if r.outcome == nil || len(lost) > 0 {
			r.contested = len(lost) > 0 || !r.served()
			t.conclude(r, lost)
		}
		t.findings = append(t.findings, r.outcome.findings...)
		for _, h := range r.outcome.claims {
			u := t.on(h.listener)
			u.routes++
			u.claims[r.ref.Kind] = append(u.claims[r.ref.Kind], h.claim)
			u.takeHostnames(r, h.hostnames)
		}
	}
}

// conclude says what becomes of a route, which has what listeners it gets.
func (t *translator) conclude(r *route, lost []resource.Finding) {
	before := t.findings
	t.findings = nil
	for _, p := range lost {
		t.report(r.ref, p)
	}
	out := &outcome{}
	counted := map[*listener]bool{}
	for _, p := range r.parents {
		if p.rejected == nil && !r.served() {
			// The findings are those of the rules. Rules that answer an error, so as not to pass a filter by, do so although
			// the route is not accepted.
			p.rejected = new(resource.Problem("", r.broken[0].Reason, "spec.rules", "no rule is valid", resource.Texts(r.broken)))
		}
		if p.rejected != nil {
			continue
		}
		for l, hostnames := range p.attached {
			if !counted[l] {
				counted[l] = true
				out.claims = append(out.claims, listenerClaim{l, claim{r, hostnames}})
			}
		}
	}
	if r.mesh {
		t.ignoredAtServices(r)
	} else {
		t.ignoredHostnames(r)
	}
	for i := range r.rules {
		out.places = append(out.places, r.places(&r.rules[i]))
	}
	out.status = r.status()
	out.findings, t.findings = t.findings, before
	r.outcome = out
}

// readParents finds the parents of a route that are ours.
func (t *translator) readParents(r *route) {
	for i, ref := range r.spec.ParentRefs {
		if t.Mesh && isService(ref) {
			continue
		}
		field := fmt.Sprintf("spec.parentRefs[%d]", i)
		named := resource.ParentRefOf(ref, r.namespace)
		group, kind, at := named.Group, named.Kind, key{named.Namespace, named.Name}
		p, exists := &parent{ref: ref, field: field}, false
		switch {
		case group == gatewayv1.GroupName && kind == "Gateway":
			p.gateway, exists = t.gateways[at], t.set.Gateway(at.namespace, at.name) != nil
		case group == gatewayv1.GroupName && kind == listenerSetKind:
			if p.set, exists = t.sets[at]; p.set != nil {
				p.gateway = p.set.gateway
			}
		default:
			message, fix := fmt.Sprintf("a parent of kind %s is ignored", kindName(group, kind)), "name a Gateway or a ListenerSet"
			if group == "" && kind == "Service" {
				message, fix = "a parent of kind Service is for the clients of a mesh, which is not served here", "serve a mesh (docs/mesh.md), or name a Gateway"
			}
			t.report(r.ref, resource.Problem(codeParentKind, "", field+".kind", message, fix))
			continue
		}
		if p.gateway != nil {
			// Routes that attach to a Gateway of a class that is not accepted are not judged.
			if !p.gateway.pending {
				r.parents = append(r.parents, p)
			}
		} else if !exists && !t.set.Watches(at.namespace) {
			t.report(r.ref, resource.Problem(codeParentUnwatched, "", field, fmt.Sprintf("%s %s: %s", kind, at, t.unwatched(at.namespace)), watchIt))
		} else if !exists {
			code, why, fix := t.absent(codeParentNotFound, gatewayv1.GroupName, string(kind), at)
			t.report(r.ref, resource.Problem(code, "", field, why, fix))
		}
	}
	if r.spec.UseDefaultGateways == gatewayv1.GatewayDefaultScopeAll {
		t.defaultParents(r)
	}
	if len(r.spec.ParentRefs) == 0 && len(r.parents) == 0 {
		t.report(r.ref, resource.Problem(codeNoParent, "", "spec.parentRefs", "the route is attached to nothing", "name a Gateway"))
	}
}

// defaultParents adds the Gateways that claim routes which ask for a default (GatewaySpec.defaultScope).
func (t *translator) defaultParents(r *route) {
	for _, g := range t.order {
		named := func(p *parent) bool { return p.gateway == g && p.set == nil }
		if g.pending || g.obj.Spec.DefaultScope != gatewayv1.GatewayDefaultScopeAll || slices.ContainsFunc(r.parents, named) {
			continue
		}
		group, kind, namespace := gatewayv1.Group(gatewayv1.GroupName), gatewayv1.Kind("Gateway"), gatewayv1.Namespace(g.namespace)
		r.parents = append(r.parents, &parent{
			ref:     gatewayv1.ParentReference{Group: &group, Kind: &kind, Namespace: &namespace, Name: gatewayv1.ObjectName(g.name)},
			field:   "spec.useDefaultGateways",
			gateway: g,
		})
	}
}

// attach finds the listeners of a parent that would take the route if it were alone. If none does, the reason is that
// of the last test that any of them reached (RouteConditionAccepted).
func (t *translator) attach(r *route, p *parent) {
	p.attached = map[*listener][]string{}
	reject := func(code, reason, field, message, fix string) {
		p.rejected = new(resource.Problem(code, reason, field, message, fix))
	}
	if p.set != nil && p.set.rejected != nil {
		reject(codeNotAllowed, "NotAllowedByListeners", p.field, p.String()+" may not attach to its Gateway", "see the status of the ListenerSet")
		t.report(r.ref, *p.rejected)
		return
	}
	var selected, allowed, named []*listener
	for _, l := range p.listeners() {
		if section := value(p.ref.SectionName, ""); section != "" && section != l.spec.Name {
			continue
		}
		if port := value(p.ref.Port, 0); port != 0 && port != l.spec.Port {
			continue
		}
		selected = append(selected, l)
		if !l.allows(t, r.ref.Kind, r.namespace) {
			continue
		}
		allowed = append(allowed, l)
		hostnames := slices.DeleteFunc(effective(l.hostname, r.hostnames), func(h string) bool { return !model.ValidHostname(h) })
		if len(hostnames) > 0 {
			named = append(named, l)
			p.attached[l] = hostnames
		}
	}
	switch {
	case len(selected) == 0:
		reject(codeNoListener, "NoMatchingParent", p.field, fmt.Sprintf("%s has no listener %s", p, selection(p.ref)),
			"correct sectionName and port, or remove them")
	case len(allowed) == 0:
		reject(codeNotAllowed, "NotAllowedByListeners", p.field,
			fmt.Sprintf("no listener of %s that the reference selects allows a route of kind %s from namespace %s",
				p, r.ref.Kind, r.namespace), "extend allowedRoutes of the listener")
	case len(named) == 0:
		reject(codeNoHostname, "NoMatchingListenerHostname", "spec.hostnames",
			fmt.Sprintf("none of the hostnames meets one of the listeners of %s", p), "correct the hostnames of route or listener")
	}
	if p.rejected != nil {
		t.report(r.ref, *p.rejected)
	}
}

// loss is a listener that a route does not get, and why.
type loss struct {
	listener *listener
	why      resource.Finding
}

// yield takes the route off the listeners that older routes have, and returns why. A TCPRoute stays attached there and is
// accepted, but gets no connection (TCPRoute, "Conflicts"; the conformance test TCPRouteMultipleRoutesAttachment).
func (t *translator) yield(r *route) (lost []resource.Finding) {
	if r.mesh {
		return t.yieldPorts(r)
	}
	for _, p := range r.parents {
		if p.rejected != nil {
			continue
		}
		taken := t.taken(r, p)
		if !r.carries.Requests() {
			p.idle = make(map[*listener]resource.Finding, len(taken))
			for _, x := range taken {
				p.idle[x.listener] = x.why
				lost = append(lost, x.why)
			}
			continue
		}
		for _, x := range taken {
			delete(p.attached, x.listener)
			lost = append(lost, x.why)
		}
		full := t.refused(r, p)
		for _, x := range full {
			lost = append(lost, x.why)
		}
		if taken = append(taken, full...); len(p.attached) == 0 && len(taken) > 0 {
			p.rejected = &taken[0].why
		}
	}
	return lost
}

// taken are the listeners of a parent's where an older route of the other kind has a hostname of the route
// (GRPCRouteSpec.hostnames).
func (t *translator) taken(r *route, p *parent) (taken []loss) {
	if !r.carries.Requests() {
		return t.takenListeners(r, p)
	}
	other := "GRPCRoute"
	if r.carries == model.RouteGRPC {
		other = "HTTPRoute"
	}
	for _, l := range p.listeners() {
		hostnames, ok := p.attached[l]
		if !ok {
			continue
		}
		claims := t.on(l).claims[other]
		if i := slices.IndexFunc(claims, func(c claim) bool { return meet(c.hostnames, hostnames) }); i >= 0 {
			taken = append(taken, loss{l, resource.Problem(codeHostnameTaken, "HostnameConflict", p.field,
				fmt.Sprintf("on listener %s, %s %s has a hostname of this route and goes first", l,
					other, claims[i].route), "give the two routes different hostnames or listeners")})
		}
	}
	return taken
}

func meet(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			if _, ok := intersect(strings.TrimSuffix(x, "*"), strings.TrimSuffix(y, "*")); ok {
				return true
			}
		}
	}
	return false
}

// effective intersects a listener's hostname with a route's; "*" in the result is any host.
func effective(listener string, route []string) []string {
	var out []string
	for _, h := range route {
		if both, ok := intersect(listener, h); ok {
			out = append(out, cmp.Or(both, "*"))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func selection(ref gatewayv1.ParentReference) string {
	var parts []string
	if s := value(ref.SectionName, ""); s != "" {
		parts = append(parts, "named "+string(s))
	}
	if port := value(ref.Port, 0); port != 0 {
		parts = append(parts, fmt.Sprintf("on port %d", port))
	}
	return strings.Join(parts, " ")
}

// ignoredHostnames reports hostnames that count nowhere although the route is attached.
func (t *translator) ignoredHostnames(r *route) {
	attached := false
	met := map[string]bool{}
	for _, p := range r.parents {
		if p.rejected != nil {
			continue
		}
		for l := range p.attached {
			attached = true
			for _, h := range r.hostnames {
				if _, ok := intersect(l.hostname, h); ok {
					met[h] = true
				}
			}
		}
	}
	if !attached {
		return
	}
	for i, h := range r.hostnames {
		if !met[h] {
			t.report(r.ref, resource.Problem(codeHostnameIgnored, "", model.FieldAt("spec.hostnames", i),
				fmt.Sprintf("%s meets no listener that the route is attached to", h), "remove it, or add a listener for it"))
		}
	}
}

// emit puts the listeners and routes into the configuration.
func (t *translator) emit() {
	for _, g := range t.order {
		for _, l := range g.listeners {
			if !l.programmed() {
				continue
			}
			ref := l.holder()
			ref.Field = l.field
			var owner model.Owner
			if t.ProxyPerGateway {
				owner = model.GatewayOwner(g.namespace, g.name)
			}
			for _, a := range g.addresses {
				t.cfg.Listeners = append(t.cfg.Listeners, model.Listener{
					Name: l.name(a), Ref: ref, Owner: owner, Address: a, Port: l.spec.Port, Protocol: l.protocol,
					Hostname: l.hostname, TLS: l.tls, PathPolicy: l.pathPolicy(), Front: l.front(),
				})
			}
		}
	}
	t.cfg.Routes = make([]model.Route, 0, len(t.listed))
	for _, r := range t.listed {
		if r.mesh {
			if r.outcome.atServices == nil {
				r.outcome.atServices = emitServiceRoutes(r)
			}
			t.atServices = append(t.atServices, r.outcome.atServices...)
			continue
		}
		t.reach(r)
		if r.outcome.emitted == nil {
			r.outcome.emitted = emitRoute(r)
		}
		t.cfg.Routes = append(t.cfg.Routes, r.outcome.emitted...)
	}
	model.SortServiceRoutes(t.atServices)
}

// emitRoute emits a route once for each client certificate that the Gateways it is attached to present to backends.
func emitRoute(r *route) (all []model.Route) {
	attachments := map[string]map[string][]string{} // by certificate, by listener
	for _, p := range r.parents {
		certificate := p.gateway.clientCertificate
		for l, hostnames := range p.attached {
			if _, idle := p.idle[l]; idle || !l.programmed() {
				continue
			}
			if attachments[certificate] == nil {
				attachments[certificate] = map[string][]string{}
			}
			for _, a := range p.gateway.addresses {
				attachments[certificate][l.name(a)] = hostnames
			}
		}
	}
	if len(r.rules) == 0 {
		return nil
	}
	for _, certificate := range slices.Sorted(maps.Keys(attachments)) {
		out := model.Route{
			Ref: r.ref, Created: created(r.meta), Kind: r.carries, PathPolicy: r.pathPolicy, ClientCertificate: certificate, Rules: r.rules,
		}
		for name, hostnames := range attachments[certificate] {
			out.Attachments = append(out.Attachments, model.Attachment{Listener: name, Hostnames: hostnames})
		}
		slices.SortFunc(out.Attachments, func(a, b model.Attachment) int { return strings.Compare(a.Listener, b.Listener) })
		all = append(all, out)
	}
	return all
}

// reach notes for the policies' statuses which Gateways lead to the Services of a route.
func (t *translator) reach(r *route) {
	if len(t.aimedAt) == 0 {
		return
	}
	for _, h := range r.outcome.claims {
		for _, u := range r.uses {
			if stable := t.set.StableOf(t.set.Service(u.service.namespace, u.service.name)); stable != nil && len(t.aimedAt[u.service]) == 0 {
				u.service.name = stable.Name
			}
			for _, p := range t.aimedAt[u.service] {
				if p.aims(u) {
					t.reached[reach{p, h.listener.gateway}] = true
				}
			}
		}
	}
}
