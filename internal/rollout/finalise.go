package rollout

import (
	"slices"

	"github.com/weirmesh/weir/api/rollouts"
)

// reason is why a release ends.
type reason int

const (
	reasonSuccess reason = iota
	reasonRollback
	reasonDisabled
	reasonDelete
	// reasonStep: it goes on, but its step routes nothing.
	reasonStep
	// reasonReset: another revision takes its place.
	reasonReset
	// reasonAbort: somebody gave it up, and the workload still wants the new version.
	reasonAbort
)

// sequence is the order in which a release is ended.
//
// What serves decides it. In a rollback the pods of the new version are the ones to get away from, so requests go to the
// stable version before anything else. After a success stable pods are about to vanish, so the stable Service selects
// all pods before requests go to it. A blue-green release, and one of pods that nobody here controls, has the new
// version serve everything until the stable Service has its pods.
func (d *decision) sequence(why reason) []rollouts.FinalisingStep {
	green := d.r.Spec.Strategy.BlueGreen != nil
	switch {
	case why == reasonReset:
		return []rollouts.FinalisingStep{rollouts.RouteTrafficToStable, rollouts.RemoveCanaryService}
	case why == reasonAbort: // the workload stays held: by itself it would go on to the new version
		return []rollouts.FinalisingStep{rollouts.RouteTrafficToStable, rollouts.ResumeWorkload, rollouts.RestoreStableService, rollouts.RemoveCanaryService}
	case why == reasonRollback && green:
		return []rollouts.FinalisingStep{
			rollouts.RouteTrafficToStable, rollouts.ResumeWorkload, rollouts.RestoreStableService, rollouts.RemoveCanaryService, rollouts.ReleaseWorkloadControl,
		}
	case why == reasonRollback:
		return []rollouts.FinalisingStep{
			rollouts.RouteTrafficToStable, rollouts.ResumeWorkload, rollouts.ReleaseWorkloadControl, rollouts.RestoreStableService, rollouts.RemoveCanaryService,
		}
	case why == reasonSuccess && (green || d.w != nil && d.w.Given):
		return []rollouts.FinalisingStep{
			rollouts.RouteTrafficToNew, rollouts.RestoreStableService, rollouts.ResumeWorkload, rollouts.RouteTrafficToStable, rollouts.RemoveCanaryService, rollouts.ReleaseWorkloadControl,
		}
	}
	return []rollouts.FinalisingStep{
		rollouts.RestoreStableService, rollouts.RouteTrafficToStable, rollouts.RemoveCanaryService, rollouts.ResumeWorkload, rollouts.ReleaseWorkloadControl,
	}
}

// finalise ends a release. It is true when nothing is left of it.
func (d *decision) finalise(why reason) bool {
	rel := d.status.Release()
	if rel == nil {
		return true
	}
	parts := d.sequence(why)
	if at := slices.Index(parts, rel.FinalisingStep); at >= 0 {
		parts = parts[at:]
	} else if rel.FinalisingStep == rollouts.FinalisingEnd {
		return true
	}
	for _, part := range parts {
		rel.FinalisingStep = part
		if !d.finalised(part, why) {
			return false
		}
	}
	rel.FinalisingStep = rollouts.FinalisingEnd
	if why == reasonSuccess {
		rel.CurrentStepState = rollouts.StepCompleted
	}
	return true
}

// reset ends the release of a revision in whose place another one comes. The stable Service stays pinned, and the workload
// held: otherwise requests would meet pods of both before the first step.
func (d *decision) reset() bool {
	if !d.finalise(reasonReset) {
		return false
	}
	d.status.Release().FinalisingStep = ""
	return true
}

// finalised brings about one part of the end. It is true when that is as it should be.
func (d *decision) finalised(part rollouts.FinalisingStep, why reason) bool {
	t, w := &d.facts.Traffic, d.w
	switch part {
	case rollouts.RestoreStableService:
		if why == reasonAbort && w != nil && w.Stays && w.Updated > 0 {
			return true // it would select pods of the new version
		}
		if d.generated() && t.Pinned != "" {
			d.do(Action{Do: Unpin})
			return false
		}
		return d.plan.Traffic() == nil || d.passed()
	case rollouts.RouteTrafficToNew, rollouts.RouteTrafficToStable:
		if d.plan.Traffic() == nil {
			return true
		}
		want := WantOriginal
		if part == rollouts.RouteTrafficToNew {
			want = WantNew
		}
		switch unserved := want == WantNew && d.generated() && t.Canary == ""; {
		case unserved && t.carries(WantOriginal):
			return true // the last step routed nothing: requests go wherever pods are
		case unserved:
			d.do(Action{Do: MakeCanary, Hash: d.status.Release().PodTemplateHash})
			return false
		case !t.carries(want):
			d.do(Action{Do: Route, Want: want})
			return false
		}
		if !t.Settled {
			d.wait(poll)
			return false
		}
		return d.passed()
	case rollouts.RemoveCanaryService:
		if d.generated() && t.Canary != "" {
			d.do(Action{Do: RemoveCanary})
			return false
		}
	case rollouts.ResumeWorkload:
		switch {
		case w == nil:
		case w.Given:
			if why == reasonSuccess && !w.Complete {
				d.say("All requests go to the new version. The release ends when the stable Service has its endpoints.")
				return false
			}
		case why == reasonAbort && w.Held && (w.Target > 0 || w.Updated > 0 && !w.Stays):
			d.say("The pods of the new version are being removed.")
			if d.wait(poll); w.Target > 0 {
				d.do(Action{Do: Upgrade})
			}
			return false
		case why == reasonAbort:
		case w.Held:
			d.say("The workload is replacing its pods.")
			d.do(Action{Do: Resume})
			return false
		case (why == reasonSuccess || why == reasonRollback) && !w.Complete:
			d.say("The workload is replacing its pods.")
			d.wait(poll)
			return false
		}
	case rollouts.ReleaseWorkloadControl:
		if w != nil && !w.Given && (w.Marked || w.Held) {
			d.do(Action{Do: Release})
			return false
		}
	}
	return true
}
