package rollout

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/api/rollouts"
)

// argoHealth restates what Argo CD's health check of these Rollouts says (argoproj/argo-cd,
// resource_customizations/rollouts.kruise.io/Rollout/health.lua, of v3). It is empty where the script fails: it takes for
// granted that there is a canaryStatus.
func argoHealth(r *rollouts.Rollout) string {
	s := &r.Status
	switch {
	case r.DeletionTimestamp != nil, r.Generation != s.ObservedGeneration:
		return "Progressing"
	case s.CanaryStatus == nil:
		return ""
	}
	switch state, phase := s.CanaryStatus.CurrentStepState, s.Phase; {
	case state == rollouts.StepPaused && phase == rollouts.PhaseProgressing:
		return "Suspended"
	case state == rollouts.StepCompleted && phase == rollouts.PhaseHealthy:
		return "Healthy"
	case state == rollouts.StepPaused && (phase == rollouts.PhaseTerminating || phase == rollouts.PhaseDisabled):
		return "Degraded"
	}
	return "Progressing"
}

// TestArgoCDReadsTheStatus holds what Argo CD shows of a Rollout in each phase, which is what it shows of one that OpenKruise's
// controller carries out: of one that was taken back, too, "Progressing".
func TestArgoCDReadsTheStatus(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "20%", "50%;50", "100%;100"))
	stage := func(what, want string, until func() bool) {
		t.Helper()
		w.must(what, until)
		if got := argoHealth(w.rollout); got != want {
			t.Errorf("%s: Argo CD shows %q, want %q: %s", what, got, want, asText(w.rollout.Status))
		}
	}
	state := func(s rollouts.StepState) func() bool {
		return func() bool { return w.rollout.Status.CurrentStepState == s }
	}
	stage("nothing to release", "Healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	stage("a release begins", "Progressing", w.phase(rollouts.PhaseProgressing))
	stage("pods come", "Progressing", state(rollouts.StepUpgrade))
	stage("requests are routed", "Progressing", state(rollouts.StepTrafficRouting))
	stage("a step waits", "Suspended", w.waits(1))
	w.rollout.Generation++
	if got := argoHealth(w.rollout); got != "Progressing" {
		t.Errorf("of a spec that was not seen yet Argo CD shows %q", got)
	}
	stage("it was seen", "Suspended", func() bool { return w.rollout.Status.ObservedGeneration == w.rollout.Generation })
	w.approve()
	stage("the second step waits", "Suspended", w.waits(2))
	w.approve()
	stage("the end", "Healthy", w.finished)
	w.release("v3")
	w.must("step 1 waits", w.waits(1))
	w.release("v2")
	stage("taken back", "Progressing", w.finished)
	w.release("v4")
	w.must("another release begins", w.phase(rollouts.PhaseProgressing))
	stage("another release waits", "Suspended", w.waits(1))
	w.rollout.Spec.Disabled = true
	stage("disabled midway", "Degraded", w.phase(rollouts.PhaseDisabled))
	w.rollout.DeletionTimestamp = &metav1.Time{Time: w.now}
	stage("deleted", "Progressing", func() bool { return !w.finalizer })

	w = newWorld(t, canaryRollout(false, "20%", "50%;50"))
	w.gone = true
	stage("no workload", "", w.phase(rollouts.PhaseInitial))
	w = newWorld(t, blueGreenRollout("50%;100", "100%;100"))
	stage("blue-green", "", w.phase(rollouts.PhaseHealthy))
}
