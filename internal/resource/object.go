package resource

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Kind is a kind that a Set holds, as an API server knows it.
type Kind struct {
	Group, Name string
	// Cluster means that its objects belong to no namespace.
	Cluster bool
	// Versions are the versions that can be read, the preferred one first.
	Versions []string
	// Custom means that it has a custom resource definition, which may be missing or serve other versions.
	Custom bool
}

// Kinds returns the kinds that a Set holds of a cluster. Endpoints is not one of them: a cluster has EndpointSlices.
func Kinds() []Kind {
	var all []Kind
	for _, k := range kinds {
		if k.group == "" && k.name == "Endpoints" {
			continue
		}
		all = append(all, Kind{Group: k.group, Name: k.name, Cluster: k.cluster, Versions: slices.Clone(k.versions), Custom: k.crd != ""})
	}
	return all
}

// Object is an object from an API server, decoded. It and everything it points to is shared and read-only.
type Object struct {
	entry entry
	meta  metav1.Object
}

// Key of the object.
func (o *Object) Key() Key { return o.entry.key }

// Value is the typed object, of one of the types in a Set; nil if it could not be decoded.
func (o *Object) Value() any { return o.entry.object }

// GetObjectMeta implements metav1.ObjectMetaAccessor. It is there for broken objects, too.
func (o *Object) GetObjectMeta() metav1.Object { return o.meta }

// Decode makes an Object of a custom resource that an API server has admitted, in any version that can be read. It
// takes ownership of u. If u cannot be decoded, the Object has findings and no value; the error is for an unknown kind.
func Decode(u *unstructured.Unstructured) (*Object, error) {
	group, version := u.GroupVersionKind().Group, u.GroupVersionKind().Version
	k := findKind(group, u.GetKind())
	if k == nil || k.crd == "" || !slices.Contains(k.versions, version) {
		return nil, fmt.Errorf("%s of %s is not read", u.GetKind(), u.GetAPIVersion())
	}
	o := &Object{entry: entry{key: Key{Group: group, Kind: k.name, Namespace: u.GetNamespace(), Name: u.GetName()}}}
	o.entry.object, o.entry.findings = k.decode(k, version, u.Object, admitted)
	if o.entry.object == nil && u.Object["status"] != nil {
		// The status may be at fault, which others wrote.
		delete(u.Object, "status")
		u.SetAPIVersion(k.apiVersion(version))
		o.entry.object, o.entry.findings = k.decode(k, version, u.Object, admitted)
	}
	if o.entry.object == nil {
		u.SetAPIVersion(k.apiVersion(version))
		_, why := k.decode(k, version, u.Object, admit) // it names fields
		why = slices.DeleteFunc(why, func(f Finding) bool { return f.Code == CodeUnchecked })
		if len(why) > 0 {
			o.entry.findings = why
		}
		o.meta = &metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), Generation: u.GetGeneration()}
	} else {
		o.meta = o.entry.object.(metav1.ObjectMetaAccessor).GetObjectMeta()
	}
	o.locate()
	return o, nil
}

// admitted replaces the admission for objects that an API server has admitted: it only reports what the released API
// would refuse.
func admitted(_ *kind, _ string, u map[string]any) ([]Finding, bool) { return checkMirrors(u), true }

// Adopt makes an Object of one of Kubernetes' own kinds, as an API server serves it. It panics for other types.
func Adopt(object metav1.ObjectMetaAccessor) *Object {
	o := &Object{meta: object.GetObjectMeta()}
	e := &o.entry
	e.object = object
	e.key = Key{Namespace: o.meta.GetNamespace(), Name: o.meta.GetName()}
	written := make(map[string]any)
	switch v := object.(type) {
	case *corev1.Service:
		e.key.Kind = "Service"
	case *corev1.Namespace:
		e.key.Kind = "Namespace"
	case *discoveryv1.EndpointSlice:
		e.key.Group, e.key.Kind = discoveryv1.GroupName, "EndpointSlice"
	case *corev1.Secret:
		e.key.Kind = "Secret"
	case *corev1.ConfigMap:
		e.key.Kind = "ConfigMap"
		if _, ok := v.Data[bundleKey]; ok {
			written["data"] = map[string]any{bundleKey: nil}
		}
	default:
		panic(fmt.Sprintf("%T is not read", object))
	}
	held, broken := certify(object, written)
	e.certified = held
	if broken != nil {
		e.findings = append(e.findings, *broken)
	}
	o.locate()
	return o
}

func (o *Object) locate() {
	k := o.entry.key
	for i := range o.entry.findings {
		f := &o.entry.findings[i]
		f.Ref.Kind, f.Ref.Namespace, f.Ref.Name = k.Ref().Kind, k.Namespace, k.Name
	}
}

// compareKeys orders objects of one kind as a Set does.
func compareKeys(a, b Key) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}
