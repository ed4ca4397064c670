package release

import (
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/internal/rollout"
)

// over is an object of ours as it is, with everything that it should have. An API server has set more in a Service's spec.
func over(there, want *unstructured.Unstructured) *unstructured.Unstructured {
	out := there.DeepCopy()
	for field, v := range want.Object {
		now, _ := out.Object[field].(map[string]any)
		more, _ := v.(map[string]any)
		switch {
		case envelope[field]:
		case now != nil && more != nil && there.GetKind() == "Service":
			maps.Copy(now, more)
		default:
			out.Object[field] = v
		}
	}
	out.SetLabels(want.GetLabels())
	out.SetAnnotations(want.GetAnnotations())
	return out
}

// envelope are the fields of an object that are not its content.
var envelope = map[string]bool{"apiVersion": true, "kind": true, "metadata": true, "status": true}

// sameObject compares what a step may change: spec, labels and annotations.
func sameObject(a, b map[string]any) bool {
	return reflect.DeepEqual(a["spec"], b["spec"]) && sameMeta(a, b, "labels") && sameMeta(a, b, "annotations")
}

func sameMeta(a, b map[string]any, which string) bool {
	x, _, _ := unstructured.NestedMap(a, "metadata", which)
	y, _, _ := unstructured.NestedMap(b, "metadata", which)
	return len(x) == 0 && len(y) == 0 || reflect.DeepEqual(x, y)
}

// carries reports whether an object has what was laid over it. An API server adds defaults to what a step added; so that
// nothing of an earlier step is taken for one, what was laid last has to be the same, too.
func carries(live, laid map[string]any) bool {
	annotations, _, _ := unstructured.NestedStringMap(laid, "metadata", "annotations")
	if annotations[rollout.LaidAnnotation] == "" {
		return sameObject(live, laid)
	}
	return sameMeta(live, laid, "labels") && sameMeta(live, laid, "annotations") && subset(live["spec"], laid["spec"])
}

// contains reports whether an object has everything that it should have. What an API server has set beside that is let be.
func contains(there, want map[string]any) bool {
	for _, which := range []string{"labels", "annotations"} {
		if !sameMeta(there, want, which) {
			return false
		}
	}
	for field, v := range want {
		if !envelope[field] && !subset(there[field], v) {
			return false
		}
	}
	return true
}

func subset(there, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		m, ok := there.(map[string]any)
		if !ok {
			return len(want) == 0
		}
		for k, v := range want {
			if !subset(m[k], v) {
				return false
			}
		}
		return true
	case []any:
		list, _ := there.([]any)
		if len(list) != len(want) {
			return false
		}
		for i := range want {
			if !subset(list[i], want[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(there, want)
}
