package inject_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/inject"
)

// TestOtherMeshesOfANamespaceAreKnown, by the values that ask alone.
func TestOtherMeshesOfANamespaceAreKnown(t *testing.T) {
	for _, c := range []struct {
		labels, annotations map[string]string
		field, mesh         string
	}{
		{map[string]string{"istio-injection": "enabled"}, nil, "metadata.labels[istio-injection]", "Istio"},
		{map[string]string{"istio-injection": "disabled", "istio.io/dataplane-mode": "none", "team": "a"}, map[string]string{"linkerd.io/inject": "disabled"}, "", ""},
		{map[string]string{"istio.io/rev": "canary"}, nil, "metadata.labels[istio.io/rev]", "Istio"},
		{map[string]string{"istio.io/dataplane-mode": "ambient"}, nil, "metadata.labels[istio.io/dataplane-mode]", "Istio"},
		{nil, map[string]string{"linkerd.io/inject": "ingress"}, "metadata.annotations[linkerd.io/inject]", "Linkerd"},
		{nil, map[string]string{"openservicemesh.io/sidecar-injection": "yes"}, "metadata.annotations[openservicemesh.io/sidecar-injection]", "Open Service Mesh"},
		{nil, nil, "", ""},
	} {
		field, mesh := inject.MeshOf(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, Annotations: c.annotations}})
		if field != c.field || mesh != c.mesh {
			t.Errorf("%v %v: %q %q, want %q %q", c.labels, c.annotations, field, mesh, c.field, c.mesh)
		}
	}
}
