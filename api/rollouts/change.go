package rollouts

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateChange returns what must not change from one form of a Rollout to the next because of the phase that it is in:
// while a release is under way or is being taken back, the objects that it has changed must stay those that it names.
// Fields are named as the version names them. Both forms may be invalid otherwise.
func ValidateChange(version string, before, after *Rollout) (errs field.ErrorList) {
	phase := before.Status.Phase
	switch phase {
	case PhaseProgressing, PhaseTerminating, PhaseDisabling:
	default:
		return nil
	}
	forbid := func(path, what string) {
		errs = append(errs, field.Forbidden(field.NewPath(path), fmt.Sprintf("%s must not change while the Rollout is %s: wait until it is over", what, phase)))
	}
	if before.Spec.WorkloadRef != after.Spec.WorkloadRef {
		forbid("spec.workloadRef", "the workload")
	}
	old, now := &before.Spec.Strategy, &after.Spec.Strategy
	if (old.BlueGreen != nil) != (now.BlueGreen != nil) || (old.Canary != nil) != (now.Canary != nil) {
		forbid("spec.strategy", "the style")
		return asWritten(version, errs)
	}
	if old.Canary != nil && old.Canary.EnableExtraWorkloadForCanary != now.Canary.EnableExtraWorkloadForCanary {
		forbid("spec.strategy.canary.enableExtraWorkloadForCanary", "the style")
	}
	was, is := old.Plan(), now.Plan()
	if was == nil {
		return asWritten(version, errs)
	}
	if !equality.Semantic.DeepEqual(was.TrafficRoutings, is.TrafficRoutings) {
		forbid(now.Field()+".trafficRoutings", "what routes requests")
	}
	if len(was.Steps) != len(is.Steps) {
		forbid(now.Field()+".steps", fmt.Sprintf("the number of steps (%d)", len(was.Steps)))
	}
	return asWritten(version, errs)
}
