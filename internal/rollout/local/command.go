package local

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirmesh/weir/api/rollouts"
	dialect "github.com/weirmesh/weir/internal/dialect/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/command"
	"github.com/weirmesh/weir/internal/rollout/view"
)

// Command is one request of somebody.
type Command struct {
	Namespace, Name string
	command.Command
}

// ErrNotFound means that there is no such Rollout.
var ErrNotFound = errors.New("there is no such Rollout")

type request struct {
	Command
	done chan<- error
}

// Do carries out a command. When it returns without an error, Views show what follows from it.
func (s *Source) Do(ctx context.Context, c Command) error {
	done := make(chan error, 1)
	select {
	case s.commands <- request{c, done}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *keeper) carryOut(c Command) error {
	if k.set == nil {
		return errors.New("the files have not been read yet")
	}
	all := dialect.List.In(k.set)
	i := slices.IndexFunc(all, func(r *rollouts.Rollout) bool { return r.Namespace == c.Namespace && r.Name == c.Name })
	if i < 0 {
		return fmt.Errorf("%w: Rollout %s/%s", ErrNotFound, c.Namespace, c.Name)
	}
	st := k.states[id(all[i])]
	if !k.leads || st == nil {
		return errors.New("another process carries out the Rollouts of these files: ask it")
	}
	if why := rollout.LeftAlone(all[i]); why != "" {
		return errors.New("nothing would follow, as the Rollout cannot be carried out: " + why)
	}
	return st.carryOut(all[i], c)
}

func (s *state) carryOut(r *rollouts.Rollout, c Command) error {
	if err := c.Check(); err != nil {
		return err
	}
	if r.Spec.Disabled && c.Verb != command.Pause && c.Verb != command.Resume {
		return errors.New("the Rollout is disabled: remove spec.disabled from its file")
	}
	releasing := s.active() && s.Status.Phase == rollouts.PhaseProgressing
	aborted := s.active() && s.Abort == s.Update.Name
	switch c.Verb {
	case command.Promote:
		if !releasing {
			return errors.New("nothing is being released")
		}
		return s.promote(r.Spec.Strategy.Plan(), c)
	case command.Pause:
		if s.Paused || r.Spec.Strategy.Paused {
			return errors.New("the Rollout is paused already")
		}
		s.Paused = true
	case command.Resume:
		switch {
		case s.Paused:
			s.Paused = false
		case r.Spec.Strategy.Paused:
			return errors.New("the Rollout's file pauses it: remove spec.strategy.paused there")
		default:
			return errors.New("the Rollout is not paused; a step that waits goes on by promote")
		}
	case command.Abort:
		switch {
		case aborted:
			return errors.New("the release is aborted already")
		case !releasing:
			return errors.New("nothing is being released")
		}
		s.Abort = s.Update.Name
	case command.Retry:
		if !aborted || releasing {
			return errors.New("no release was aborted")
		}
		s.Abort = ""
	case command.Undo:
		return s.undo(releasing, aborted)
	case command.Restart:
		switch {
		case s.Update == nil:
			return errors.New("the canary's Service has no endpoints, so there is nothing to release")
		case within(s.Update.Endpoints, s.Stable.Endpoints):
			return errors.New("the canary's Service has the endpoints of the stable one, so there is nothing to release")
		}
		fresh := s.newRevision(s.Update.Endpoints)
		s.Update = &fresh
		s.Abort, s.Promoted = "", ""
	default:
		return fmt.Errorf("%q is nothing that can be asked of a Rollout", c.Verb)
	}
	return nil
}

// promote edits the status as OpenKruise's users do: by the state of the step, or the number of the next one.
func (s *state) promote(plan *rollouts.Plan, c Command) error {
	s.Status = rollout.CopyStatus(s.Status) // Views have the one before
	rel, steps := s.Status.Release(), int32(len(plan.Steps))
	if s.waiting() {
		if c.Full || c.Step != 0 {
			return errors.New("all steps are complete; promote alone says that the stable Service has the new version")
		}
		s.Promoted = s.Update.Name
		return nil
	}
	if p := s.Status.Condition(rollouts.ConditionProgressing); rel == nil || p == nil || p.Reason != rollouts.ReasonInRolling && p.Reason != rollouts.ReasonPaused {
		return errors.New("the release is not at a step")
	}
	switch {
	case c.Full:
		rel.CurrentStepIndex, rel.NextStepIndex, rel.CurrentStepState = steps, -1, rollouts.StepCompleted
	case c.Step < 0 || c.Step > int(steps):
		return fmt.Errorf("there is no step %d: the Rollout has %d", c.Step, steps)
	case c.Step != 0 && int32(c.Step) == rel.CurrentStepIndex:
		return fmt.Errorf("the release is at step %d", c.Step)
	case c.Step != 0:
		if int32(c.Step) == rel.NextStepIndex { // the natural next one is no jump
			rel.CurrentStepState = rollouts.StepReady
			return nil
		}
		rel.NextStepIndex = int32(c.Step)
	case rel.CurrentStepState != rollouts.StepPaused:
		return fmt.Errorf("step %d of %d does not wait: it is in %s", rel.CurrentStepIndex, steps, rel.CurrentStepState)
	default:
		rel.CurrentStepState = rollouts.StepReady
	}
	return nil
}

// skip ends the steps of a release whose version the stable Service has already.
func (s *state) skip(plan *rollouts.Plan) {
	rel, p := s.Status.Release(), s.Status.Condition(rollouts.ConditionProgressing)
	if rel == nil || p == nil || s.Status.Phase != rollouts.PhaseProgressing || p.Reason != rollouts.ReasonInRolling || s.Status.Revision() != s.Update.Name {
		return
	}
	if rel.CurrentStepState != rollouts.StepCompleted {
		s.Status = rollout.CopyStatus(s.Status) // Views have the one before
		rel = s.Status.Release()
		rel.CurrentStepIndex, rel.NextStepIndex, rel.CurrentStepState = int32(len(plan.Steps)), -1, rollouts.StepCompleted
	}
}

func (s *state) undo(releasing, aborted bool) error {
	switch {
	case releasing && !aborted: // the stable Service still has the version before
		s.Abort = s.Update.Name
		return nil
	case aborted:
		return errors.New("the stable version serves all requests already")
	}
	for _, p := range slices.Backward(s.Releases) {
		if p.Outcome == view.Released {
			return fmt.Errorf("revision %d has taken the place of the version before in the stable Service: give that its old endpoints again, or give them to the canary's Service to release them step by step", p.Revision)
		}
	}
	return errors.New("nothing was released")
}
