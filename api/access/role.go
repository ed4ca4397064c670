package access

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TrafficRole says which requests may be sent to resources of its own namespace, to whom a binding gives it.
type TrafficRole struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Rules are never nil. Each of them allows something; none allows nothing.
	Rules []Rule `json:"rules"`
	// Status is as it was read, whoever wrote it. Files have none.
	Status map[string]any `json:"status,omitempty"`
}

// ClusterTrafficRole is a TrafficRole for resources of every namespace, or of those that its resources name.
type ClusterTrafficRole struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Rules             []Rule         `json:"rules"`
	Status            map[string]any `json:"status,omitempty"`
}

// Rule allows requests to any of its resources, by any of its methods, to any of its paths. A list that is nil was not
// written and does not restrict; one that is empty names nothing, so that the rule allows nothing.
type Rule struct {
	Resources []Resource `json:"resources,omitzero"`
	// Methods are methods in upper case, or Any.
	Methods []string `json:"methods,omitzero"`
	// Paths are regular expressions, which must match from the start of the path, or Any. They are only text here.
	Paths []string `json:"paths,omitzero"`
}

// Resource is what serves the requests.
type Resource struct {
	// Kind is Service, a workload or AnyKind.
	Kind WorkloadKind `json:"kind"`
	// Name may be Any.
	Name string `json:"name"`
	// Namespace is only in a ClusterTrafficRole, where it may be Any; empty means that it was not written.
	Namespace string `json:"namespace,omitempty"`
}

// TrafficRoleBinding gives a role to subjects, for resources of its own namespace.
type TrafficRoleBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Subjects are never nil. None are nobody.
	Subjects []Subject      `json:"subjects"`
	RoleRef  RoleRef        `json:"roleRef"`
	Status   map[string]any `json:"status,omitempty"`
}

// ClusterTrafficRoleBinding gives a ClusterTrafficRole to subjects, for resources of every namespace.
type ClusterTrafficRoleBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Subjects          []Subject      `json:"subjects"`
	RoleRef           RoleRef        `json:"roleRef"`
	Status            map[string]any `json:"status,omitempty"`
}

// Subject is who sends requests.
type Subject struct {
	// Kind is ServiceAccount, Node, a workload or AnyKind.
	Kind WorkloadKind `json:"kind"`
	// Name may be Any.
	Name string `json:"name"`
	// Namespace is empty if it was not written: a TrafficRoleBinding means its own then, a ClusterTrafficRoleBinding any.
	// A Node has none.
	Namespace string `json:"namespace,omitempty"`
}

// RoleRef names the role. A TrafficRole is one of the binding's own namespace.
type RoleRef struct {
	// Kind is "TrafficRole" or "ClusterTrafficRole"; in a ClusterTrafficRoleBinding always the latter.
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// WorkloadKind is the Kind of a resource or a subject, whichever way it was written.
type WorkloadKind string

// The kinds of resources and subjects. Service is a resource only, ServiceAccount and Node are subjects only.
const (
	AnyKind               WorkloadKind = Any
	Pod                   WorkloadKind = "Pod"
	ReplicationController WorkloadKind = "ReplicationController"
	DaemonSet             WorkloadKind = "DaemonSet"
	Deployment            WorkloadKind = "Deployment"
	ReplicaSet            WorkloadKind = "ReplicaSet"
	StatefulSet           WorkloadKind = "StatefulSet"
	Job                   WorkloadKind = "Job"
	Service               WorkloadKind = "Service"
	ServiceAccount        WorkloadKind = "ServiceAccount"
	Node                  WorkloadKind = "Node"
)

// APIGroup is the group of the kind, "" for AnyKind.
func (k WorkloadKind) APIGroup() string {
	switch k {
	case Deployment, ReplicaSet, StatefulSet, DaemonSet:
		return "apps"
	case Job:
		return "batch"
	}
	return ""
}

var (
	workloads     = []WorkloadKind{Pod, ReplicationController, DaemonSet, Deployment, ReplicaSet, StatefulSet, Job}
	resourceKinds = spellings(append([]WorkloadKind{Service}, workloads...))
	subjectKinds  = spellings(append([]WorkloadKind{ServiceAccount, Node}, workloads...))
)

// DecodeTrafficRole reads the object u, written in the given version, or returns what is wrong with every field. It checks
// the form, never what names refer to. It does not change u.
func DecodeTrafficRole(version string, u map[string]any) (*TrafficRole, field.ErrorList) {
	r := &TrafficRole{TypeMeta: typeMeta("TrafficRole", Draft)}
	d := start(version, RoleVersions, u, &r.ObjectMeta)
	r.Rules, r.Status = d.role(u, false)
	return result(d, r)
}

// DecodeClusterTrafficRole is as DecodeTrafficRole.
func DecodeClusterTrafficRole(version string, u map[string]any) (*ClusterTrafficRole, field.ErrorList) {
	r := &ClusterTrafficRole{TypeMeta: typeMeta("ClusterTrafficRole", Draft)}
	d := start(version, RoleVersions, u, &r.ObjectMeta)
	r.Rules, r.Status = d.role(u, true)
	return result(d, r)
}

// DecodeTrafficRoleBinding is as DecodeTrafficRole.
func DecodeTrafficRoleBinding(version string, u map[string]any) (*TrafficRoleBinding, field.ErrorList) {
	b := &TrafficRoleBinding{TypeMeta: typeMeta("TrafficRoleBinding", Draft)}
	d := start(version, RoleVersions, u, &b.ObjectMeta)
	b.Subjects, b.RoleRef, b.Status = d.binding(u, "TrafficRole", "ClusterTrafficRole")
	return result(d, b)
}

// DecodeClusterTrafficRoleBinding is as DecodeTrafficRole.
func DecodeClusterTrafficRoleBinding(version string, u map[string]any) (*ClusterTrafficRoleBinding, field.ErrorList) {
	b := &ClusterTrafficRoleBinding{TypeMeta: typeMeta("ClusterTrafficRoleBinding", Draft)}
	d := start(version, RoleVersions, u, &b.ObjectMeta)
	b.Subjects, b.RoleRef, b.Status = d.binding(u, "ClusterTrafficRole")
	return result(d, b)
}

func (d *decoder) role(u map[string]any, cluster bool) (rules []Rule, status map[string]any) {
	root := d.root(u, "rules")
	root.required("rules", "write what is allowed; an empty list allows nothing")
	if root.list("rules", MaxRules, func(v any, at *field.Path) { rules = append(rules, d.rule(v, at, cluster)) }) && rules == nil {
		rules = []Rule{}
	}
	return rules, root.status()
}

func (d *decoder) rule(v any, at *field.Path, cluster bool) (r Rule) {
	o := d.object(v, at, "resources", "methods", "paths")
	if o.list("resources", MaxResources, func(v any, at *field.Path) { r.Resources = append(r.Resources, d.resource(v, at, cluster)) }) && r.Resources == nil {
		r.Resources = []Resource{}
	}
	r.Methods = o.texts("methods", MaxMethods, isMethod)
	r.Paths = o.texts("paths", MaxPaths, isPath)
	return r
}

func (d *decoder) resource(v any, at *field.Path, cluster bool) (r Resource) {
	known := []string{"kind", "name"}
	if cluster {
		known = append(known, "namespace")
	} else if u, ok := v.(map[string]any); ok && u["namespace"] != nil {
		d.fail(field.Forbidden(at.Child("namespace"), "the resources are those of the role's own namespace: remove it, or write a ClusterTrafficRole"))
		return r
	}
	o := d.object(v, at, known...)
	r.Kind = o.kind(resourceKinds)
	r.Name = o.text("name", true, isNameOrAny)
	if cluster {
		r.Namespace = o.text("namespace", false, isNamespaceOrAny)
	}
	return r
}

func (d *decoder) binding(u map[string]any, roles ...string) (subjects []Subject, ref RoleRef, status map[string]any) {
	root := d.root(u, "subjects", "roleRef")
	root.required("subjects", "write who gets the role; an empty list is nobody")
	if root.list("subjects", MaxSubjects, func(v any, at *field.Path) { subjects = append(subjects, d.subject(v, at)) }) && subjects == nil {
		subjects = []Subject{}
	}
	if v, ok := root.u["roleRef"]; ok {
		o := d.object(v, root.at.Child("roleRef"), "kind", "name", "apiGroup")
		ref.Kind = o.oneOf("kind", roles)
		ref.Name = o.text("name", true, isName)
		o.group("apiGroup", "", Group)
	} else {
		d.fail(field.Required(field.NewPath("roleRef"), "name the role that the subjects get"))
	}
	return subjects, ref, root.status()
}

func (d *decoder) subject(v any, at *field.Path) (s Subject) {
	o := d.object(v, at, "kind", "name", "namespace", "apiGroup")
	s.Kind = o.kind(subjectKinds)
	s.Name = o.text("name", true, isNameOrAny)
	s.Namespace = o.text("namespace", false, isNamespace)
	if s.Kind == Node && s.Namespace != "" {
		d.fail(field.Forbidden(at.Child("namespace"), "Nodes belong to no namespace: remove it"))
	}
	o.group("apiGroup", "", s.Kind.APIGroup())
	return s
}

// ResourceKind returns the kind that a spelling of a resource's kind means.
func ResourceKind(spelling string) (kind WorkloadKind, ok bool) {
	kind, ok = resourceKinds[spelling]
	return kind, ok
}

// SubjectKind returns the kind that a spelling of a subject's kind means.
func SubjectKind(spelling string) (kind WorkloadKind, ok bool) {
	kind, ok = subjectKinds[spelling]
	return kind, ok
}
