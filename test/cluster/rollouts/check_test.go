package rollouts

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/cli"
)

// TestCheckJudgesTheRolloutsOfACluster as it judges those of files: by the objects that they name, as their users wrote them.
func TestCheckJudgesTheRolloutsOfACluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "Deployment", "replicas: 1", "{canary: {"+route+", steps: [{traffic: 20%, replicas: 1, pause: {}}]}}")
	labels := map[string]string{"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "controller"}
	nobody := int32(0)
	controller := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "weir-controller", Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: &nobody, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "controller", Image: "weir:1",
				Args: []string{"controller", "--rollouts", "--namespaces=" + w.namespace}}}},
		}},
	}
	if err := admin.Create(t.Context(), controller); err != nil {
		t.Fatal(err)
	}
	check := func(want ...string) {
		t.Helper()
		err := within(t.Context(), func() error {
			var out, errs bytes.Buffer
			cli.Main([]string{"kubectl-weir", "check", "--kubeconfig", server.Kubeconfig, "-n", w.namespace, "--controller-namespace", w.namespace}, nil, &out, &errs)
			if !strings.Contains(out.String(), "objects:") {
				return fmt.Errorf("it says %s%s", out.String(), errs.String())
			}
			var found []string
			object := ""
			for line := range strings.Lines(out.String()) {
				if f := strings.Fields(line); len(f) == 2 && line[0] != ' ' {
					object = f[0]
				} else if object == "Rollout" && len(f) == 3 && strings.HasPrefix(f[1], "WR") {
					found = append(found, f[1]+" "+f[2])
				}
			}
			if strings.Join(found, ", ") != strings.Join(want, ", ") {
				return fmt.Errorf("found %q, want %q, in\n%s", found, want, out.String())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.settled("v1")
	w.start(0, false)
	w.until(rollouts.PhaseHealthy, 0)
	check()
	w.release("v2")
	w.until(rollouts.PhaseProgressing, 1)
	check() // the step is laid over the route
	u, err := w.get(routeKind)
	if err == nil {
		err = admin.Delete(t.Context(), u)
	}
	if err != nil {
		t.Fatal(err)
	}
	check("WR903 spec.strategy.canary.trafficRoutings[0].gateway.httpRouteName")

	other := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": rolloutKind.GroupVersion().String(), "kind": "Rollout", "metadata": map[string]any{"name": "other", "namespace": w.namespace},
		"spec": map[string]any{
			"workloadRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "absent"},
			"strategy":    map[string]any{"canary": map[string]any{"steps": []any{map[string]any{"replicas": int64(1), "traffic": "20%"}}}},
		},
	}}
	if err := admin.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	check("WR910 spec.strategy.canary.steps[0]", "WR922 spec.workloadRef.name", "WR903 spec.strategy.canary.trafficRoutings[0].gateway.httpRouteName")
}
