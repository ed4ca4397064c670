package rollout

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// WrittenSelector is the selector of a Service as its user wrote it. While a release goes on, a Service is restricted to
// the pods of one version, by Weir or by OpenKruise, which does not note how it was: labels by which Kubernetes tells
// versions apart are never written by hand, as nobody knows their values before. The selector stays as it is if it has no
// others, and of a Service that was made for a release.
func WrittenSelector(s *corev1.Service) map[string]string {
	selector := s.Spec.Selector
	if by := metav1.GetControllerOfNoCopy(s); by != nil && by.Kind == "Rollout" {
		return selector
	}
	if _, kept := s.Annotations[OriginalAnnotation]; kept {
		if u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s); err == nil {
			if was, err := Original(u); err == nil {
				selector, _, _ = unstructured.NestedStringMap(was.Object, "spec", "selector")
			}
		}
	}
	for _, label := range []string{appsv1.DefaultDeploymentUniqueLabelKey, appsv1.ControllerRevisionHashLabelKey} {
		if _, restricted := selector[label]; restricted && len(selector) > 1 {
			selector = maps.Clone(selector)
			delete(selector, label)
		}
	}
	return selector
}
