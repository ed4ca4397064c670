package access

import (
	"fmt"
	"slices"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/internal/dialect/routegroup"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// trafficTarget is a TrafficTarget in translation.
type trafficTarget struct {
	subject
	object  *access.TrafficTarget
	targets []model.Target
	sources []model.Source
	// tcp are the ports of the TCPRoutes that it names, udp those of its UDPRoutes.
	tcp, udp routePorts
	groups   []groupRule
	budget   model.PatternBudget
}

// routePorts are the ports of routes that are named. A route without ports means every port.
type routePorts struct {
	ref   model.Ref // the first rule that names one
	named bool
	every bool
	ports []int32
}

// void reports whether routes are named of which none can be used.
func (p *routePorts) void() bool { return p.named && !p.every && len(p.ports) == 0 }

// list are the ports; nil is every port.
func (p *routePorts) list() []int32 {
	if !p.named || p.every {
		return nil
	}
	slices.Sort(p.ports)
	return slices.Compact(p.ports)
}

// groupRule is a rule that names an HTTPRouteGroup, and the matches that it allows; none if it cannot be used.
type groupRule struct {
	ref     model.Ref
	matches []model.SplitMatch
	void    string
}

// targets makes the policies of TrafficTargets.
func (t *translator) targets() {
	for _, o := range Targets.In(t.set) {
		x := &trafficTarget{subject: newSubject("TrafficTarget", o), object: o}
		if t.destination(x) {
			t.sources(x)
			rules := o.Spec.Rules
			for i := range rules {
				t.targetRule(x, i)
			}
			t.allowTarget(x)
		}
		if !x.inForce && len(x.idle) == 0 {
			x.idle = x.rejected
		}
		t.status(&x.subject)
	}
}

// destination finds whose pods are meant; ok is false if they are not the target's to allow.
func (t *translator) destination(x *trafficTarget) (ok bool) {
	d, namespace := &x.object.Spec.Destination, x.ref.Namespace
	if d.Namespace != "" && d.Namespace != namespace {
		t.add(&x.subject, &x.rejected, resource.Problem(codeDestination, "ForeignDestination", "spec.destination.namespace",
			fmt.Sprintf("a TrafficTarget of namespace %s cannot allow traffic to namespace %s: it has no effect", namespace, d.Namespace), "write it in the namespace of its destination"))
		return false
	}
	x.targets = []model.Target{{Namespace: namespace, Kind: d.Kind, Name: d.Name}}
	switch exists, pods := t.exists(d.Kind, namespace, d.Name); {
	case pods:
	case exists:
		t.add(&x.subject, &x.idle, t.nobody(namespace, "spec.destination.name", fmt.Sprintf("%s %s/%s has no pods", d.Kind, namespace, d.Name), "correct the name"))
	default:
		t.add(&x.subject, &x.unresolved, t.absent(codeResourceNotFound, "DestinationNotFound", "spec.destination.name", identityKey(d.Kind, namespace, d.Name), ""))
	}
	return true
}

func identityKey(kind, namespace, name string) resource.Key {
	k := resource.Key{Kind: kind, Namespace: namespace, Name: name}
	if kind == access.KindIdentityBinding {
		k.Group = access.Group
	}
	return k
}

// sources finds out who the clients are. A source that is nobody is no source; it is never everybody.
func (t *translator) sources(x *trafficTarget) {
	for i, s := range x.object.Spec.Sources {
		field := model.FieldAt("spec.sources", i)
		namespace := s.Namespace
		if namespace == "" {
			namespace = x.ref.Namespace
		}
		missing := func(code string) {
			t.add(&x.subject, &x.unresolved, t.absent(code, "SourceNotFound", field, identityKey(s.Kind, namespace, s.Name), ": this source is nobody"))
		}
		if s.Kind == access.KindIdentityBinding {
			id := t.identities[key{namespace, s.Name}]
			if id == nil {
				missing(codeIdentityNotFound)
				continue
			}
			for _, source := range id.sources {
				source.Field = field
				x.sources = append(x.sources, source)
			}
			continue
		}
		if exists, _ := t.exists(s.Kind, namespace, s.Name); !exists {
			missing(codeSubjectNotFound)
		}
		x.sources = append(x.sources, model.Source{Kind: s.Kind, Namespace: namespace, Name: s.Name, Field: field})
	}
	if len(x.sources) == 0 {
		t.add(&x.subject, &x.idle, resource.Problem(codeNoSources, "NoSources", "spec.sources", "no source is anybody, so nothing is allowed", "name a ServiceAccount, or an IdentityBinding that selects pods"))
	}
}

// targetRule reads a rule.
func (t *translator) targetRule(x *trafficTarget, i int) {
	rule := &x.object.Spec.Rules[i]
	ref := x.ref
	ref.Field = model.FieldAt("spec.rules", i)
	missing := func() {
		key := resource.Key{Group: specs.Group, Kind: rule.Kind, Namespace: ref.Namespace, Name: rule.Name}
		t.add(&x.subject, &x.unresolved, t.absent(codeRouteNotFound, "RouteNotFound", ref.Field+".name", key, ", so the rule allows nothing"))
	}
	ports := func(of *routePorts, found bool, spec specs.PortsSpec) {
		if of.named = true; of.ref.Name == "" {
			of.ref = ref
		}
		if !found {
			missing()
			return
		}
		of.every = of.every || len(spec.Matches.Ports) == 0
		of.ports = append(of.ports, spec.Matches.Ports...)
	}
	t.routes[model.Ref{Kind: rule.Kind, Namespace: ref.Namespace, Name: rule.Name}] = true
	switch rule.Kind {
	case "TCPRoute":
		i := slices.IndexFunc(t.set.TCPPorts, func(r *specs.TCPRoute) bool { return r.Namespace == ref.Namespace && r.Name == rule.Name })
		if i < 0 {
			ports(&x.tcp, false, specs.PortsSpec{})
			return
		}
		ports(&x.tcp, true, t.set.TCPPorts[i].Spec)
	case "UDPRoute":
		i := slices.IndexFunc(t.set.UDPPorts, func(r *specs.UDPRoute) bool { return r.Namespace == ref.Namespace && r.Name == rule.Name })
		if i < 0 {
			ports(&x.udp, false, specs.PortsSpec{})
			return
		}
		ports(&x.udp, true, t.set.UDPPorts[i].Spec)
	default:
		g := t.set.HTTPRouteGroup(ref.Namespace, rule.Name)
		if g == nil {
			missing()
			x.groups = append(x.groups, groupRule{ref: ref, void: "the HTTPRouteGroup does not exist"})
			return
		}
		x.groups = append(x.groups, t.groupRule(x, ref, rule, g))
	}
}

// unnamed reports the routes of ports that no target names.
func (t *translator) unnamed() {
	report := func(kind, shown, namespace, name string) {
		if !t.routes[model.Ref{Kind: kind, Namespace: namespace, Name: name}] {
			t.report(model.Ref{Kind: shown, Namespace: namespace, Name: name}, resource.Problem(codePortRoute, "Unused", "",
				"the route names ports for access rules, and no TrafficTarget names it: it has no effect", "name it in the rules of a TrafficTarget, or delete it"))
		}
	}
	for _, r := range t.set.TCPPorts {
		report("TCPRoute", resource.PortsKind, r.Namespace, r.Name)
	}
	for _, r := range t.set.UDPPorts {
		report("UDPRoute", "UDPRoute", r.Namespace, r.Name)
	}
}

// groupRule picks the matches that a rule names.
func (t *translator) groupRule(x *trafficTarget, ref model.Ref, rule *access.TargetRule, g *specs.HTTPRouteGroup) groupRule {
	out := groupRule{ref: ref}
	if rule.Matches != nil && len(rule.Matches) == 0 {
		t.add(&x.subject, &x.rejected, resource.Problem(codeEmpty, "EmptyList", ref.Field+".matches", "is empty, which names nothing: the rule allows nothing",
			"name matches, or leave the key out for all of the group"))
		out.void = "matches is empty"
		return out
	}
	all := routegroup.Matches(g)
	for i, name := range rule.Matches {
		if !slices.ContainsFunc(all, func(m routegroup.Match) bool { return m.Name == name }) {
			t.add(&x.subject, &x.unresolved, resource.Problem(codeMatchNotFound, "MatchNotFound", model.FieldAt(ref.Field+".matches", i),
				fmt.Sprintf("HTTPRouteGroup %s/%s has no match %q", g.Namespace, g.Name, name), "correct the name"))
		}
	}
	for _, m := range all {
		if rule.Matches != nil && !slices.Contains(rule.Matches, m.Name) {
			continue
		}
		good := true
		for _, p := range m.Problems {
			code := codeMatch
			switch {
			case p.TooLarge:
				code = codePatternLarge
			case p.Pattern:
				code = codePattern
			}
			good = false
			t.add(&x.subject, &x.rejected, resource.Problem(code, "InvalidExpression", ref.Field,
				fmt.Sprintf("%s %s: %s: the match allows nothing", m.Match.Ref.Name, p.Field, p.Message), p.Fix))
		}
		if good && t.within(x, ref.Field, &m.Match) {
			out.matches = append(out.matches, m.Match)
		}
	}
	if len(out.matches) == 0 {
		out.void = "no match of the HTTPRouteGroup can be used"
	}
	return out
}

// within counts the patterns of a match towards the bound of one object.
func (t *translator) within(x *trafficTarget, field string, m *model.SplitMatch) bool {
	all := []string{m.Path}
	for _, h := range m.Headers {
		all = append(all, h.Value)
	}
	for _, pattern := range all {
		if err := x.budget.Add(pattern); err != nil {
			t.add(&x.subject, &x.rejected, resource.Problem(codePatternLarge, "InvalidExpression", field, fmt.Sprintf("%s %s: %v: the match allows nothing", m.Ref.Name, m.Ref.Field, err), "repeat less"))
			return false
		}
	}
	return true
}

// allowTarget makes the policies. TCPRoutes beside HTTPRouteGroups limit these to their ports (SMI, Traffic Access
// Control, "TrafficTarget"); alone they allow everything over TCP on their ports.
func (t *translator) allowTarget(x *trafficTarget) {
	base := model.Policy{Targets: x.targets, Sources: x.sources}
	add := func(p model.Policy) {
		if port := x.object.Spec.Port; port != 0 {
			if p.Ports != nil && !slices.Contains(p.Ports, port) {
				p.Void = fmt.Sprintf("its routes do not have the destination's port %d", port)
			}
			p.Ports = []int32{port}
		}
		x.inForce = x.inForce || p.Void == ""
		t.policies = append(t.policies, p)
	}
	ports := func(p model.Policy, of *routePorts) model.Policy {
		if p.Ports = of.list(); of.void() {
			p.Ports, p.Void = nil, "no route that it names exists"
		}
		return p
	}
	for _, g := range x.groups {
		p := base
		p.Ref, p.Traffic = g.ref, model.TrafficHTTP
		p = ports(p, &x.tcp)
		if g.void != "" {
			p.Void = g.void
			add(p)
		}
		for _, m := range g.matches {
			p := p
			p.Match, p.Methods, p.Headers = m.Ref, m.Methods, m.Headers
			if m.Path != "" {
				p.Paths = []string{m.Path}
			}
			add(p)
		}
	}
	if x.tcp.named && len(x.groups) == 0 {
		p := base
		p.Ref, p.Traffic = x.tcp.ref, model.TrafficTCP
		add(ports(p, &x.tcp))
	}
	if x.udp.named {
		p := base
		p.Ref, p.Traffic = x.udp.ref, model.TrafficUDP
		add(ports(p, &x.udp))
	}
	if !x.inForce && len(x.idle) == 0 {
		t.add(&x.subject, &x.idle, resource.Problem(codeEmpty, "NoRules", "spec.rules", "no rule can be used, so nothing is allowed", "mend the rules"))
	}
}
