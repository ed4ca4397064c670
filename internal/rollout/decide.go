package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/api/rollouts"
)

// AbortAnnotation on a Rollout, with the revision that is being released, takes the release back: requests go to the
// stable version, until another revision comes or the annotation is removed.
const AbortAnnotation = "rollouts.weirmesh.github.io/abort"

// poll is how long a state that nobody may report the end of is left alone.
const poll = 2 * time.Second

// Decide returns the next action of a Rollout and its status. It is a pure function of the facts: whoever is cut off
// between a status and its action, or in the middle of an action, observes again and gets what is missing.
func Decide(f Facts) Outcome {
	d := &decision{facts: f, r: f.Rollout, w: f.Workload, plan: f.Rollout.Spec.Strategy.Plan()}
	d.out.Status = CopyStatus(f.Rollout.Status)
	d.out.Finalizer = true
	d.status = &d.out.Status
	d.status.ObservedGeneration = f.Rollout.Generation
	each(d.status, unobstructed)
	d.approved()
	d.phase()
	d.asWritten()
	if rel := d.status.Release(); rel != nil {
		d.status.CurrentStepIndex, d.status.CurrentStepState = rel.CurrentStepIndex, rel.CurrentStepState
	} else {
		d.status.CurrentStepIndex, d.status.CurrentStepState = 0, ""
	}
	return d.out
}

// approved takes an approval for one that somebody wrote into the status itself alone, which repeats that of the release.
func (d *decision) approved() {
	rel := d.status.Release()
	if rel == nil || d.status.CurrentStepState != rollouts.StepReady || d.status.CurrentStepIndex != rel.CurrentStepIndex {
		return
	}
	if rel.CurrentStepState == rollouts.StepPaused || rel.CurrentStepState == rollouts.StepMetricsAnalysis {
		rel.CurrentStepState = rollouts.StepReady
	}
}

type decision struct {
	facts  Facts
	r      *rollouts.Rollout
	w      *Workload
	plan   *rollouts.Plan
	out    Outcome
	status *rollouts.Status
}

// CopyStatus returns a status that shares nothing that changes.
func CopyStatus(s rollouts.Status) rollouts.Status {
	s.Conditions = slices.Clone(s.Conditions)
	if s.CanaryStatus != nil {
		c := *s.CanaryStatus
		s.CanaryStatus = &c
	}
	if s.BlueGreenStatus != nil {
		b := *s.BlueGreenStatus
		s.BlueGreenStatus = &b
	}
	return s
}

func (d *decision) phase() {
	s := d.status
	switch {
	case d.r.DeletionTimestamp != nil:
		d.terminating()
		return
	case s.Phase == rollouts.PhaseDisabling:
		if d.finalise(reasonDisabled) {
			s.Phase = rollouts.PhaseDisabled
			d.say("The Rollout is disabled.")
		}
		return
	case d.r.Spec.Disabled && s.Phase != rollouts.PhaseDisabled && (s.Phase == rollouts.PhaseProgressing || d.left()):
		s.Phase = rollouts.PhaseDisabling
		d.restart()
		d.say("The Rollout is being disabled: everything is put back.")
		return
	case d.r.Spec.Disabled:
		s.Phase = rollouts.PhaseDisabled
		d.say("The Rollout is disabled.")
		d.letGo()
		return
	case s.Phase == rollouts.PhaseDisabled, s.Phase == "":
		s.Phase = rollouts.PhaseInitial
	}
	switch ref := d.r.Spec.WorkloadRef; {
	case d.facts.Unlisted != "":
		d.withoutWorkload(d.facts.Unlisted)
		return
	case d.w == nil:
		d.withoutWorkload(fmt.Sprintf("There is no %s %s.", ref.Kind, ref.Name))
		return
	case d.w.Unfit != "":
		d.withoutWorkload(d.w.Unfit)
		return
	}
	d.metadata()
	if !d.w.Settled {
		d.wait(poll)
		return
	}
	if rel := s.Release(); rel != nil && s.Revision() == d.w.Update {
		rel.ObservedRolloutID, rel.ObservedWorkloadGeneration = d.w.ID, d.w.Generation
	}
	switch s.Phase {
	case rollouts.PhaseProgressing:
		d.progressing()
	default:
		d.healthy()
	}
}

// metadata says that pods do not get what the Rollout says that they should, as long as that is so.
func (d *decision) metadata() {
	before := d.status.Condition(rollouts.ConditionMetadata)
	if !d.r.Spec.IgnoresMetadata() || d.w.Given {
		if before != nil {
			d.status.Conditions = slices.DeleteFunc(d.status.Conditions, func(c rollouts.Condition) bool { return c.Type == rollouts.ConditionMetadata })
		}
		return
	}
	if why := MetadataField + " " + MetadataIgnored + "."; before == nil || before.Message != why {
		d.condition(rollouts.ConditionMetadata, corev1.ConditionFalse, rollouts.ReasonNoExtraPods, why)
		d.tell("MetadataIgnored", true, why)
	}
}

// withoutWorkload puts back what a release changed whose workload is gone or cannot be released, says why, and waits for one.
func (d *decision) withoutWorkload(why string) {
	if d.status.Release() != nil && d.status.Phase == rollouts.PhaseProgressing && !d.finalise(reasonDelete) {
		return
	}
	if !d.letGo() {
		d.say(why)
		return
	}
	*d.status = rollouts.Status{ObservedGeneration: d.r.Generation, Phase: rollouts.PhaseInitial}
	d.say(why)
}

// letGo lets a workload go that nothing is released of: whoever holds it at admission may know less than is known here. It is
// true when there is none.
func (d *decision) letGo() bool {
	if w := d.w; w != nil && w.Held && !w.Given {
		d.do(Action{Do: Release})
		return false
	}
	d.out.Finalizer = false
	return true
}

func (d *decision) terminating() {
	if d.status.Phase != rollouts.PhaseTerminating {
		d.status.Phase = rollouts.PhaseTerminating
		d.restart()
		d.condition(rollouts.ConditionTerminating, corev1.ConditionTrue, rollouts.ReasonInTerminating, "The Rollout is being deleted: everything is put back.")
		d.say("The Rollout is being deleted: everything is put back.")
	}
	if d.finalise(reasonDelete) {
		d.condition(rollouts.ConditionTerminating, corev1.ConditionFalse, rollouts.ReasonCompleted, "Everything is as it was.")
		d.out.Finalizer = false
	}
}

// restart has finalising begin at its first step, whatever was finalised before.
func (d *decision) restart() {
	if rel := d.status.Release(); rel != nil {
		rel.FinalisingStep = ""
	}
}

// progressing goes on with a release.
func (d *decision) progressing() {
	c := d.status.Condition(rollouts.ConditionProgressing)
	if c == nil {
		d.progress(rollouts.ReasonInitializing, "A new version is being released.")
		c = d.status.Condition(rollouts.ConditionProgressing)
	}
	rel := d.status.Release()
	if rel == nil && c.Reason != rollouts.ReasonInitializing {
		d.progress(rollouts.ReasonInitializing, "A new version is being released.")
		c = d.status.Condition(rollouts.ConditionProgressing)
	}
	ending := c.Reason == rollouts.ReasonFinalising || c.Reason == rollouts.ReasonCancelling
	if ending && d.w.Update != d.w.Stable && d.w.Update != d.status.Revision() {
		d.replace() // to go on would give the workload free, and with it the newest revision
		return
	}
	if c.Reason == rollouts.ReasonFinalising && d.w.Update == d.w.Stable && d.w.Update != d.status.Revision() {
		d.cancel("The workload is back at its stable revision.")
		return
	}
	if c.Reason == rollouts.ReasonFinalising && d.w.Given && !d.w.Complete && d.aborted() { // the stable Service still has the old version
		d.cancel("The release was aborted.")
		return
	}
	switch c.Reason {
	case rollouts.ReasonInitializing:
		d.initialise()
		d.progress(rollouts.ReasonInRolling, "The release begins.")
		d.soon()
	case rollouts.ReasonFinalising:
		if d.finalise(reasonSuccess) {
			d.progressIs(corev1.ConditionFalse, rollouts.ReasonCompleted, "The release is complete.")
			d.condition(rollouts.ConditionSucceeded, corev1.ConditionTrue, "", "")
			d.tell("Released", false, fmt.Sprintf("Revision %s is released.", d.status.Revision()))
			d.soon()
		}
	case rollouts.ReasonCancelling:
		why := reasonRollback
		if d.w.Update != d.w.Stable { // though the annotation may be gone again
			why = reasonAbort
		}
		if d.finalise(why) {
			d.progressIs(corev1.ConditionFalse, rollouts.ReasonCompleted, "The release was taken back.")
			d.condition(rollouts.ConditionSucceeded, corev1.ConditionFalse, "", "")
			d.tell("TakenBack", true, "The release was taken back: requests go to the stable version.")
			d.soon()
		}
	case rollouts.ReasonCompleted:
		d.status.Phase = rollouts.PhaseHealthy
		d.soon()
	default: // InRolling, Paused
		d.rolling(c.Reason == rollouts.ReasonPaused)
	}
}

// initialise has the status tell of a release that begins, and of none before: a step that was waited at then is not approved now.
func (d *decision) initialise() {
	d.status.Begin(&d.r.Spec, rollouts.Release{
		ObservedRolloutID: d.w.ID, ObservedWorkloadGeneration: d.w.Generation, RolloutHash: Hash(d.plan), StableRevision: d.w.Stable, CurrentStepIndex: 1, NextStepIndex: d.next(1),
		CurrentStepState: rollouts.StepInit, LastUpdateTime: d.time(),
	}, d.w.Update)
}

// rolling goes on with the steps, unless something else came between.
func (d *decision) rolling(paused bool) {
	rel := d.status.Release()
	replaced := d.w.Update != d.status.Revision()
	switch back := d.w.Update == d.w.Stable; {
	case d.aborted() && !replaced:
		d.cancel("The release was aborted.")
	case back && d.r.Annotations[inBatches] == "true" && replaced:
		d.tell("GoingBack", false, "The workload goes back to its stable revision, step by step.")
		d.begin(d.w.Update)
	case back:
		d.cancel("The workload is back at its stable revision.")
	case replaced && d.r.Spec.Strategy.BlueGreen != nil:
		d.say(fmt.Sprintf("Revision %s came while %s is being released, which blue-green releases do not take: roll back first.", d.w.Update, d.status.Revision()))
	case replaced:
		d.replace()
	case d.r.Spec.Strategy.Paused:
		if !paused {
			d.progress(rollouts.ReasonPaused, "The Rollout is paused.")
			d.tell("Paused", false, fmt.Sprintf("The Rollout is paused in step %d.", rel.CurrentStepIndex))
		} else if n := int(rel.CurrentStepIndex); rel.CurrentStepState == rollouts.StepPaused && n >= 1 && n <= len(d.plan.Steps) {
			d.kept(&d.plan.Steps[n-1])
		}
	case d.w.Gone: // nobody held it while its own controller replaced all pods: there is nothing to go through
		d.replacedAtOnce()
		d.progress(rollouts.ReasonFinalising, "All pods were replaced before the workload was held: the release is being finished.")
		d.soon()
	case paused:
		d.progress(rollouts.ReasonInRolling, "The release goes on.")
		d.tell("Resumed", false, "The release goes on.")
		d.soon()
	case rel.RolloutHash != Hash(d.plan):
		// The step at the same place is carried out anew, as it is written now.
		rel.RolloutHash = Hash(d.plan)
		d.enter(min(rel.CurrentStepIndex, int32(len(d.plan.Steps))), rollouts.StepInit)
		d.tell("PlanChanged", false, fmt.Sprintf("The plan was changed: step %d is carried out anew.", rel.CurrentStepIndex))
	default:
		d.steps()
	}
}

// replace puts the newest revision in the place of the one that is being released.
func (d *decision) replace() {
	if !d.reset() {
		return
	}
	d.tell("Replaced", false, fmt.Sprintf("Revision %s takes the place of %s: its release begins anew.", d.w.Update, d.status.Revision()))
	d.progress(rollouts.ReasonInitializing, "Another version is being released.")
	d.soon()
}

// inBatches on a Rollout has a rollback go through the steps (rollouts.kruise.io/rollback-in-batch).
const inBatches = rollouts.Group + "/rollback-in-batch"

func (d *decision) cancel(why string) {
	d.status.Release().FinalisingStep = ""
	if d.status.CanaryStatus != nil {
		d.status.CanaryStatus.CanaryRevision = d.w.Update
	} else {
		d.status.BlueGreenStatus.UpdatedRevision = d.w.Update
	}
	d.progress(rollouts.ReasonCancelling, why+" Everything is put back.")
	d.tell("Cancelling", true, why)
	d.soon()
}

// begin starts at the first step with a revision.
func (d *decision) begin(revision string) {
	rel := *d.status.Release()
	rel.RolloutHash, rel.FinalisingStep, rel.PodTemplateHash = Hash(d.plan), "", ""
	d.status.Begin(&d.r.Spec, rel, revision)
	d.enter(1, rollouts.StepInit)
}

// enter makes a step the current one.
func (d *decision) enter(step int32, state rollouts.StepState) {
	rel := d.status.Release()
	rel.CurrentStepIndex, rel.NextStepIndex, rel.CurrentStepState, rel.LastUpdateTime = step, d.next(step), state, d.time()
	d.soon()
}

// next is the step after a step; -1 after the last.
func (d *decision) next(step int32) int32 {
	if int(step) >= len(d.plan.Steps) {
		return -1
	}
	return step + 1
}

func (d *decision) time() *metav1.Time {
	t := metav1.NewTime(d.facts.Now.Truncate(time.Second)) // as it is stored
	return &t
}

// soon asks for the next decision at once: only the status changed.
func (d *decision) soon() { d.out.Again = d.facts.Now }

func (d *decision) wait(delay time.Duration) { d.until(d.facts.Now.Add(delay)) }

func (d *decision) until(t time.Time) {
	if d.out.Again.IsZero() || t.Before(d.out.Again) {
		d.out.Again = t
	}
}

// do asks for an action, and notes when.
func (d *decision) do(a Action) {
	d.out.Action = &a
	if rel := d.status.Release(); rel != nil {
		rel.LastUpdateTime = d.time()
	}
	d.soon()
}

func (d *decision) tell(reason string, warning bool, message string) {
	d.out.Events = append(d.out.Events, Event{reason, warning, message})
}

// say sets the messages of the status.
func (d *decision) say(message string) {
	each(d.status, func(string) string { return message })
}

// progress sets the reason of the condition Progressing.
func (d *decision) progress(reason, message string) {
	d.progressIs(corev1.ConditionTrue, reason, message)
}

func (d *decision) progressIs(status corev1.ConditionStatus, reason, message string) {
	d.condition(rollouts.ConditionProgressing, status, reason, message)
	d.say(message)
}

func (d *decision) condition(kind string, status corev1.ConditionStatus, reason, message string) {
	now := *d.time()
	c := d.status.Condition(kind)
	if c == nil {
		d.status.Conditions = append(d.status.Conditions, rollouts.Condition{Type: kind, Status: status, LastUpdateTime: now, LastTransitionTime: now, Reason: reason, Message: message})
		return
	}
	if c.Status != status {
		c.LastTransitionTime = now
	}
	if c.Status != status || c.Reason != reason || c.Message != message {
		c.LastUpdateTime = now
	}
	c.Status, c.Reason, c.Message = status, reason, message
}

// Hash identifies what a plan says of its steps and of the routing. How long steps last, and how many pods may fail, may
// change at any time.
func Hash(plan *rollouts.Plan) string {
	p := *plan
	p.FailureThreshold = nil
	p.Steps = slices.Clone(p.Steps)
	for i := range p.Steps {
		p.Steps[i].Pause = rollouts.Pause{}
	}
	text, err := json.Marshal(p)
	if err != nil { // of plain data that was JSON
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// missing reports what the traffic lacks; empty if nothing.
func (d *decision) missing() string {
	if why := d.facts.Traffic.Wrong; why != "" {
		return "The release waits: " + why
	}
	if len(d.facts.Traffic.Missing) == 0 {
		return ""
	}
	return fmt.Sprintf("The release waits, as these do not exist: %s.", strings.Join(d.facts.Traffic.Missing, ", "))
}

// grace is how long proxies get to take over a change.
func (d *decision) grace() time.Duration {
	t := d.plan.Traffic()
	if t == nil {
		return 0
	}
	return time.Duration(t.GracePeriod()) * time.Second
}

// passed reports whether the grace period after the last action has passed.
func (d *decision) passed() bool {
	rel := d.status.Release()
	if rel == nil || rel.LastUpdateTime == nil {
		return true
	}
	end := rel.LastUpdateTime.Add(d.grace())
	if d.facts.Now.Before(end) {
		d.until(end)
		return false
	}
	return true
}
