package access

import (
	"fmt"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// bindings gives roles to the subjects of bindings.
func (t *translator) bindings() {
	for _, b := range RoleBindings.In(t.set) {
		s := newSubject("TrafficRoleBinding", b)
		at := roleKey{b.Namespace, b.RoleRef.Name}
		if b.RoleRef.Kind == "ClusterTrafficRole" {
			at.namespace = ""
		}
		t.bind(&s, b.Namespace, b.RoleRef, at, b.Subjects)
	}
	for _, b := range ClusterBindings.In(t.set) {
		s := newSubject("ClusterTrafficRoleBinding", b)
		t.bind(&s, "", b.RoleRef, roleKey{"", b.RoleRef.Name}, b.Subjects)
	}
}

// bind gives a role to subjects in a namespace; an empty one is every namespace.
func (t *translator) bind(s *subject, namespace string, ref access.RoleRef, at roleKey, subjects []access.Subject) {
	var sources []model.Source
	for i, sub := range subjects {
		field := model.FieldAt("subjects", i)
		sources = append(sources, subjectSources(sub, namespace, field)...)
		t.checkSubject(s, sub, namespace, field)
	}
	if len(subjects) == 0 {
		t.add(s, &s.idle, resource.Problem(codeEmpty, "NoSubjects", "subjects", "is empty, so the role is given to nobody", "name subjects, or delete the binding"))
	}
	r := t.roles[at]
	if r == nil {
		key := resource.Key{Group: access.Group, Kind: ref.Kind, Namespace: at.namespace, Name: at.name}
		p := t.absent(codeRoleNotFound, "RoleNotFound", "roleRef.name", key, ", so nothing is allowed by this binding")
		t.add(s, &s.unresolved, p)
		s.idle = append(s.idle, p)
		t.status(s)
		return
	}
	s.inForce = true
	r.bound = true
	before := len(t.policies)
	t.give(r, namespace, s.ref, sources)
	if len(t.policies) == before && len(r.rules) > 0 {
		t.add(s, &s.idle, resource.Problem(codeScope, "OutOfScope", "roleRef.name",
			fmt.Sprintf("the role names nothing of namespace %s, where this binding gives it", namespace), "bind it in the namespace that its resources name"))
	}
	t.status(s)
}

// subjectSources are the clients that a subject means. Without a namespace it is of the binding's, and of any for a
// cluster's binding.
func subjectSources(s access.Subject, namespace, field string) []model.Source {
	in, name := s.Namespace, s.Name
	if in == "" {
		in = namespace
	}
	if name == access.Any {
		name = ""
	}
	switch {
	case s.Kind == access.Node:
		return []model.Source{{Kind: model.KindNode, Name: name, Field: field}}
	case s.Kind != access.AnyKind:
		return []model.Source{{Kind: string(s.Kind), Namespace: in, Name: name, Field: field}}
	case name == "":
		return []model.Source{{Namespace: in, Field: field}}
	}
	out := []model.Source{{Kind: model.KindNode, Name: name, Field: field}}
	for _, kind := range clientKinds {
		out = append(out, model.Source{Kind: string(kind), Namespace: in, Name: name, Field: field})
	}
	return out
}

// clientKinds are the kinds of subjects that belong to a namespace.
var clientKinds = []access.WorkloadKind{
	access.ServiceAccount, access.Pod, access.ReplicationController, access.DaemonSet, access.Deployment, access.ReplicaSet, access.StatefulSet, access.Job,
}

// checkSubject reports a subject that does not exist.
func (t *translator) checkSubject(s *subject, sub access.Subject, namespace, field string) {
	in := sub.Namespace
	if in == "" {
		in = namespace
	}
	if sub.Kind == access.AnyKind || sub.Kind == access.Node || sub.Name == access.Any || in == "" {
		return
	}
	kind := string(sub.Kind)
	if exists, _ := t.exists(kind, in, sub.Name); exists {
		return
	}
	t.add(s, &s.unresolved, t.absent(codeSubjectNotFound, "SubjectNotFound", field, t.set.Kinds().Key(model.Ref{Kind: kind, Namespace: in, Name: sub.Name}), ": this subject is nobody"))
}
