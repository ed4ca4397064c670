package release

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// maxShown bounds the Rollouts that Stats tells of one by one.
const maxShown = 1000

// Stats is how releases stand, for metrics.
type Stats struct {
	// Away is why this process carries no Rollouts out, though it is its turn to; empty if it does, or it is not.
	Away Obstacle
	// Carrying means that this process carries Rollouts out; the fields below are empty if it does not.
	Carrying bool
	// Rollouts are at most a thousand of those that are valid, in no order; Unshown is how many more there are.
	Rollouts []Standing
	Unshown  int
	// Passed counts what happened to releases since the start, by every Transition.
	Passed map[Transition]uint64
	// Failed counts attempts to carry a Rollout on that are made again, Unmeasured those to measure shares.
	Failed, Unmeasured uint64
}

// Standing is how a Rollout stands.
type Standing struct {
	types.NamespacedName
	Phase rollouts.Phase
	// Step counts from 1; it is 0 without a release. Steps is how many there are.
	Step, Steps int32
	// Since is when the step began, as far as this process knows; zero without a release.
	Since time.Time
	// Set is the share of the requests, 0 to 1, that objects give the new version; nil without a release, and if they give it
	// none as a number.
	Set *float64
	// Measured is the share that it got when the step's share was measured last; nil before.
	Measured *float64
}

// Transition is something that happens to releases.
type Transition string

// The transitions. Each release that begins ends by one of the last four.
const (
	Begun Transition = "begun"
	// Replaced: another version took the place of the one that was being released.
	Replaced Transition = "replaced"
	// StepReached: the step's pods are there, and proxies route its requests.
	StepReached Transition = "step_reached"
	Completed   Transition = "completed"
	// RolledBack: the workload is back at its stable version; Aborted: somebody gave the new one up.
	RolledBack Transition = "rolled_back"
	Aborted    Transition = "aborted"
	// Stopped: the Rollout was deleted or disabled midway, or its workload is gone.
	Stopped Transition = "stopped"
)

// Transitions are all there are.
var Transitions = []Transition{Begun, Replaced, StepReached, Completed, RolledBack, Aborted, Stopped}

// passed returns the transitions between two statuses of one Rollout that follow each other; stays means that the workload
// still wants the version that is released.
func passed(before, after *rollouts.Status, stays bool) (all []Transition) {
	was, is := before.Phase == rollouts.PhaseProgressing, after.Phase == rollouts.PhaseProgressing
	switch {
	case !was && !is:
		return nil
	case !was:
		return []Transition{Begun}
	case !is && after.Phase != rollouts.PhaseHealthy:
		if ended(before) { // Completed is told of in Progressing
			return nil
		}
		return []Transition{Stopped}
	case !is:
		return nil
	}
	if ended(after) && !ended(before) {
		switch succeeded := after.Condition(rollouts.ConditionSucceeded); {
		case succeeded != nil && succeeded.Status == corev1.ConditionTrue:
			return []Transition{Completed}
		case stays:
			return []Transition{Aborted}
		}
		return []Transition{RolledBack}
	}
	if reason(after) == rollouts.ReasonInitializing && reason(before) != rollouts.ReasonInitializing {
		all = append(all, Replaced)
	}
	if from, to := before.Release(), after.Release(); from != nil && to != nil && from.CurrentStepState != to.CurrentStepState && to.CurrentStepState == rollouts.StepMetricsAnalysis {
		all = append(all, StepReached)
	}
	return all
}

// reason is that of the condition Progressing.
func reason(s *rollouts.Status) string {
	if c := s.Condition(rollouts.ConditionProgressing); c != nil {
		return c.Reason
	}
	return ""
}

func ended(s *rollouts.Status) bool { return reason(s) == rollouts.ReasonCompleted }

// stats keeps what Stats tells. It is guarded by the Controller's mu.
type stats struct {
	carrying           bool
	standing           map[types.NamespacedName]*standing
	shown              int
	passed             map[Transition]uint64
	failed, unmeasured uint64
}

type standing struct {
	Standing
	revision string
	shown    bool
}

// Stats returns how releases stand.
func (c *Controller) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stats.carrying {
		return Stats{Away: c.away}
	}
	s := Stats{Carrying: true, Unshown: len(c.stats.standing) - c.stats.shown, Passed: maps.Clone(c.stats.passed), Failed: c.stats.failed, Unmeasured: c.stats.unmeasured}
	for _, one := range c.stats.standing {
		if one.shown {
			s.Rollouts = append(s.Rollouts, one.Standing)
		}
	}
	return s
}

// begin notes that Rollouts are carried out here, and that none is known. What was counted stays. The Controller's mu is held.
func (s *stats) begin() {
	s.carrying, s.standing, s.shown = true, map[types.NamespacedName]*standing{}, 0
	if s.passed == nil {
		s.passed = map[Transition]uint64{}
		for _, t := range Transitions {
			s.passed[t] = 0
		}
	}
}

// stop notes that Rollouts are not carried out here any more.
func (c *Controller) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.carrying, c.stats.standing, c.stats.shown = false, nil, 0
}

// failed notes that a Rollout could not be carried on.
func (c *Controller) failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.failed++
}

// pass notes transitions.
func (c *Controller) pass(all []Transition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range all {
		c.stats.passed[t]++
	}
}

// stands notes how the Rollout of a turn stands. traffic is nil if it was not looked at.
func (t *turn) stands(status *rollouts.Status, traffic *rollout.Traffic, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := &t.stats
	one := all.standing[t.name]
	if one == nil {
		one = &standing{shown: all.shown < maxShown}
		if all.standing[t.name] = one; one.shown {
			all.shown++
		}
	}
	was := one.Standing
	one.Standing = Standing{NamespacedName: t.name, Phase: status.Phase, Steps: int32(len(t.r.Spec.Strategy.Plan().Steps))}
	rel := status.Release()
	if status.Phase != rollouts.PhaseProgressing || rel == nil {
		return
	}
	one.Step, one.Since, one.Measured = rel.CurrentStepIndex, was.Since, was.Measured
	if was.Step != one.Step || one.revision != status.Revision() {
		one.Since, one.Measured = now, nil
		if was.Step == 0 && rel.LastUpdateTime != nil { // it may have begun under another process
			one.Since = rel.LastUpdateTime.Time
		}
	}
	one.revision = status.Revision()
	if traffic == nil {
		return
	}
	one.Set = setShare(t.r.Spec.Strategy.Plan(), traffic.Carried)
	if s := traffic.Shared; s != nil && s.Unknown == "" && s.Stable+s.Canary > 0 {
		share := float64(s.Canary) / float64(s.Stable+s.Canary)
		one.Measured = &share
	}
}

// setShare is the share that objects give the new version, by the wants that they fulfil; nil if that is no number.
func setShare(plan *rollouts.Plan, carried []rollout.Want) *float64 {
	if plan.Traffic() == nil || len(carried) == 0 {
		return nil
	}
	want, share := carried[0], 0.0
	if slices.Contains(carried, rollout.WantOriginal) { // a step may want the same
		want = rollout.WantOriginal
	}
	switch {
	case want == rollout.WantNew:
		share = 1
	case want > 0 && int(want) <= len(plan.Steps):
		percent, weighs := rollout.ShareOf(&plan.Steps[want-1])
		if !weighs {
			return nil
		}
		share = float64(percent) / 100
	}
	return &share
}

// gone forgets a Rollout that is not there or not valid. Another one is shown in its place. The Controller's mu is held.
func (s *stats) gone(name types.NamespacedName) {
	one := s.standing[name]
	if delete(s.standing, name); one == nil || !one.shown {
		return
	}
	s.shown--
	if s.shown == len(s.standing) {
		return
	}
	for _, other := range s.standing {
		if !other.shown {
			other.shown = true
			s.shown++
			return
		}
	}
}
