package rollouts

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

// marked waits until so many pods of an image have the label and the annotation of extra pods, and no others have either.
func (w *world) marked(image string, want int) {
	w.Helper()
	err := within(w.Context(), func() error {
		var pods corev1.PodList
		if err := admin.List(w.Context(), &pods, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		n := 0
		for _, p := range pods.Items {
			label, annotation := p.Labels["track"] == "canary", p.Annotations["example.com/note"] == "of the canary"
			switch {
			case label != annotation:
				return fmt.Errorf("the pod %s has labels %v, annotations %v", p.Name, p.Labels, p.Annotations)
			case label && p.Spec.Containers[0].Image != image:
				return fmt.Errorf("the pod %s of %s has the metadata", p.Name, p.Spec.Containers[0].Image)
			case label:
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%d pods have the metadata, want %d", n, want)
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

// TestExtraPodsHaveTheirOwnMetadata: extra pods have the labels and annotations of patchPodTemplateMetadata from their start, no
// other pod has them, and nothing has them when the release is over, though controllers are killed in between.
func TestExtraPodsHaveTheirOwnMetadata(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	t.Parallel()
	w := newWorld(t, "Deployment", "replicas: 3", "{canary: {enableExtraWorkloadForCanary: true, "+route+
		", patchPodTemplateMetadata: {labels: {track: canary}, annotations: {example.com/note: of the canary}}, steps: [{traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 2}]}}")
	w.settled("v1")
	before := w.written()
	c := w.start(3, true)
	w.until(rollouts.PhaseHealthy, 0)
	w.permit()

	w.release("v2")
	w.until(rollouts.PhaseProgressing, 1)
	w.marked("v2", 1)
	w.approve()
	w.until(rollouts.PhaseProgressing, 2)
	w.marked("v2", 2)
	w.shows("get web", "Service web-canary: 2 of 2 pods ready, v2", "revision 1 (stable), Service web: 3 of 3 pods ready, v1")
	w.approve()
	w.until(rollouts.PhaseHealthy, 0)
	w.same(before, "v2")
	w.marked("v2", 0)
	w.shows("history web", "v1", "v2")
	var sets appsv1.ReplicaSetList
	if err := admin.List(t.Context(), &sets, client.InNamespace(w.namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range sets.Items {
		rs := &sets.Items[i]
		marked, number := rs.Spec.Template.Labels["track"] == "canary", rs.Annotations["deployment.kubernetes.io/revision"]
		if extra := workload.ExtraOf(rs) != ""; extra != marked || extra != (number == "") || extra && *rs.Spec.Replicas != 0 {
			t.Errorf("ReplicaSet %s has %d pods, annotations %v, template %v", rs.Name, *rs.Spec.Replicas, rs.Annotations, rs.Spec.Template.Labels)
		}
	}

	w.does("releases it step by step", "undo", "web") // to v1, and not to what extra pods were
	w.until(rollouts.PhaseProgressing, 1)
	w.marked("v1", 1)
	w.does("template of revision", "undo", "web")
	w.until(rollouts.PhaseHealthy, 0)
	w.same(before, "v2")
	w.marked("v2", 0)

	w.release("v3")
	w.until(rollouts.PhaseProgressing, 1)
	// A change of the metadata is for the next release.
	w.patch(rolloutKind, `{"spec":{"strategy":{"canary":{"patchPodTemplateMetadata":{"labels":{"track":"other"}}}}}}`)
	w.until(rollouts.PhaseProgressing, 1)
	w.marked("v3", 1)
	w.patch(rolloutKind, `{"spec":{"strategy":{"canary":{"patchPodTemplateMetadata":{"labels":{"track":"canary"}}}}}}`)
	w.approve()
	w.until(rollouts.PhaseProgressing, 2)
	w.marked("v3", 2)
	w.release("v4")
	w.until(rollouts.PhaseProgressing, 1)
	w.marked("v4", 1)
	w.does("All requests go to the stable version", "abort", "web")
	w.until(rollouts.PhaseHealthy, 0)
	w.marked("v4", 0)
	w.does("begins again with its first step", "retry", "web")
	w.until(rollouts.PhaseProgressing, 1)
	w.marked("v4", 1)
	u, err := w.get(rolloutKind)
	if err == nil {
		err = admin.Delete(t.Context(), u)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.same(before, "v4")
	w.marked("v4", 0)
	c.stop()
}

// TestMetadataThatSelectorsDoNotMatchIsRefused: without a webhook the status names field, reason and fix, and no pod is touched.
func TestMetadataThatSelectorsDoNotMatchIsRefused(t *testing.T) {
	w := newWorld(t, "Deployment", "replicas: 1", "{canary: {enableExtraWorkloadForCanary: true, "+route+", patchPodTemplateMetadata: {labels: {app: other}}, steps: [{traffic: 20%, replicas: 1}]}}")
	w.settled("v1")
	c := w.start(4, false)
	err := within(t.Context(), func() error {
		s, _, err := w.status()
		if want := "spec.strategy.canary.patchPodTemplateMetadata.labels[app]: Deployment web selects pods by app=web, so those with app=other would not be its own: use another label."; err == nil && s.Message != want {
			err = fmt.Errorf("the Rollout says %q, want %q", s.Message, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c.stop()
}
