package command

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// promote edits the status as OpenKruise's users do: the state of the step, or the number of the next one.
func (a *asked) promote(c Command) (Change, error) {
	if c.Full {
		if err := a.ours("promote --full"); err != nil {
			return Change{}, err
		}
	}
	if err := a.atStep(); err != nil {
		return Change{}, err
	}
	rel, steps := a.Rollout.Status.Release(), int32(len(a.plan.Steps))
	ready := map[string]any{"currentStepState": string(rollouts.StepReady)}
	switch {
	case c.Full:
		if err := a.whole(); err != nil {
			return Change{}, err
		}
		return a.status(map[string]any{"currentStepIndex": int64(steps), "nextStepIndex": int64(-1), "currentStepState": string(rollouts.StepCompleted)},
			"The steps that are left are skipped: the release is being finished."), nil
	case c.Step < 0 || c.Step > int(steps):
		return Change{}, fmt.Errorf("there is no step %d: the Rollout has %d", c.Step, steps)
	case c.Step != 0 && int32(c.Step) == rel.CurrentStepIndex:
		return Change{}, fmt.Errorf("the release is at step %d", c.Step)
	case c.Step != 0 && int32(c.Step) == rel.NextStepIndex: // the natural next one is no jump
		return a.status(ready, fmt.Sprintf("The release goes to step %d of %d.", c.Step, steps)), nil
	case c.Step != 0:
		return a.status(map[string]any{"nextStepIndex": int64(c.Step)}, fmt.Sprintf("The release goes to step %d of %d.", c.Step, steps)), nil
	case rel.CurrentStepState != rollouts.StepPaused && rel.CurrentStepState != rollouts.StepMetricsAnalysis: // whose share may not agree
		return Change{}, fmt.Errorf("step %d of %d does not wait: it is in %s", rel.CurrentStepIndex, steps, rel.CurrentStepState)
	}
	return a.status(ready, fmt.Sprintf("Step %d of %d is approved.", rel.CurrentStepIndex, steps)), nil
}

// whole fails if all requests would go to fewer pods than there are to be: a blue-green release ends by sending all of
// them to the new version first.
func (a *asked) whole() error {
	w := a.Workload
	switch {
	case a.Rollout.Spec.Strategy.BlueGreen == nil:
	case w == nil:
		return errors.New("the workload cannot be read, so it is not known whether the new version has its pods")
	case w.Ready < w.Replicas:
		return fmt.Errorf("the new version has %d of %d pods, and all requests would go to them at once: wait, or go to a step with all pods by promote --step", w.Ready, w.Replicas)
	}
	return nil
}

// status is a change of the status. Where the top level repeats a field, it gets it, too.
func (a *asked) status(set map[string]any, said string) Change {
	status, part := map[string]any{}, "canaryStatus"
	if a.Rollout.Status.BlueGreenStatus != nil {
		part = "blueGreenStatus"
	}
	for field, v := range set {
		if field != "nextStepIndex" {
			status[field] = v
		}
	}
	status[part] = set
	if a.Rollout.Spec.Strategy.Paused {
		said += " But the Rollout is paused, so that this waits for resume."
	}
	return Change{Of: Status, Merge: map[string]any{"status": status}, Said: said}
}

func (a *asked) pause() (Change, error) {
	if a.Rollout.Spec.Strategy.Paused {
		return Change{}, errors.New("the Rollout is paused already")
	}
	said := "The Rollout is paused: the release stays where it is."
	switch s := a.stage(); s {
	case "":
		said = "The Rollout is paused: the next release waits before its first step."
	case finishing, goingBack:
		said = "The Rollout is paused, but " + string(s) + ", which pause does not stop. The next release waits before its first step."
	}
	return Change{Of: Rollout, Merge: map[string]any{"spec": map[string]any{"strategy": map[string]any{"paused": true}}}, Said: said}, nil
}

func (a *asked) resume() (Change, error) {
	waits := ""
	if n := a.waits(); n > 0 {
		waits = fmt.Sprintf(" Step %d of %d waits until somebody approves it: promote goes on.", n, len(a.plan.Steps))
	}
	if !a.Rollout.Spec.Strategy.Paused {
		return Change{}, errors.New("the Rollout is not paused." + waits)
	}
	return Change{Of: Rollout, Merge: map[string]any{"spec": map[string]any{"strategy": map[string]any{"paused": nil}}}, Said: "The Rollout goes on." + waits}, nil
}

// waits is the step that waits for approval; 0 if none does. The last one does not if it has all pods (internal/rollout).
func (a *asked) waits() int {
	rel := a.Rollout.Status.Release()
	if a.stage() != rolling || rel.CurrentStepState != rollouts.StepPaused {
		return 0
	}
	n := int(rel.CurrentStepIndex)
	if n < 1 || n > len(a.plan.Steps) || a.plan.Steps[n-1].Pause.Duration != nil {
		return 0
	}
	if all := a.plan.Steps[n-1].Replicas; n == len(a.plan.Steps) && all != nil && *all == intstr.FromString("100%") {
		return 0
	}
	return n
}

func (a *asked) abort() (Change, error) {
	if err := a.ours("abort"); err != nil {
		return Change{}, err
	}
	if w := a.Workload; w != nil && !w.Settled {
		return Change{}, ErrUnsettled
	}
	switch s := a.stage(); {
	case a.aborted():
		return Change{}, errors.New("the release is aborted already")
	case s == "":
		return Change{}, errors.New("nothing is being released")
	case s == finishing:
		return Change{}, errors.New(string(s) + "; undo goes back to the version before")
	case s == goingBack:
		return Change{}, errors.New(string(s))
	case a.Workload != nil && a.Workload.Update == a.Workload.Stable:
		return Change{}, errors.New("the workload is back at its stable version")
	}
	if err := a.blocked(); err != nil {
		return Change{}, err
	}
	said := "All requests go to the stable version, and pods of the new version are removed. Retry begins the release again; undo gives the workload its former template."
	if a.Workload != nil && a.Workload.Stays {
		said = "All requests go to the stable version. Pods of the new version stay until undo gives the workload its former template; retry begins the release again."
	}
	return annotate(a.revision(), said), nil
}

// annotate sets the annotation that gives up a revision, or removes it.
func annotate(revision any, said string) Change {
	return Change{Of: Rollout, Merge: map[string]any{"metadata": map[string]any{"annotations": map[string]any{rollout.AbortAnnotation: revision}}}, Said: said}
}

func (a *asked) retry() (Change, error) {
	if err := a.ours("retry"); err != nil {
		return Change{}, err
	}
	by := a.Rollout.Annotations[rollout.AbortAnnotation]
	switch {
	case by == "":
		return Change{}, errors.New("no release was aborted")
	case !a.aborted():
		return annotate(nil, fmt.Sprintf("Revision %s may be released again. What is being released now was not aborted, and nothing changes for it.", by)), nil
	case a.stage() == goingBack:
		return annotate(nil, "The release begins again with its first step when everything is put back."), nil
	}
	return annotate(nil, "The release begins again with its first step."), nil
}

// restart goes to the first step, also from there. An aborted release begins again.
func (a *asked) restart() (Change, error) {
	if a.stage() == "" && a.aborted() {
		return a.retry()
	}
	if err := a.atStep(); err != nil {
		if ref := a.Rollout.Spec.WorkloadRef; a.stage() == "" && ref.GroupKind().Group == "apps" {
			err = fmt.Errorf("%w; \"kubectl rollout restart %s/%s\" has the same version released step by step", err, ref.Kind, ref.Name)
		}
		return Change{}, err
	}
	return a.status(map[string]any{"nextStepIndex": int64(1)}, fmt.Sprintf("The release begins again with step 1 of %d.", len(a.plan.Steps))), nil
}

// undo gives the workload the template of the stable version; if nothing is being released, that of the version before.
func (a *asked) undo() (Change, error) {
	ref, w := a.Rollout.Spec.WorkloadRef, a.Workload
	if w == nil {
		return Change{}, fmt.Errorf("there is no %s %s that could go back", ref.Kind, ref.Name)
	}
	if !w.Settled {
		return Change{}, ErrUnsettled
	}
	if len(a.Revisions) == 0 {
		return Change{}, fmt.Errorf("no versions of %s %s are kept (it has no ControllerRevisions): apply the former version", ref.Kind, ref.Name)
	}
	said := "The release is taken back: requests go to the stable version first, then pods."
	var to *Revision
	switch {
	case w.Update != w.Stable:
		i := slices.IndexFunc(a.Revisions, func(r Revision) bool { return r.Name == w.Stable })
		if i < 0 {
			return Change{}, fmt.Errorf("the template of revision %s is not kept any more (spec.revisionHistoryLimit): apply the former version", w.Stable)
		}
		to = &a.Revisions[i]
		if a.aborted() {
			said += " It stays aborted: before the same revision can be released again, retry has to be asked for."
		}
	case a.Rollout.Status.Phase == rollouts.PhaseProgressing:
		return Change{}, errors.New("the workload is back at its stable version")
	default:
		before := slices.DeleteFunc(slices.Clone(a.Revisions), func(r Revision) bool { return r.Name == w.Update })
		if len(before) == 0 {
			return Change{}, errors.New("no version before this one is kept")
		}
		last := slices.MaxFunc(before, func(x, y Revision) int { return cmp.Or(cmp.Compare(x.Number, y.Number), cmp.Compare(x.Name, y.Name)) })
		to, said = &last, "The Rollout releases it step by step."
	}
	if len(to.Template) == 0 {
		return Change{}, fmt.Errorf("revision %s has no template that can be read", to.Name)
	}
	return Change{Of: Workload, Template: to.Template, Said: fmt.Sprintf("%s %s has the template of revision %d (%s) again. %s", ref.Kind, ref.Name, to.Number, to.Name, said)}, nil
}
