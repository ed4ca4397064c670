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
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
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
	// Unenforced says that nothing stands in front of the pods that the set is about, so that all is only told.
	Unenforced bool
	// Mesh says that pods of the set may have sidecars (workload.Object.Sidecar), which enforce what concerns them.
	Mesh bool
	// Sidecar says that the configuration is for a sidecar. Its workload is made even where there is nothing of access
	// control: a sidecar closes a workload that the configuration does not have.
	Sidecar bool
}

// DefaultTrustDomain is the trust domain of identities, unless another one is set. SMI's examples have it.
const DefaultTrustDomain = spiffe.DefaultTrustDomain

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
	if len(t.statuses) > 0 && t.options.Unenforced {
		t.findings = append(t.findings, t.set.About(model.Ref{}, unenforced, severities))
	}
	if t.options.Mesh {
		t.enforced()
	}
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
//
// The last two are Unknown where only what cannot be seen is in their way.
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
		resolved = lacking("ResolvedRefs", s.unresolved)
	}
	effective := resource.True("Effective", "Effective", "")
	switch {
	case len(s.idle) > 0:
		effective = lacking("Effective", s.idle)
	case t.options.Unenforced:
		effective = lacking("Effective", []resource.Finding{unenforced})
	}
	t.statuses = append(t.statuses, resource.Status{Ref: s.ref, Generation: s.generation, Conditions: []resource.Condition{accepted, resolved, effective}})
}

// lacking is a condition that does not hold because of the findings, or of which that is not known.
func lacking(condition string, because []resource.Finding) resource.Condition {
	for i := range because {
		if because[i].Code != codeUnseen {
			return resource.False(condition, because[i].Reason, resource.Texts(because))
		}
	}
	return resource.Unknown(condition, because[0].Reason, resource.Texts(because))
}

var unenforced = resource.Problem(codeUnenforced, "NotEnforced", "",
	"no proxy stands in front of the pods of this cluster: access control is judged and told, and denies nothing", "give the controller --mesh (chart: mesh.enabled) and the pods sidecars")

// absent is the problem of a reference to an object that is not there, with what follows from it, or of which that is
// not known.
func (t *translator) absent(code, reason, field string, key resource.Key, so string) resource.Finding {
	if why, fix := t.unseen(key.Namespace, key); why != "" {
		return resource.Problem(codeUnseen, "NotKnown", field, key.String()+" is not known: "+why, fix)
	}
	found, why, fix := t.set.Absent(code, key, t.options.Partial)
	return resource.Problem(found, reason, field, key.String()+" "+why+so, fix)
}

// nobody is the problem of something that has no pods; text says so, and what follows from it.
func (t *translator) nobody(namespace, field, text, fix string) resource.Finding {
	if why, mend := t.unseen(namespace, resource.Key{}); why != "" {
		return resource.Problem(codeUnseen, "NotKnown", field, text+", as far as is known: "+why, mend)
	}
	return resource.Problem(codeSelectsNothing, "SelectsNothing", field, text, fix+", or ignore this if the pods are yet to come")
}

// unseen returns why an object of a cluster, or a pod if key has no kind, may exist without being known; "" if it cannot.
func (t *translator) unseen(namespace string, key resource.Key) (why, fix string) {
	if !t.set.Watches(namespace) && namespace != "" {
		return fmt.Sprintf("namespace %s is not watched", namespace), "add the namespace to the controller's --namespaces (the chart's namespaces)"
	}
	for _, k := range t.set.Unread {
		if k.Group == key.Group && k.Name == key.Kind || key.Kind == "" && slices.Contains(workload.Kinds(), k) {
			return k.Plural + " cannot be read", fmt.Sprintf("grant the verbs list and watch on the resource %s of the API group %q", k.Plural, k.Group)
		}
	}
	return "", ""
}
