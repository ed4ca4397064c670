package resource

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Excerpt decodes objects of one of Kubernetes' own kinds of which only a part matters. It decodes the metadata and
// checks it as an API server does; read takes what is needed of the rest, and reports what is not valid there. Other
// fields are neither kept nor judged.
func Excerpt[T any, P customObject[T]](read func(u map[string]any, into P) field.ErrorList) Decoder {
	return Decoder{excerpt: true, decode: func(k *Kind, _ string, u map[string]any, _ admission) (any, []Finding) {
		object := P(new(T))
		meta, _ := u["metadata"].(map[string]any)
		var of metav1.ObjectMeta
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(meta, &of); err != nil {
			if _, findings, ok := decodeMeta(u); !ok {
				return nil, findings // in plain words
			}
			return nil, []Finding{metadataFinding(err, u)}
		}
		to := object.GetObjectMeta().(*metav1.ObjectMeta)
		// Annotations and managed fields are large, and nothing reads them.
		*to = metav1.ObjectMeta{
			Namespace: of.Namespace, Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion, Generation: of.Generation,
			CreationTimestamp: of.CreationTimestamp, DeletionTimestamp: of.DeletionTimestamp, Labels: of.Labels, OwnerReferences: of.OwnerReferences,
		}
		var findings []Finding
		for _, err := range validation.ValidateObjectMetaAccessor(object, !k.Cluster, nameRule(k), field.NewPath("metadata")) {
			findings = append(findings, fieldFinding(CodeMetadata, err, u))
		}
		for _, err := range read(u, object) {
			findings = append(findings, fieldFinding(CodeCoreInvalid, err, u))
		}
		if len(findings) > 0 {
			return nil, once(findings)
		}
		return object, nil
	}}
}

// SameExcerpt reports whether two objects of an excerpted kind differ in nothing that was taken from them. Objects that
// could not be decoded differ.
func SameExcerpt(a, b *Object) bool {
	before, after := stamped(a.Value()), stamped(b.Value())
	return before != nil && after != nil && equality.Semantic.DeepEqual(before, after)
}

// stamped returns a copy of an object without what an API server counts in it.
func stamped(object any) metav1.Object {
	v := reflect.ValueOf(object)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return nil
	}
	c := reflect.New(v.Type().Elem())
	c.Elem().Set(v.Elem())
	o, ok := c.Interface().(metav1.Object)
	if ok {
		o.SetResourceVersion("")
		o.SetGeneration(0)
	}
	return o
}
