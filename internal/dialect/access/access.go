// Package access translates SMI's access control (TrafficRole and its bindings of the specification's first draft,
// TrafficTarget and IdentityBinding) into the model's workloads and policies, and reports the result for each object in
// statuses, events and findings. The specifications' texts are the authority; docs/access.md lists what they leave open
// and what Weir does there.
//
// It is pure: it reads a resource.Set, which it does not change, and nothing else. It makes policies; internal/policy
// judges by them.
//
// Policies only allow. So a mistake must not make a rule allow more, and a workload that a user named must not become
// open to all because of one: what cannot be understood allows nothing and governs what it names.
package access

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Options are settings that are not part of a set.
type Options struct {
	// Deny is when traffic is denied that nothing allows, in namespaces without the annotation DenyAnnotation.
	Deny model.Deny
	// TrustDomain is that of the own identities; empty is DefaultTrustDomain.
	TrustDomain string
	// Partial says that the set is a part of a cluster's objects, as manifests are: others that are referred to may be
	// elsewhere (resource.Set.Elsewhere).
	Partial bool
	// Sidecar says that the configuration is for a sidecar. Its workload is made even where there is nothing of access
	// control: a sidecar closes a workload that the configuration does not have.
	Sidecar bool
}

// DefaultTrustDomain is the trust domain of identities, unless another one is set. SMI's examples have it.
const DefaultTrustDomain = "cluster.local"

// Annotations of a Namespace.
const (
	// DenyAnnotation is when traffic to the namespace's workloads is denied that nothing allows: "governed", once
	// something names the workload, or "all".
	DenyAnnotation = "weirmesh.github.io/access-deny"
	// AuditAnnotation, when it is "true", lets traffic pass that would be denied; it is counted and logged.
	AuditAnnotation = "weirmesh.github.io/access-audit"
)

// Translate returns the workloads and policies of the set, the status of every object of access control, the events
// about them and the findings. The order of the objects in the set has no influence.
func Translate(set *resource.Set, options Options) (model.Config, []resource.Status, []resource.Event, []resource.Finding) {
	t := &translator{set: set, options: options, routes: map[model.Ref]bool{}}
	t.options.TrustDomain = cmp.Or(options.TrustDomain, DefaultTrustDomain)
	if !t.any() {
		t.unnamed()
		resource.SortFindings(t.findings)
		return model.Config{}, nil, nil, t.findings
	}
	t.readPods()
	t.readIdentities()
	t.index()
	t.namespaces()
	t.readRoles()
	t.bindings()
	t.targets()
	t.unnamed()
	t.rejected()
	t.statusesOfRoles()
	resource.SortStatuses(t.statuses)
	slices.SortStableFunc(t.events, func(a, b resource.Event) int {
		return cmp.Or(a.Ref.Compare(b.Ref), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	resource.SortFindings(t.findings)
	for i := range t.workloads {
		slices.SortFunc(t.workloads[i].Groups, func(a, b model.Group) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	}
	config := model.Config{Workloads: t.workloads, Policies: t.policies}
	config.Sort()
	return config, t.statuses, t.events, t.findings
}

// Workloads are those of the set, also where there is nothing of access control. There Translate makes none, other than
// for a sidecar: nothing else judges what comes to them.
func Workloads(set *resource.Set, options Options) []model.Workload {
	t := &translator{set: set, options: options}
	t.readPods()
	t.namespaces()
	config := model.Config{Workloads: t.workloads}
	config.Sort()
	return config.Workloads
}

// translator holds one translation. Its steps run in the order of Translate; each uses the results of the earlier ones.
type translator struct {
	set       *resource.Set
	options   Options
	workloads []model.Workload
	policies  []model.Policy
	statuses  []resource.Status
	events    []resource.Event
	findings  []resource.Finding

	pods       []pods
	identities map[key]*declaration
	roles      map[roleKey]*role
	// named are the targets that name a workload.
	named map[model.Target]bool
	// routes are those that targets name, of all kinds.
	routes map[model.Ref]bool
}

type key struct{ namespace, name string }

// any reports whether there is something to translate.
func (t *translator) any() bool {
	for k := range t.set.Rejected {
		if k.Group == access.Group {
			return true
		}
	}
	return len(Roles.In(t.set))+len(ClusterRoles.In(t.set))+len(RoleBindings.In(t.set))+len(ClusterBindings.In(t.set))+
		len(Targets.In(t.set))+len(Identities.In(t.set)) > 0 || t.options.Deny == model.DenyAll || t.options.Sidecar || t.annotated()
}

// subject is an object while it is judged.
type subject struct {
	ref        model.Ref
	generation int64
	// What is wrong, by the condition it belongs to: what keeps the object or a part of it from being in force, what it
	// refers to that does not exist, and why it has no effect.
	rejected, unresolved, idle []resource.Finding
	// inForce means that some part of the object is, in spite of rejected.
	inForce bool
}

func newSubject(kind string, o metav1.Object) subject {
	return subject{ref: model.Ref{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}, generation: o.GetGeneration()}
}

// report adds a finding, and unless it is mere information an event, about an object.
func (t *translator) report(ref model.Ref, p resource.Finding) {
	f := t.set.About(ref, p, severities)
	t.findings = append(t.findings, f)
	if f.Severity != resource.Info {
		ref.Field = ""
		t.events = append(t.events, resource.Event{Ref: ref, Type: "Warning", Reason: p.Reason, Message: p.Text()})
	}
}

// add reports a problem of the object and keeps it for a condition.
func (t *translator) add(s *subject, to *[]resource.Finding, p resource.Finding) {
	*to = append(*to, p)
	t.report(s.ref, p)
}

// status writes the conditions of an object:
//
//	Accepted      every part of it is in force
//	ResolvedRefs  everything that it refers to exists
//	Effective     it concerns somebody: a role is bound and names workloads, a binding has clients
func (t *translator) status(s *subject) {
	accepted := resource.True("Accepted", "Accepted", "")
	if len(s.rejected) > 0 {
		accepted = resource.False("Accepted", s.rejected[0].Reason, resource.Texts(s.rejected))
		if s.inForce {
			accepted = resource.True("Accepted", "PartlyInvalid", resource.Texts(s.rejected))
		}
	}
	resolved := resource.True("ResolvedRefs", "ResolvedRefs", "")
	if len(s.unresolved) > 0 {
		resolved = resource.False("ResolvedRefs", s.unresolved[0].Reason, resource.Texts(s.unresolved))
	}
	effective := resource.True("Effective", "Effective", "")
	if len(s.idle) > 0 {
		effective = resource.False("Effective", s.idle[0].Reason, resource.Texts(s.idle))
	}
	t.statuses = append(t.statuses, resource.Status{Ref: s.ref, Generation: s.generation, Conditions: []resource.Condition{accepted, resolved, effective}})
}
