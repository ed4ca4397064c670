package access

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// roleKey names a role; a ClusterTrafficRole has no namespace.
type roleKey struct{ namespace, name string }

// role is a TrafficRole or a ClusterTrafficRole.
type role struct {
	subject
	cluster bool
	rules   []rule
	// bound means that a binding gives it to somebody.
	bound bool
	// names means that it names a workload somewhere, in the namespaces that it is bound in.
	names bool
}

// rule is a rule of a role as policies, but for whom it is given to and where.
type rule struct {
	policy    model.Policy
	resources []access.Resource
	// every means that the rule has no resources: all are meant.
	every bool
}

// readRoles judges the rules of all roles, and makes policies that govern what roles name that nothing binds.
func (t *translator) readRoles() {
	t.roles = map[roleKey]*role{}
	for _, o := range Roles.In(t.set) {
		r := &role{subject: newSubject("TrafficRole", o)}
		t.readRules(r, o.Rules)
		t.roles[roleKey{o.Namespace, o.Name}] = r
	}
	for _, o := range ClusterRoles.In(t.set) {
		r := &role{subject: newSubject("ClusterTrafficRole", o), cluster: true}
		t.readRules(r, o.Rules)
		t.roles[roleKey{"", o.Name}] = r
	}
}

func (t *translator) readRules(r *role, rules []access.Rule) {
	if len(rules) == 0 {
		t.add(&r.subject, &r.idle, resource.Problem(codeEmpty, "NoRules", "rules", "is empty, so the role allows nothing", "add a rule, or delete the role"))
	}
	var budget model.PatternBudget
	for i := range rules {
		made := t.rule(r, &rules[i], model.FieldAt("rules", i), &budget)
		r.rules = append(r.rules, made)
		r.inForce = r.inForce || made.policy.Void == ""
	}
}

// rule judges one rule. A key that is left out does not restrict; an empty list names nothing.
func (t *translator) rule(r *role, from *access.Rule, field string, budget *model.PatternBudget) rule {
	ref := r.ref
	ref.Field = field
	made := rule{policy: model.Policy{Ref: ref, Traffic: model.TrafficHTTP}, resources: from.Resources, every: from.Resources == nil}
	p := &made.policy
	empty := func(name, means string) {
		t.add(&r.subject, &r.rejected, resource.Problem(codeEmpty, "EmptyList", field+"."+name,
			"is empty, which names nothing: the rule allows nothing", means))
		p.Void = name + " is empty"
	}
	if from.Resources != nil && len(from.Resources) == 0 {
		empty("resources", "name resources, or leave the key out for all of the namespace")
	}
	if !slices.Contains(from.Methods, access.Any) {
		if p.Methods = from.Methods; p.Methods != nil && len(p.Methods) == 0 {
			empty("methods", `write "*" for any method`)
		}
		for i, method := range p.Methods {
			if !registered[method] {
				t.report(r.ref, resource.Problem(codeMethod, "UnknownMethod", model.FieldAt(field+".methods", i),
					fmt.Sprintf("%q is no registered HTTP method", method), "correct it, unless clients do send it"))
			}
		}
	}
	if !slices.Contains(from.Paths, access.Any) && from.Paths != nil {
		p.Paths = []string{}
		for i, path := range from.Paths {
			if t.pattern(&r.subject, model.FieldAt(field+".paths", i), path, budget) {
				p.Paths = append(p.Paths, path)
			}
		}
		switch {
		case len(from.Paths) == 0:
			empty("paths", `write "*" for any path`)
		case len(p.Paths) == 0:
			p.Void = "no path can be used"
		}
	}
	if p.Void != "" {
		p.Methods, p.Paths = nil, nil
	}
	if p.Methods == nil && p.Paths == nil && p.Void == "" {
		p.Traffic = model.TrafficAny
	}
	return made
}

// pattern reports a path that cannot be used, and returns false, or one that is not what it seems.
func (t *translator) pattern(s *subject, field, path string, budget *model.PatternBudget) bool {
	if err := budget.Add(path); err != nil {
		code, fix := codePattern, model.PatternFix
		var pattern *model.PatternError
		if errors.As(err, &pattern) && pattern.TooLarge {
			code, fix = codePatternLarge, pattern.Fix
		}
		t.add(s, &s.rejected, resource.Problem(code, "InvalidExpression", field, err.Error()+": the path is left out", fix))
		return false
	}
	for _, p := range seems(field, path) {
		t.report(s.ref, p)
	}
	return true
}

// targetsIn returns the workloads that a rule is about, if its role is given in a namespace; an empty one is every
// namespace.
func (t *translator) targetsIn(r *rule, namespace string) (out []model.Target) {
	if r.every {
		return []model.Target{{Namespace: namespace}}
	}
	for _, res := range r.resources {
		in := namespace
		if res.Namespace != "" && res.Namespace != access.Any {
			if in != "" && in != res.Namespace {
				continue
			}
			in = res.Namespace
		}
		for _, target := range targets(res, in) {
			if !slices.Contains(out, target) {
				out = append(out, target)
			}
		}
	}
	return out
}

// targets are the workloads that a resource names.
func targets(r access.Resource, namespace string) []model.Target {
	name := r.Name
	if name == access.Any {
		name = ""
	}
	if r.Kind != access.AnyKind {
		return []model.Target{{Namespace: namespace, Kind: string(r.Kind), Name: name}}
	}
	if name == "" {
		return []model.Target{{Namespace: namespace}}
	}
	var out []model.Target
	for _, kind := range resourceKinds {
		out = append(out, model.Target{Namespace: namespace, Kind: string(kind), Name: name})
	}
	return out
}

// resourceKinds are the kinds that a rule can name pods by.
var resourceKinds = []access.WorkloadKind{
	access.Pod, access.ReplicationController, access.Service, access.DaemonSet, access.Deployment, access.ReplicaSet, access.StatefulSet, access.Job,
}

// give adds the policies of a role that is given to sources in a namespace; an empty one is every namespace.
func (t *translator) give(r *role, namespace string, binding model.Ref, sources []model.Source) {
	for i := range r.rules {
		p := r.rules[i].policy
		p.Binding, p.Sources, p.Targets = binding, sources, t.targetsIn(&r.rules[i], namespace)
		if len(p.Targets) == 0 {
			continue // it names nothing there
		}
		r.names = r.names || slices.ContainsFunc(p.Targets, func(target model.Target) bool { return t.named[target] })
		t.policies = append(t.policies, p)
	}
}

// statusesOfRoles reports what becomes of roles, once all bindings are known. A TrafficRole that nothing binds governs
// what it names: somebody is about to allow something there.
func (t *translator) statusesOfRoles() {
	for _, o := range Roles.In(t.set) {
		t.statusOfRole(t.roles[roleKey{o.Namespace, o.Name}], o.Rules)
	}
	for _, o := range ClusterRoles.In(t.set) {
		t.statusOfRole(t.roles[roleKey{"", o.Name}], o.Rules)
	}
}

func (t *translator) statusOfRole(r *role, rules []access.Rule) {
	if !r.bound {
		t.add(&r.subject, &r.idle, resource.Problem(codeNotBound, "NotBound", "metadata.name", "no binding gives the role to anybody", "write a binding whose roleRef names it"))
		if !r.cluster {
			t.give(r, r.ref.Namespace, model.Ref{}, nil)
		}
	}
	for i := range rules {
		for j, res := range rules[i].Resources {
			namespace := r.ref.Namespace
			if r.cluster {
				if namespace = res.Namespace; namespace == "" || namespace == access.Any {
					continue // it is of each namespace that has it
				}
			}
			t.checkResource(r, namespace, res, model.FieldAt(model.FieldAt("rules", i)+".resources", j))
		}
	}
	if len(r.rules) > 0 && !r.names && len(r.idle) == 0 {
		t.add(&r.subject, &r.idle, t.nobody(r.ref.Namespace, "rules", "no pods are named, so the role allows nobody anything", "correct the resources"))
	}
	t.status(&r.subject)
}

// checkResource reports a resource that does not exist, or that has no pods.
func (t *translator) checkResource(r *role, namespace string, res access.Resource, field string) {
	if res.Kind == access.AnyKind || res.Name == access.Any {
		return
	}
	kind := string(res.Kind)
	switch exists, pods := t.exists(kind, namespace, res.Name); {
	case pods:
	case exists:
		why := "has no pods"
		if s := t.set.Service(namespace, res.Name); res.Kind == access.Service && s != nil && len(s.Spec.Selector) == 0 {
			why = "has no selector, so it names no pods"
		}
		t.add(&r.subject, &r.unresolved, t.nobody(namespace, field, fmt.Sprintf("%s %s/%s %s", kind, namespace, res.Name, why), "correct the name"))
	default:
		t.add(&r.subject, &r.unresolved, t.absent(codeResourceNotFound, "ResourceNotFound", field, t.set.Kinds().Key(model.Ref{Kind: kind, Namespace: namespace, Name: res.Name}), ""))
	}
}
