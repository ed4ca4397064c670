// Package workload reads the kinds of Kubernetes that run pods, as far as it matters who a pod is: its labels, its
// ServiceAccount, what owns it, its ports and where it runs. Everything else in these objects is neither kept nor
// judged.
//
// It knows no policy; dialect/access asks it which pods there are.
package workload

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/resource"
)

// Object is a pod, or something that runs pods; then the fields about pods are those of its template.
type Object struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// PodLabels are the labels of the pods, Account is the name of their ServiceAccount.
	PodLabels map[string]string
	Account   string
	Ports     []Port
	// Node and Addresses, which are IP addresses, are a pod's once it runs.
	Node      string
	Addresses []string
	// HostNetwork means that the addresses are the node's.
	HostNetwork bool
	// Windows means that the pods run there, Static that the kubelet runs the pod from a file.
	Windows, Static bool
	// Sidecar means that the pod has a container by the name of SidecarContainer that runs beside the others, and so proves
	// its identity to clients that ask for it. Strict means that it refuses clients who have none.
	Sidecar, Strict bool
	// Serving means that a pod's sidecar runs, and had an identity and a configuration when it began.
	Serving bool
}

// SidecarContainer is the name of the container that is a pod's sidecar.
const SidecarContainer = "weir-sidecar"

// PlainText is the annotation of pods that says how clients without an identity are met: PlainTextRefused, or
// PlainTextServed, the default.
const (
	PlainText        = "weirmesh.github.io/plain-text"
	PlainTextRefused = "refused"
	PlainTextServed  = "served"
)

// Port is a port of a container.
type Port struct {
	Name   string
	Number int32
	UDP    bool
}

// The kinds, each a type of its own, by which a Set tells them apart.
type (
	// Pod is of v1.
	Pod struct{ Object }
	// ReplicationController is of v1.
	ReplicationController struct{ Object }
	// Deployment is of apps/v1.
	Deployment struct{ Object }
	// ReplicaSet is of apps/v1.
	ReplicaSet struct{ Object }
	// StatefulSet is of apps/v1.
	StatefulSet struct{ Object }
	// DaemonSet is of apps/v1.
	DaemonSet struct{ Object }
	// Job is of batch/v1.
	Job struct{ Object }
)

// ServiceAccount is of v1.
type ServiceAccount struct {
	metav1.TypeMeta
	metav1.ObjectMeta
}

// DefaultAccount is the ServiceAccount of pods that name none.
const DefaultAccount = "default"

func (o *Object) object() *Object { return o }

// Pods are the pods of which one is like another: one that is known by itself, or those of a template that has no known
// ones.
type Pods struct {
	*Object
	// Kind is "Pod", or that of the template's object.
	Kind string
	// Owners are what runs the pods, directly and indirectly, the nearest first; the object of the template among them.
	Owners []Owner
}

// Owner is an object that runs pods of its namespace.
type Owner struct{ Kind, Name string }

// Of returns the pods of a set, by namespace, kind and name. A template of something that has known pods, or that is run
// by something else in the set, is not among them.
func Of(set *resource.Set) []Pods {
	known := map[resource.Key]*Object{}
	var all []Pods
	each(set, func(kind string, o *Object) {
		known[resource.Key{Kind: kind, Namespace: o.Namespace, Name: o.Name}] = o
		all = append(all, Pods{Object: o, Kind: kind})
	})
	run := map[resource.Key]bool{} // what has known pods, or is run by something known
	for i := range all {
		p := &all[i]
		p.Owners = owners(p.Object, known)
		if p.Kind != "Pod" {
			own := resource.Key{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}
			if len(p.Owners) > 0 && known[resource.Key{Kind: p.Owners[0].Kind, Namespace: p.Namespace, Name: p.Owners[0].Name}] != nil {
				run[own] = true
			}
			p.Owners = slices.Insert(p.Owners, 0, Owner{p.Kind, p.Name})
			continue
		}
		for _, o := range p.Owners {
			run[resource.Key{Kind: o.Kind, Namespace: p.Namespace, Name: o.Name}] = true
		}
	}
	all = slices.DeleteFunc(all, func(p Pods) bool { // a Pod remains that runs others
		return p.Kind != "Pod" && run[resource.Key{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}]
	})
	slices.SortFunc(all, func(a, b Pods) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Same reports whether two sets have the very same pods, and the same objects that run pods: then Of is the same for both.
func Same(a, b *resource.Set) bool {
	return slices.Equal(PodList.In(a), PodList.In(b)) &&
		slices.Equal(replicationControllers.In(a), replicationControllers.In(b)) && slices.Equal(deployments.In(a), deployments.In(b)) &&
		slices.Equal(replicaSets.In(a), replicaSets.In(b)) && slices.Equal(statefulSets.In(a), statefulSets.In(b)) &&
		slices.Equal(daemonSets.In(a), daemonSets.In(b)) && slices.Equal(jobs.In(a), jobs.In(b))
}

// byName are the kinds in the order in which a name alone means them.
var byName = [...]string{"Pod", "DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"}

// Named returns the pods that a name alone means, of those that Of returned: the Pod of that name or, if there is no such
// Pod, what runs pods under that name; nil if there is neither.
func Named(all []Pods, namespace, name string) *Pods {
	for _, kind := range byName {
		i, ok := slices.BinarySearchFunc(all, resource.Key{Kind: kind, Namespace: namespace, Name: name}, func(p Pods, k resource.Key) int {
			return cmp.Or(cmp.Compare(p.Namespace, k.Namespace), cmp.Compare(p.Kind, k.Kind), cmp.Compare(p.Name, k.Name))
		})
		if ok {
			return &all[i]
		}
	}
	return nil
}

// Find returns what is written for an object that is a pod or runs pods, be they known or not, with its owners.
func Find(set *resource.Set, kind, namespace, name string) (p Pods, ok bool) {
	known := map[resource.Key]*Object{}
	each(set, func(of string, o *Object) {
		known[resource.Key{Kind: of, Namespace: o.Namespace, Name: o.Name}] = o
	})
	o := known[resource.Key{Kind: kind, Namespace: namespace, Name: name}]
	if o == nil {
		return Pods{}, false
	}
	p = Pods{Object: o, Kind: kind, Owners: owners(o, known)}
	if kind != "Pod" {
		p.Owners = slices.Insert(p.Owners, 0, Owner{kind, name})
	}
	return p, true
}

// Owners returns what finds out what runs an object, which need not be in the set itself: directly and indirectly, the
// nearest first.
func Owners(set *resource.Set) func(*Object) []Owner {
	known := map[resource.Key]*Object{}
	each(set, func(kind string, o *Object) {
		known[resource.Key{Kind: kind, Namespace: o.Namespace, Name: o.Name}] = o
	})
	return func(o *Object) []Owner { return owners(o, known) }
}

// maxOwners bounds a chain of owners. Kubernetes has two: a Pod's ReplicaSet, and the Deployment of that.
const maxOwners = 8

// owners follows the references to controllers.
func owners(o *Object, known map[resource.Key]*Object) (out []Owner) {
	for len(out) < maxOwners {
		ref := metav1.GetControllerOf(&o.ObjectMeta)
		if ref == nil || slices.Contains(out, Owner{ref.Kind, ref.Name}) {
			return out
		}
		out = append(out, Owner{ref.Kind, ref.Name})
		next := known[resource.Key{Kind: ref.Kind, Namespace: o.Namespace, Name: ref.Name}]
		if next == nil {
			return out
		}
		o = next
	}
	return out
}
