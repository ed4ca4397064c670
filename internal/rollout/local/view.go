package local

import (
	"slices"

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
	rel := st.Status.Release()
	v := view.Of(r, &st.Status, view.Standing{
		Paused: st.Paused || r.Spec.Strategy.Paused, Waiting: st.waiting() && rel != nil && rel.FinalisingStep == rollouts.ResumeWorkload, Aborted: st.active() && st.Abort == st.Update.Name,
	})
	v.Routing, v.Releases, v.Events = st.Routing, slices.Clone(st.Releases), slices.Clone(st.Events)
	plan := r.Spec.Strategy.Plan()
	if plan == nil || plan.Traffic() == nil {
		return v
	}
	v.Who = rollout.Who(plan, st.Routing)
	if no, refused := k.refused[id(r)]; refused {
		v.Who += " Not by " + no.object + ": see the message."
	}
	v.Stable = st.Stable.view(plan.Traffic().Service)
	if st.Update != nil {
		canary := st.Update.view(plan.CanaryService())
		v.Canary = &canary
	}
	v.Measured = k.meters[id(r)].measured()
	return v
}

func (r *revision) view(service string) view.Version {
	return view.Version{Service: service, Revision: r.Number, Name: r.Name, Endpoints: r.Endpoints}
}
