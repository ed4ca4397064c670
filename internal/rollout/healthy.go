package rollout

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/api/rollouts"
)

// healthy decides whether a release begins, where none is going on.
func (d *decision) healthy() {
	s, w := d.status, d.w
	s.Phase = rollouts.PhaseHealthy
	succeeded := s.Condition(rollouts.ConditionSucceeded)
	failed := succeeded != nil && succeeded.Status == corev1.ConditionFalse
	switch {
	case w.Update != w.Stable && failed && s.Revision() == w.Update && d.aborted():
		d.say("The release was aborted: requests go to the stable version.")
	case w.Update != w.Stable:
		s.Phase = rollouts.PhaseProgressing
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c rollouts.Condition) bool { return c.Type == rollouts.ConditionSucceeded })
		d.initialise()
		d.progress(rollouts.ReasonInitializing, "A new version is being released.")
		d.tell("ReleaseStarted", false, fmt.Sprintf("Revision %s is being released.", w.Update))
	case s.Release() == nil:
		d.begun() // whoever waits for the end of a release finds the first version released
		d.idle()
	case d.left(): // of a release that was aborted
		s.Phase = rollouts.PhaseProgressing
		d.cancel("The workload is back at its stable revision.")
	case d.unseen():
		d.replacedAtOnce()
		d.begun()
		d.idle()
	default:
		d.idle()
	}
}

// idle is while nothing is released. There is nothing to put back then, so the Rollout may be deleted where nobody carries
// Rollouts out any more.
func (d *decision) idle() {
	d.say("There is nothing to release.")
	d.out.Finalizer = d.w.Held || d.w.Marked
}

// begun notes a version as released that did not go through steps.
func (d *decision) begun() {
	last := int32(len(d.plan.Steps))
	d.status.Begin(&d.r.Spec, rollouts.Release{
		ObservedRolloutID: d.w.ID, ObservedWorkloadGeneration: d.w.Generation, PodTemplateHash: d.w.UpdateHash, StableRevision: d.w.Stable, RolloutHash: Hash(d.plan),
		CurrentStepIndex: last, NextStepIndex: d.next(last), CurrentStepState: rollouts.StepCompleted,
	}, d.w.Update)
}

// unseen reports whether the workload's own controller has replaced all pods by a revision of which nobody here saw anything: while
// there was no controller of Rollouts, and nobody held the workload. A revision may get another name, but not a generation by that.
func (d *decision) unseen() bool {
	rel, known := d.status.Release(), d.status.Revision()
	if c := d.status.Condition(rollouts.ConditionSucceeded); c != nil && c.Status == corev1.ConditionFalse {
		known = rel.StableRevision
	}
	return d.w.Complete && d.w.Update != known && d.w.Generation > rel.ObservedWorkloadGeneration
}

// replacedAtOnce tells that steps could not be carried out.
func (d *decision) replacedAtOnce() {
	d.tell("ReplacedAtOnce", true, fmt.Sprintf("All pods were replaced by revision %s before the workload was held: no step can be carried out.", d.w.Update))
}

// left reports whether the workload is still under control.
func (d *decision) left() bool {
	return d.status.Release() != nil && d.w != nil && !d.w.Given && (d.w.Held || d.w.Marked)
}

func (d *decision) aborted() bool { return d.r.Annotations[AbortAnnotation] == d.w.Update }
