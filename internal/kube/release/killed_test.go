package release

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// stateOf is what a stored status says of how far a release is.
func stateOf(s rollouts.Status) string {
	rel := s.Release()
	switch {
	case rel != nil && rel.FinalisingStep != "" && rel.FinalisingStep != rollouts.FinalisingEnd:
		return string(rel.FinalisingStep)
	case s.Phase == rollouts.PhaseProgressing:
		return string(s.CurrentStepState)
	}
	return string(s.Phase)
}

// endings are what becomes of a release of v2 that waits at its first step, and the image that the workload has in the end.
var endings = map[string]func(c *toy) (image string){
	"promoted": func(c *toy) string {
		c.approve()
		c.run(c.waits(2))
		c.approve()
		c.run(c.healthy)
		return "v2"
	},
	"rolled back": func(c *toy) string {
		c.edit(c.kind, func(u *unstructured.Unstructured) { setImage(u, "v1") })
		c.run(c.healthy)
		return "v1"
	},
	"aborted": func(c *toy) string {
		status := c.status()
		c.edit(rolloutKind, func(u *unstructured.Unstructured) {
			all := maps.Clone(u.GetAnnotations())
			all[rollout.AbortAnnotation] = status.Revision()
			u.SetAnnotations(all)
		})
		c.run(c.healthy)
		c.edit(c.kind, func(u *unstructured.Unstructured) { setImage(u, "v1") })
		c.run(func() bool {
			return c.objects[c.key(c.kind)].GetLabels()["rollouts.weirmesh.github.io/held"] == ""
		})
		c.run(func() bool { // until nothing but the annotation is left
			return c.healthy() && len(c.objects[c.key(rolloutKind)].GetAnnotations()) == 1
		})
		c.edit(rolloutKind, func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
		return "v1"
	},
	"replaced": func(c *toy) string {
		status := c.status()
		before := status.Revision()
		c.release("v3")
		c.run(func() bool { s := c.status(); return c.waits(1)() && s.Revision() != before })
		c.approve()
		c.run(c.waits(2))
		c.approve()
		c.run(c.healthy)
		return "v3"
	},
	"disabled": func(c *toy) string {
		c.edit(rolloutKind, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, true, "spec", "disabled")
		})
		c.run(func() bool {
			return c.status().Phase == rollouts.PhaseDisabled && len(c.objects[c.key(rolloutKind)].GetFinalizers()) == 0
		})
		return "v2"
	},
	"deleted": func(c *toy) string {
		c.edit(rolloutKind, func(u *unstructured.Unstructured) {
			now := metav1.Now()
			u.SetDeletionTimestamp(&now)
		})
		c.run(func() bool { return c.objects[c.key(rolloutKind)] == nil })
		return "v2"
	},
}

// TestAControllerMayBeKilledInEveryState kills it at each write of a release, in the short form at one, before it or after,
// whatever the kind of workload, the style and the end: the next one goes on, and at the end everything is as its user wrote it. Among the states in
// which it is killed are all that are stored: the other finalising steps are done together with those before them.
func TestAControllerMayBeKilledInEveryState(t *testing.T) {
	killed := map[string]bool{}
	const canary = "canary: {"
	styles := map[string]struct{ kind, text string }{
		"partition": {"Deployment", canary}, "extra pods": {"Deployment", "canary: {enableExtraWorkloadForCanary: true, "}, "blue-green": {"Deployment", "blueGreen: {"},
		"a StatefulSet": {"StatefulSet", canary}, "a DaemonSet": {"DaemonSet", canary},
	}
	cases := 0
	for i, style := range slices.Sorted(maps.Keys(styles)) {
		kind, text := styles[style].kind, styles[style].text
		for j, ending := range slices.Sorted(maps.Keys(endings)) {
			if style == "blue-green" && ending == "replaced" {
				continue // it takes no other version midway
			}
			if testing.Short() && (i+j)%2 != 0 { // every style and every ending, but not all pairs
				continue
			}
			t.Run(style+", "+ending, func(t *testing.T) {
				if cases++; testing.Short() {
					killedAt(t, kind, text, 1+7*cases%20, cases%2 == 0, endings[ending], killed)
					return
				}
				for _, after := range []bool{false, true} {
					for at := 1; killedAt(t, kind, text, at, after, endings[ending], killed) && !t.Failed(); at++ {
					}
				}
			})
		}
	}
	if testing.Short() {
		return
	}
	for _, state := range []string{
		string(rollouts.PhaseHealthy), string(rollouts.StepInit), string(rollouts.StepUpgrade), string(rollouts.StepTrafficRouting), string(rollouts.StepMetricsAnalysis),
		string(rollouts.StepPaused), string(rollouts.StepReady),
		string(rollouts.RouteTrafficToNew), string(rollouts.RouteTrafficToStable), string(rollouts.RestoreStableService),
		string(rollouts.ResumeWorkload), string(rollouts.PhaseDisabled), string(rollouts.PhaseTerminating),
	} {
		if !killed[state] {
			t.Errorf("none is killed in %s, but in %v", state, slices.Sorted(maps.Keys(killed)))
		}
	}
}

// killedAt has a release of a kind of workload and a style come to an end, while the controller is killed at one write. It is false if there are not so many.
func killedAt(t *testing.T, kind, style string, at int, after bool, end func(c *toy) string, states map[string]bool) (killed bool) {
	synctest.Test(t, func(t *testing.T) {
		c := newToyFor(t, kind, style, "{traffic: 10%, replicas: 1}, {traffic: 50%, replicas: 2}")
		c.counted = func(_ context.Context, of Count) (*rollout.Shared, error) {
			if time.Since(of.Since) < 3*time.Second {
				return &rollout.Shared{Unknown: "they are being read"}, nil
			}
			return nil, nil
		}
		c.start()
		before := c.written()
		c.left, c.after = at, after
		c.run(c.healthy)
		c.release("v2")
		c.run(c.waits(1))
		image := end(c)
		killed = c.left <= 0
		maps.Copy(states, c.killed)
		c.left = -1
		if got := imageOf(c.objects[c.key(c.kind)]); got != image {
			t.Errorf("killed at write %d (after it: %t): the image is %s, want %s", at, after, got, image)
		}
		c.edit(c.kind, func(u *unstructured.Unstructured) { setImage(u, "v1") })
		if now := c.written(); now != before {
			t.Errorf("killed at write %d (after it: %t): afterwards there is\n%s\nbefore\n%s", at, after, now, before)
		}
		if u := c.objects[c.key(rolloutKind)]; u != nil && len(u.GetAnnotations()) > 0 {
			t.Errorf("killed at write %d (after it: %t): the Rollout has %v", at, after, u.GetAnnotations())
		}
	})
	return killed
}
