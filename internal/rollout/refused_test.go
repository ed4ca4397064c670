package rollout_test

import (
	"testing"
	"time"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// TestDecideTakesOutWhatIsToldOfARefusal has a Rollout be deleted, and one without a workload, tell of a refusal.
func TestDecideTakesOutWhatIsToldOfARefusal(t *testing.T) {
	canary := &rollouts.Canary{Plan: rollouts.Plan{Steps: []rollouts.Step{{}}}}
	for _, s := range []rollouts.Status{
		{Phase: rollouts.PhaseTerminating, Message: "The Rollout is being deleted: everything is put back."},
		{Phase: rollouts.PhaseProgressing, Message: "", CanaryStatus: &rollouts.CanaryStatus{}, Conditions: []rollouts.Condition{{Type: rollouts.ConditionProgressing, Message: ""}}},
	} {
		told := rollout.CopyStatus(s)
		if said := rollout.Obstruct(&told, "update Deployment web", "no."); told.Message != said && told.Message != s.Message+" "+said {
			t.Errorf("it says %q", told.Message)
		}
		if !rollout.Obstructed(&told) || rollout.Obstructed(&s) || !rollout.Progress(told, s) {
			t.Errorf("it is more than a message: %+v, %+v", told, s)
		}
		r := &rollouts.Rollout{Spec: rollouts.Spec{Strategy: rollouts.Strategy{Canary: canary}}, Status: told}
		w := &rollout.Workload{} // which is not settled, so that nothing else is said
		if out := rollout.Decide(rollout.Facts{Rollout: r, Workload: w, Now: time.Unix(1, 0)}); rollout.Obstructed(&out.Status) {
			t.Errorf("it is still told: %+v", out.Status)
		}
	}
}
