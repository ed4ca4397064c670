package local

import (
	"slices"
	"time"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/view"
)

// Views returns all Rollouts, by namespace and name.
func (s *Source) Views() []view.Rollout {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views
}

// Statuses are those of all Rollouts, as their API has them.
func (s *Source) Statuses() []resource.Status {
	var all []resource.Status
	for _, v := range s.Views() {
		all = append(all, resource.Status{Ref: model.Ref{Kind: "Rollout", Namespace: v.Namespace, Name: v.Name}, Own: v.Status})
	}
	return all
}

// show makes Views anew.
func (k *keeper) show(all []*rollouts.Rollout) {
	views := make([]view.Rollout, 0, len(all))
	for _, r := range all {
		if st := k.states[id(r)]; st != nil {
			views = append(views, k.view(r, st))
		}
	}
	k.source.mu.Lock()
	k.source.views = views
	k.source.mu.Unlock()
}

func (k *keeper) view(r *rollouts.Rollout, st *state) view.Rollout {
	v := view.Rollout{
		Namespace: r.Namespace, Name: r.Name, Strategy: "Canary", State: st.state(r), Message: st.Status.Message, Routing: st.Routing, Status: st.Status,
		Releases: slices.Clone(st.Releases), Events: slices.Clone(st.Events),
	}
	if r.Spec.Strategy.BlueGreen != nil {
		v.Strategy = "BlueGreen"
	}
	plan := r.Spec.Strategy.Plan()
	if plan == nil {
		return v
	}
	v.Steps = int32(len(plan.Steps))
	if rel := st.Status.Release(); rel != nil && st.Status.Phase == rollouts.PhaseProgressing {
		v.Step = rel.CurrentStepIndex
		if i := int(v.Step) - 1; i >= 0 && i < len(plan.Steps) && rel.CurrentStepState == rollouts.StepPaused && plan.Steps[i].Pause.Duration != nil && rel.LastUpdateTime != nil && v.State != view.Paused {
			until := rel.LastUpdateTime.Add(time.Duration(*plan.Steps[i].Pause.Duration) * time.Second)
			v.Until = &until
		}
	}
	traffic := plan.Traffic()
	if traffic == nil {
		return v
	}
	v.Who = rollout.Who(plan, st.Routing)
	v.Stable = st.Stable.view(traffic.Service)
	if st.Update != nil {
		canary := st.Update.view(plan.CanaryService())
		v.Canary = &canary
	}
	v.Measured = k.meters[id(r)].measured()
	for _, t := range rollout.Targets(&r.Spec.Strategy) {
		v.Objects = append(v.Objects, t.String())
	}
	return v
}

func (r *revision) view(service string) view.Version {
	return view.Version{Service: service, Revision: r.Number, Name: r.Name, Endpoints: r.Endpoints}
}

func (s *state) state(r *rollouts.Rollout) view.State {
	c := s.Status.Condition(rollouts.ConditionProgressing)
	switch rel := s.Status.Release(); s.Status.Phase {
	case rollouts.PhaseDisabled, rollouts.PhaseDisabling:
		return view.Disabled
	case rollouts.PhaseProgressing:
		switch {
		case c != nil && c.Reason == rollouts.ReasonCancelling:
			return view.Aborting
		case s.waiting() && rel != nil && rel.FinalisingStep == rollouts.ResumeWorkload:
			return view.Waiting
		case s.Paused || r.Spec.Strategy.Paused:
			return view.Paused
		case rel != nil && rel.CurrentStepState == rollouts.StepPaused:
			if plan := r.Spec.Strategy.Plan(); rel.CurrentStepIndex >= 1 && int(rel.CurrentStepIndex) <= len(plan.Steps) && plan.Steps[rel.CurrentStepIndex-1].Pause.Duration == nil {
				return view.Paused
			}
		}
		return view.Progressing
	case rollouts.PhaseHealthy:
		if s.active() && s.Abort == s.Update.Name {
			return view.Aborted
		}
		return view.Healthy
	}
	return view.Initial
}
