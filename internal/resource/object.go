package resource

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Object is a decoded object from an API server. The object and its parts are shared and read-only.
type Object struct {
	entry entry
	meta  metav1.Object
}

// Key of the object.
func (o *Object) Key() Key { return o.entry.key }

// Value returns the typed object, of one of the types in a Set; nil if it could not be decoded.
func (o *Object) Value() any { return o.entry.object }

// GetObjectMeta implements metav1.ObjectMetaAccessor. It also works for broken objects.
func (o *Object) GetObjectMeta() metav1.Object { return o.meta }

// Decode makes an Object from a custom resource, or one of which an excerpt is read, that an API server has admitted, in any version that Weir reads. It
// takes ownership of u. If u cannot be decoded, the Object has findings and no value. The error reports a kind that
// Weir does not read.
func Decode(kinds Kinds, u *unstructured.Unstructured) (*Object, error) {
	group, version := u.GroupVersionKind().Group, u.GroupVersionKind().Version
	k := kinds.Find(group, u.GetKind())
	if k == nil || !k.Custom() && !k.Excerpt() || !slices.Contains(k.Versions, version) {
		return nil, fmt.Errorf("%s of %s is not read", u.GetKind(), u.GetAPIVersion())
	}
	o := &Object{entry: entry{key: k.Key(u.GetNamespace(), u.GetName())}}
	o.entry.object, o.entry.findings = k.Decoder.decode(k, version, u.Object, admitted)
	if o.entry.object == nil && u.Object["status"] != nil {
		// The status may be at fault; others wrote it.
		delete(u.Object, "status")
		u.SetAPIVersion(k.APIVersion(version))
		o.entry.object, o.entry.findings = k.Decoder.decode(k, version, u.Object, admitted)
	}
	if o.entry.object == nil {
		u.SetAPIVersion(k.APIVersion(version))
		_, why := k.Decoder.decode(k, version, u.Object, admit) // it names fields
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

// admitted is the admission of objects that an API server has admitted. It reports only what the released API would
// reject.
func admitted(_ *Kind, _ string, u map[string]any) ([]Finding, bool) { return checkMirrors(u), true }

// Adopt makes an Object from one of Kubernetes' own kinds, as an API server serves it. It panics for types that Weir
// does not read.
func Adopt(kinds Kinds, object metav1.ObjectMetaAccessor) *Object {
	o := &Object{meta: object.GetObjectMeta()}
	e := &o.entry
	e.object = object
	e.key = kinds.holding(object).Key(o.meta.GetNamespace(), o.meta.GetName())
	written := make(map[string]any)
	if v, ok := object.(*corev1.ConfigMap); ok {
		if _, ok := v.Data[bundleKey]; ok {
			written["data"] = map[string]any{bundleKey: nil}
		}
	}
	certificate, broken := certify(object, written)
	e.certified = certificate
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
