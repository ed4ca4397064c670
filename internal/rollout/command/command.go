// Package command is what people ask of Rollouts: the verbs, and for a Rollout in a cluster the one change of one object
// that carries a verb out. It is pure: whoever has a client (internal/kube/operate) reads the facts and makes the change.
package command

import (
	"errors"
	"fmt"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// Verb is what somebody asks of a Rollout.
type Verb string

// The verbs.
const (
	// Promote goes on with a step that waits, or with all that follow if Full, or at Step if that is not 0. Without a
	// cluster it says of a release that waits for the stable Service that this has the new version.
	Promote Verb = "promote"
	// Pause stops the release where it is, Resume goes on.
	Pause  Verb = "pause"
	Resume Verb = "resume"
	// Abort sends all requests to the stable version. Retry begins an aborted release again.
	Abort Verb = "abort"
	Retry Verb = "retry"
	// Undo goes back to the version before, as far as it is still there.
	Undo Verb = "undo"
	// Restart begins with the first step again.
	Restart Verb = "restart"
)

// Verbs are all there are.
var Verbs = []Verb{Promote, Pause, Resume, Abort, Retry, Undo, Restart}

// Command is a verb with its options.
type Command struct {
	Verb Verb
	Full bool
	// Step counts from 1; 0 is none.
	Step int
}

// Check fails for options that the verb does not have.
func (c Command) Check() error {
	switch {
	case c.Verb != Promote && (c.Full || c.Step != 0):
		return fmt.Errorf("%s has neither full nor step", c.Verb)
	case c.Full && c.Step != 0:
		return errors.New("full and step exclude each other")
	}
	return nil
}

// Facts are a Rollout in a cluster as it was read, and what has to be known beside it.
type Facts struct {
	Rollout *rollouts.Rollout
	// Away says why Weir's controller does not carry Rollouts out in this cluster; empty if it may.
	Away string
	// Workload is nil if it is not there, or was not to be read.
	Workload *rollout.Workload
	// Revisions of the workload are in any order.
	Revisions []Revision
}

// Revision is a version of a workload.
type Revision struct {
	Number int64
	// Name is the one that the Rollout's status has, such as a value of the label pod-template-hash.
	Name string
	// Template is that of pods, without what the workload's own controller adds.
	Template map[string]any
}

// Part is what a Change changes.
type Part string

// The parts.
const (
	Rollout  Part = "rollouts"
	Status   Part = "rollouts/status"
	Workload Part = "workload"
)

// Change is one change of one object. It is meant for the object at the version that was read.
type Change struct {
	Of Part
	// Merge is a JSON merge patch of the Rollout or its status.
	Merge map[string]any
	// Template takes the place of the workload's.
	Template map[string]any
	// Said says in sentences what follows.
	Said string
}

// ErrUnsettled means that the workload's own controller has yet to see its newest form: read it again in a moment.
var ErrUnsettled = errors.New("the workload's own controller has not seen its newest form yet")

// Change returns the change that carries the command out, or why it cannot be.
func (c Command) Change(f Facts) (Change, error) {
	if err := c.Check(); err != nil {
		return Change{}, err
	}
	a := asked{Facts: f, plan: f.Rollout.Spec.Strategy.Plan()}
	switch {
	case f.Rollout.DeletionTimestamp != nil:
		return Change{}, errors.New("the Rollout is being deleted")
	case a.plan == nil || len(a.plan.Steps) == 0:
		return Change{}, errors.New("the Rollout is not valid: it has no steps")
	case f.Rollout.Spec.Disabled && c.Verb != Pause && c.Verb != Resume:
		return Change{}, errors.New("the Rollout is disabled: remove spec.disabled")
	}
	if why := rollout.LeftAlone(f.Rollout); why != "" && f.Away == "" {
		return Change{}, errors.New("nothing would follow, as the Rollout cannot be carried out: " + why)
	}
	switch c.Verb {
	case Promote:
		return a.promote(c)
	case Pause:
		return a.pause()
	case Resume:
		return a.resume()
	case Abort:
		return a.abort()
	case Retry:
		return a.retry()
	case Undo:
		return a.undo()
	case Restart:
		return a.restart()
	}
	return Change{}, fmt.Errorf("%q is nothing that can be asked of a Rollout", c.Verb)
}

// asked is what a command is asked about.
type asked struct {
	Facts
	plan *rollouts.Plan
}

// stage is how far a release is; empty if there is none.
type stage string

const (
	beginning stage = "the release begins just now: ask again in a moment"
	rolling   stage = "the release is at a step"
	finishing stage = "all steps are complete: the release is being finished"
	goingBack stage = "the release is being taken back"
)

func (a *asked) stage() stage {
	s := &a.Rollout.Status
	if s.Phase != rollouts.PhaseProgressing {
		return ""
	}
	p := s.Condition(rollouts.ConditionProgressing)
	if p == nil || s.Release() == nil {
		return beginning
	}
	switch p.Reason {
	case rollouts.ReasonInRolling, rollouts.ReasonPaused:
		return rolling
	case rollouts.ReasonFinalising, rollouts.ReasonCompleted:
		return finishing
	case rollouts.ReasonCancelling:
		return goingBack
	}
	return beginning
}

// aborted reports whether the annotation gives up the revision that is, or would be, released.
func (a *asked) aborted() bool {
	by := a.Rollout.Annotations[rollout.AbortAnnotation]
	return by != "" && by == a.revision() && (a.Workload == nil || a.Workload.Update != a.Workload.Stable)
}

// revision is the newest one, as far as that is known.
func (a *asked) revision() string {
	if a.Workload != nil && a.Away == "" { // OpenKruise's controller has names of its own
		return a.Workload.Update
	}
	return a.Rollout.Status.Revision()
}

// atStep fails unless the release is at a step that commands can be about.
func (a *asked) atStep() error {
	switch s := a.stage(); {
	case s == "" && a.aborted():
		return errors.New("the release was aborted: retry begins it again")
	case s == "":
		return errors.New("nothing is being released")
	case s != rolling:
		return errors.New(string(s))
	}
	return a.blocked()
}

// blocked fails if a version came midway that a blue-green release does not take: it stays as it is until somebody goes back.
func (a *asked) blocked() error {
	w, now := a.Workload, a.Rollout.Status.Revision()
	if a.Rollout.Spec.Strategy.BlueGreen == nil || w == nil || a.Away != "" || a.stage() != rolling || w.Update == w.Stable || w.Update == now {
		return nil
	}
	return fmt.Errorf("revision %s came while %s is being released, and a blue-green release takes no other version midway: go back by undo, and apply the new version again when the release is over", w.Update, now)
}

// ours fails where Weir's controller does not carry Rollouts out.
func (a *asked) ours(what string) error {
	if a.Away == "" {
		return nil
	}
	return fmt.Errorf("%s works only where Weir's controller carries Rollouts out (%s); promote, promote --step, pause, resume, undo and restart work here, too", what, a.Away)
}
