package rollouts

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
)

// TestWithoutSurgeEachPodIsReplacedOnce: the Deployment's own controller, which gives its only ReplicaSet all pods even while it
// is paused, does not work against the release.
func TestWithoutSurgeEachPodIsReplacedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "Deployment", "replicas: 3\n  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}", "{canary: {"+route+", steps: [{traffic: 30%, replicas: 1}, {traffic: 60%, replicas: 2}]}}")
	w.settled("v1")
	before := w.written()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	names := map[string]bool{}
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			pods := &corev1.PodList{}
			if err := admin.List(ctx, pods, client.InNamespace(w.namespace)); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
			for _, p := range pods.Items {
				names[p.Name] = true
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	c := w.start(11, false)
	defer c.stop()
	w.until(rollouts.PhaseHealthy, 0)
	w.releaseHeld("v2")
	for step := range int32(2) {
		w.until(rollouts.PhaseProgressing, step+1)
		w.approve()
	}
	w.until(rollouts.PhaseHealthy, 0)
	w.same(before, "v2")
	w.releaseHeld("v3")
	w.until(rollouts.PhaseProgressing, 1)
	w.releaseHeld("v2")
	w.until(rollouts.PhaseHealthy, 0)
	w.same(before, "v2")
	cancel()
	watching.Wait()
	if len(names) != 8 { // three of each version, then one that is taken back, and one in its place
		t.Errorf("%d pods came, want 8: %v", len(names), names)
	}
}
