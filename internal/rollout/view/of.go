package view

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// Standing is what whoever carries a Rollout out knows of it beside the status.
type Standing struct {
	// Paused: somebody paused it.
	Paused bool
	// Waiting: all steps are complete, and the stable Service has to get the new version from somebody.
	Waiting bool
	// Aborted: somebody gave up the revision that would be released.
	Aborted bool
}

// Of is a Rollout as far as itself and a status say. The status need not be the one that is stored in it.
func Of(r *rollouts.Rollout, status *rollouts.Status, s Standing) Rollout {
	v := Rollout{Namespace: r.Namespace, Name: r.Name, Strategy: "Canary", Message: status.Message, Status: *status, State: stateOf(r, status, s)}
	if r.Spec.Strategy.BlueGreen != nil {
		v.Strategy = "BlueGreen"
	}
	plan := r.Spec.Strategy.Plan()
	if plan == nil {
		return v
	}
	v.Steps = int32(len(plan.Steps))
	if rel := status.Release(); rel != nil && status.Phase == rollouts.PhaseProgressing {
		v.Step = rel.CurrentStepIndex
		if step := stepOf(plan, rel); step != nil && rel.CurrentStepState == rollouts.StepPaused && step.Pause.Duration != nil && rel.LastUpdateTime != nil && v.State != Paused {
			until := rel.LastUpdateTime.Add(time.Duration(*step.Pause.Duration) * time.Second)
			v.Until = &until
		}
	}
	if plan.Traffic() != nil {
		for _, t := range rollout.Targets(&r.Spec.Strategy) {
			v.Objects = append(v.Objects, t.String())
		}
	}
	return v
}

// stepOf is the step that a release is in; nil if there is no such step.
func stepOf(plan *rollouts.Plan, rel *rollouts.Release) *rollouts.Step {
	if n := int(rel.CurrentStepIndex); n >= 1 && n <= len(plan.Steps) {
		return &plan.Steps[n-1]
	}
	return nil
}

func stateOf(r *rollouts.Rollout, status *rollouts.Status, s Standing) State {
	switch c, rel := status.Condition(rollouts.ConditionProgressing), status.Release(); status.Phase {
	case rollouts.PhaseDisabled, rollouts.PhaseDisabling:
		return Disabled
	case rollouts.PhaseTerminating:
		return Terminating
	case rollouts.PhaseProgressing:
		switch {
		case c != nil && c.Reason == rollouts.ReasonCancelling:
			return Aborting
		case s.Waiting:
			return Waiting
		case s.Paused && (c == nil || c.Reason != rollouts.ReasonFinalising): // what is being finished is not paused
			return Paused
		case rel != nil && rel.CurrentStepState == rollouts.StepPaused:
			if plan := r.Spec.Strategy.Plan(); plan != nil {
				if step := stepOf(plan, rel); step != nil && step.Pause.Duration == nil {
					return Paused
				}
			}
		}
		return Progressing
	case rollouts.PhaseHealthy:
		if s.Aborted {
			return Aborted
		}
		return Healthy
	}
	return Initial
}

// Cluster is a Rollout of a cluster, as far as itself says: pods and the numbers of revisions are not known. A step that
// waits for its pods is Pending.
func Cluster(r *rollouts.Rollout) Rollout {
	status := &r.Status
	rel, succeeded := status.Release(), status.Condition(rollouts.ConditionSucceeded)
	by := r.Annotations[rollout.AbortAnnotation]
	v := Of(r, status, Standing{
		Paused:  r.Spec.Strategy.Paused,
		Aborted: by != "" && by == status.Revision() && rel.StableRevision != by && succeeded != nil && succeeded.Status == corev1.ConditionFalse,
	})
	if status.Phase == "" {
		v.Message = "No controller has taken it up yet."
	}
	v.Stable.Endpoints = []string{}
	plan := r.Spec.Strategy.Plan()
	traffic := (*rollouts.TrafficRouting)(nil)
	if plan != nil {
		traffic = plan.Traffic()
	}
	if traffic != nil {
		v.Stable.Service = traffic.Service
	}
	if rel == nil {
		return v
	}
	v.Stable.Name = rel.StableRevision
	progressing := status.Condition(rollouts.ConditionProgressing)
	under := status.Phase == rollouts.PhaseProgressing && progressing != nil && progressing.Reason != rollouts.ReasonCancelling
	if !under {
		if v.State == Healthy { // the status has what was stable before the last release
			v.Stable.Name = status.Revision()
		}
		return v
	}
	v.Canary = &Version{Name: status.Revision(), Endpoints: []string{}}
	if plan == nil || traffic == nil {
		return v
	}
	v.Canary.Service = plan.CanaryService()
	step := stepOf(plan, rel)
	if step == nil || progressing.Reason != rollouts.ReasonInRolling && progressing.Reason != rollouts.ReasonPaused {
		return v
	}
	v.Routing = rollout.RoutingOf(step)
	v.Who = rollout.Who(plan, v.Routing)
	v.Pending = rel.CurrentStepState == rollouts.StepInit || rel.CurrentStepState == rollouts.StepUpgrade
	return v
}
