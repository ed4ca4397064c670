package local

import (
	"slices"
	"time"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// View is a Rollout as people see it. Its JSON form is that of the admin endpoint.
type View struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Strategy is "Canary" or "BlueGreen".
	Strategy string `json:"strategy"`
	// State is one word for all.
	State   State  `json:"state"`
	Message string `json:"message"`
	// Step counts from 1; it is 0 without a release. Steps is how many there are.
	Step  int32 `json:"step"`
	Steps int32 `json:"steps"`
	// Routing is what is laid over the objects, nil if they are as they are written; Who says it in a sentence.
	Routing *rollout.Routing `json:"routing,omitempty"`
	Who     string           `json:"who,omitempty"`
	// Until is when the step ends by itself.
	Until  *time.Time `json:"until,omitempty"`
	Stable Version    `json:"stable"`
	Canary *Version   `json:"canary,omitempty"`
	// Objects route requests, "HTTPRoute shop".
	Objects  []string        `json:"objects,omitempty"`
	Status   rollouts.Status `json:"status"`
	Releases []Past          `json:"releases,omitempty"`
	Events   []Event         `json:"events,omitempty"`
}

// Version is what is behind one of the Services.
type Version struct {
	Service  string `json:"service"`
	Revision int    `json:"revision"`
	// Name of the revision.
	Name      string   `json:"name"`
	Endpoints []string `json:"endpoints"`
}

// State is how a Rollout stands, in one word.
type State string

// The states.
const (
	Initial     State = "Initial"
	Healthy     State = "Healthy"
	Progressing State = "Progressing"
	// Paused: somebody paused it, or its step waits for somebody.
	Paused State = "Paused"
	// Waiting: all steps are complete, and the stable Service has to get the new version.
	Waiting  State = "Waiting"
	Aborting State = "Aborting"
	Aborted  State = "Aborted"
	Disabled State = "Disabled"
)

// Views returns all Rollouts, by namespace and name.
func (s *Source) Views() []View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views
}

// show makes Views anew.
func (k *keeper) show(all []*rollouts.Rollout) {
	views := make([]View, 0, len(all))
	for _, r := range all {
		if st := k.states[id(r)]; st != nil {
			views = append(views, k.view(r, st))
		}
	}
	k.source.mu.Lock()
	k.source.views = views
	k.source.mu.Unlock()
}

func (k *keeper) view(r *rollouts.Rollout, st *state) View {
	v := View{
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
		if i := int(v.Step) - 1; i >= 0 && i < len(plan.Steps) && rel.CurrentStepState == rollouts.StepPaused && plan.Steps[i].Pause.Duration != nil && rel.LastUpdateTime != nil && v.State != Paused {
			until := rel.LastUpdateTime.Add(time.Duration(*plan.Steps[i].Pause.Duration) * time.Second)
			v.Until = &until
		}
	}
	traffic := plan.Traffic()
	if traffic == nil {
		return v
	}
	v.Who = rollout.Who(plan, st.Routing)
	v.Stable = Version{traffic.Service, st.Stable.Number, st.Stable.Name, st.Stable.Endpoints}
	if st.Update != nil {
		v.Canary = &Version{plan.CanaryService(), st.Update.Number, st.Update.Name, st.Update.Endpoints}
	}
	for _, t := range rollout.Targets(&r.Spec.Strategy) {
		v.Objects = append(v.Objects, t.String())
	}
	return v
}

func (s *state) state(r *rollouts.Rollout) State {
	c := s.Status.Condition(rollouts.ConditionProgressing)
	switch rel := s.Status.Release(); s.Status.Phase {
	case rollouts.PhaseDisabled, rollouts.PhaseDisabling:
		return Disabled
	case rollouts.PhaseProgressing:
		switch {
		case c != nil && c.Reason == rollouts.ReasonCancelling:
			return Aborting
		case s.waiting() && rel != nil && rel.FinalisingStep == rollouts.ResumeWorkload:
			return Waiting
		case s.Paused || r.Spec.Strategy.Paused:
			return Paused
		case rel != nil && rel.CurrentStepState == rollouts.StepPaused:
			if plan := r.Spec.Strategy.Plan(); rel.CurrentStepIndex >= 1 && int(rel.CurrentStepIndex) <= len(plan.Steps) && plan.Steps[rel.CurrentStepIndex-1].Pause.Duration == nil {
				return Paused
			}
		}
		return Progressing
	case rollouts.PhaseHealthy:
		if s.active() && s.Abort == s.Update.Name {
			return Aborted
		}
		return Healthy
	}
	return Initial
}
