package rollout

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weirmesh/weir/api/rollouts"
)

// steps goes on with the current step.
func (d *decision) steps() {
	rel := d.status.Release()
	d.status.Count(d.w.Updated, d.w.Ready)
	if d.jump() {
		return
	}
	if rel.CurrentStepIndex < 1 || int(rel.CurrentStepIndex) > len(d.plan.Steps) {
		d.enter(max(1, min(rel.CurrentStepIndex, int32(len(d.plan.Steps)))), rollouts.StepInit)
		return
	}
	step := &d.plan.Steps[rel.CurrentStepIndex-1]
	if rel.CurrentStepState != rollouts.StepCompleted && !step.Shifts() && !d.unrouted() {
		return
	}
	switch rel.CurrentStepState {
	case rollouts.StepUpgrade:
		d.upgrade(step)
	case rollouts.StepTrafficRouting:
		d.route(step)
	case rollouts.StepMetricsAnalysis:
		d.measure(step)
	case rollouts.StepPaused:
		d.pause(step)
	case rollouts.StepReady:
		if next := d.next(rel.CurrentStepIndex); next > 0 {
			d.tell("StepCompleted", false, fmt.Sprintf("Step %d of %d is complete.", rel.CurrentStepIndex, len(d.plan.Steps)))
			d.enter(next, rollouts.StepInit)
			// All that was done so far had its grace period before the step was complete.
			switch to := &d.plan.Steps[next-1]; {
			case !d.prepared(to):
			case to.Shifts() && d.supplied(to):
				d.shift()
			default:
				d.state(rollouts.StepUpgrade)
			}
			return
		}
		d.tell("StepCompleted", false, fmt.Sprintf("Step %d of %d is complete, the last one.", rel.CurrentStepIndex, len(d.plan.Steps)))
		d.state(rollouts.StepCompleted)
	case rollouts.StepCompleted:
		rel.FinalisingStep = ""
		d.progress(rollouts.ReasonFinalising, "All steps are complete: the release is being finished.")
		d.soon()
	default:
		d.init(step)
	}
}

// state goes on to another state of the step.
func (d *decision) state(s rollouts.StepState) {
	rel := d.status.Release()
	rel.CurrentStepState, rel.LastUpdateTime = s, d.time()
	d.soon()
}

// jump goes to the step that somebody wrote into nextStepIndex.
func (d *decision) jump() bool {
	rel := d.status.Release()
	natural := d.next(rel.CurrentStepIndex)
	next := rel.NextStepIndex
	if next == natural {
		return false
	}
	if next < 1 || int(next) > len(d.plan.Steps) { // no step: it is corrected
		rel.NextStepIndex = natural
		return false
	}
	from := rel.CurrentStepIndex
	state := rollouts.StepInit
	if from >= 1 && int(from) <= len(d.plan.Steps) && d.plan.Steps[from-1].Pods(d.w.Replicas) == d.plan.Steps[next-1].Pods(d.w.Replicas) && rel.CurrentStepState != rollouts.StepInit &&
		rel.CurrentStepState != rollouts.StepUpgrade {
		state = rollouts.StepTrafficRouting // the pods are there
	}
	d.tell("Jumped", false, fmt.Sprintf("The release jumps from step %d to step %d.", from, next))
	d.enter(next, state)
	return true
}

// unrouted puts back, for a step that routes nothing, what earlier steps changed. It is true when that is done.
func (d *decision) unrouted() bool {
	for _, part := range []rollouts.FinalisingStep{rollouts.RestoreStableService, rollouts.RouteTrafficToStable, rollouts.RemoveCanaryService} {
		if !d.finalised(part, reasonStep) {
			return false
		}
	}
	return true
}

// generated reports whether there is a canary Service to make, and a stable one to pin.
func (d *decision) generated() bool {
	return d.plan.Traffic() != nil && !d.plan.DisableGenerateCanaryService && !d.facts.Traffic.Given
}

// init prepares a step, and waits until proxies have taken over what was changed.
func (d *decision) init(step *rollouts.Step) {
	if d.prepared(step) && (!step.Shifts() || d.passed()) {
		d.state(rollouts.StepUpgrade)
	}
}

// prepared prepares the Services before pods of the new version come. It is true when that is done.
func (d *decision) prepared(step *rollouts.Step) bool {
	if !step.Shifts() || d.plan.Traffic() == nil {
		return true
	}
	if why := d.missing(); why != "" {
		d.say(why)
		d.wait(poll)
		return false
	}
	switch {
	case !d.w.Given && (!d.w.Held || !d.w.Marked): // before anything rests on the stable pods
		d.do(Action{Do: Hold})
		return false
	case !d.generated():
	case d.whole(step) && d.facts.Traffic.Pinned != "":
		d.do(Action{Do: Unpin})
		return false
	case d.unpinned(step) && d.serves(step) && d.w.Target <= step.Pods(d.w.Replicas): // else pods of the stable revision come first
		d.do(Action{Do: Pin, Hash: d.w.StableHash})
		return false
	}
	return true
}

// whole reports whether a step leaves no stable pods: the stable Service must not select nothing but them.
func (d *decision) whole(step *rollouts.Step) bool {
	return step.Pods(d.w.Replicas) >= d.w.Replicas && d.r.Spec.Style() == rollouts.Partition
}

// unpinned reports whether the stable Service has to be restricted to stable pods, and is not. By itself it selects pods
// of all versions, so that every request could meet a new one.
func (d *decision) unpinned(step *rollouts.Step) bool {
	return d.generated() && !d.whole(step) && d.w.StableHash != "" && d.facts.Traffic.Pinned != d.w.StableHash
}

// serves reports whether the stable version has three quarters of the pods that a step leaves it, and at least one.
func (d *decision) serves(step *rollouts.Step) bool {
	if d.w.Stays { // what is left of it is all there will be
		return d.w.StableReady > 0
	}
	left := d.w.Replicas
	if d.r.Spec.Style() == rollouts.Partition {
		left -= step.Pods(d.w.Replicas)
	}
	return d.w.StableReady >= max(1, left-left/4)
}

// upgrade waits until the new version has the step's pods.
func (d *decision) upgrade(step *rollouts.Step) {
	rel := d.status.Release()
	w, pods := d.w, step.Pods(d.w.Replicas)
	d.say(fmt.Sprintf("Step %d of %d: %d of %d pods of the new version are ready.", rel.CurrentStepIndex, len(d.plan.Steps), w.Ready, pods))
	switch {
	case w.Given && w.Ready < 1:
		d.say(fmt.Sprintf("Step %d of %d: the new version has no ready endpoint.", rel.CurrentStepIndex, len(d.plan.Steps)))
		return
	case w.Given:
	case !w.Held || !w.Marked:
		d.do(Action{Do: Hold})
		return
	case w.Target != pods:
		d.do(Action{Do: Upgrade, Pods: pods})
		return
	case !d.supplied(step):
		d.wait(poll)
		return
	}
	d.tell("PodsReady", false, fmt.Sprintf("Step %d: the new version has its pods.", rel.CurrentStepIndex))
	d.shift()
}

// supplied reports whether the new version has a step's pods.
func (d *decision) supplied(step *rollouts.Step) bool {
	w, pods := d.w, step.Pods(d.w.Replicas)
	if w.Given {
		return w.Ready >= 1
	}
	return w.Held && w.Marked && w.Target == pods && w.Updated >= pods && w.Ready >= pods-d.tolerated(pods)
}

// shift goes on to the requests of a step that has its pods.
func (d *decision) shift() {
	d.status.Release().PodTemplateHash = d.w.UpdateHash
	d.state(rollouts.StepTrafficRouting)
}

// tolerated is how many of the new pods may be unavailable.
func (d *decision) tolerated(pods int32) int32 {
	t := d.plan.FailureThreshold
	if t == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(t, int(pods), false)
	if err != nil {
		return 0
	}
	return min(int32(n), pods)
}

// route makes the step's requests go to the new version.
func (d *decision) route(step *rollouts.Step) {
	rel, t := d.status.Release(), &d.facts.Traffic
	want := Want(rel.CurrentStepIndex)
	if step.Shifts() && d.plan.Traffic() != nil {
		if why := d.missing(); why != "" {
			d.say(why)
			d.wait(poll)
			return
		}
		// One message for all that follows each other without a pause: each change of it is a write.
		routing := fmt.Sprintf("Step %d of %d: requests are being routed.", want, len(d.plan.Steps))
		switch {
		case d.generated() && !d.whole(step) && d.w.StableHash != "" && !d.serves(step):
			d.say(fmt.Sprintf("Step %d of %d: %d pods of the stable version are ready.", want, len(d.plan.Steps), d.w.StableReady))
			d.wait(poll)
			return
		case d.unpinned(step):
			d.say(routing)
			d.do(Action{Do: Pin, Hash: d.w.StableHash})
			return
		case d.generated() && (t.Canary == "" || t.Canary != rel.PodTemplateHash):
			d.say(routing)
			d.do(Action{Do: MakeCanary, Hash: rel.PodTemplateHash})
			return
		case !t.carries(want) && d.generated() && t.Unready != "" && toNew(step):
			d.say(fmt.Sprintf("Step %d of %d: %s.", want, len(d.plan.Steps), t.Unready))
			d.wait(poll)
			return
		case !t.carries(want):
			d.say(routing)
			d.do(Action{Do: Route, Want: want})
			return
		case !t.Settled:
			d.say(fmt.Sprintf("Step %d of %d: %s.", want, len(d.plan.Steps), cmp.Or(t.Awaited, "proxies are taking over how requests are routed")))
			d.wait(poll)
			return
		case !d.passed():
			return
		}
		d.tell("RequestsShifted", false, fmt.Sprintf("Step %d: %s", want, who(d.plan, step)))
	}
	d.state(rollouts.StepMetricsAnalysis)
}

// toNew reports whether a step sends any requests to the new version.
func toNew(step *rollouts.Step) bool {
	percent, _ := step.Percent()
	return len(step.Matches) > 0 || percent > 0
}

// kept brings back what somebody changed of a step that is in force: an edit of a route by its user has the step laid over
// it anew. The step's time goes on.
func (d *decision) kept(step *rollouts.Step) bool {
	rel, t, w := d.status.Release(), &d.facts.Traffic, d.w
	switch pods := step.Pods(w.Replicas); {
	case w.Given:
	case !w.Held || !w.Marked:
		d.out.Action = &Action{Do: Hold}
		d.soon()
		return false
	case w.Target != pods: // it was scaled
		d.out.Action = &Action{Do: Upgrade, Pods: pods}
		d.soon()
		return false
	}
	if !step.Shifts() || d.plan.Traffic() == nil || len(t.Missing) > 0 || t.Wrong != "" {
		return true
	}
	want := Want(rel.CurrentStepIndex)
	switch {
	case d.generated() && t.Canary != rel.PodTemplateHash:
		d.out.Action = &Action{Do: MakeCanary, Hash: rel.PodTemplateHash}
	case d.unpinned(step) && d.serves(step):
		d.out.Action = &Action{Do: Pin, Hash: d.w.StableHash}
	case !t.carries(want) && d.generated() && t.Unready != "" && toNew(step):
		d.wait(poll)
		return false
	case !t.carries(want):
		d.out.Action = &Action{Do: Route, Want: want}
	default:
		return true
	}
	d.soon()
	return false
}

// pause waits for the step's time, or for somebody.
func (d *decision) pause(step *rollouts.Step) {
	rel := d.status.Release()
	if !d.kept(step) {
		return
	}
	n, steps := rel.CurrentStepIndex, int32(len(d.plan.Steps))
	all := step.Replicas != nil && *step.Replicas == intstr.FromString("100%")
	switch {
	case n == steps && all && step.Pause.Duration == nil:
		d.state(rollouts.StepReady) // there is nothing to wait for
	case step.Pause.Duration == nil:
		d.say(fmt.Sprintf("Step %d of %d waits until somebody approves it.", n, steps))
	default:
		end := rel.LastUpdateTime.Add(time.Duration(*step.Pause.Duration) * time.Second)
		if !d.facts.Now.Before(end) {
			d.state(rollouts.StepReady)
			return
		}
		d.say(fmt.Sprintf("Step %d of %d lasts %d seconds.", n, steps, *step.Pause.Duration))
		d.until(end)
	}
}
