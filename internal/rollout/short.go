package rollout

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/api/rollouts"
)

// maxShort bounds how much of what a step falls short of its condition tells.
const maxShort = 3

// String is what it says, as the end of a sentence.
func (t Told) String() string {
	at := ""
	if t.Field != "" {
		at = t.Field + ": "
	}
	return at + t.Message + "; " + t.Fix
}

// Short are those of some Tolds by which a step cannot be carried out as it is written.
func Short(told []Told) (short []Told) {
	for _, t := range told {
		if t.Short {
			short = append(short, t)
		}
	}
	return short
}

// ShortEvents tells what a step cannot be.
func ShortEvents(told []Told, step Want) (events []Event) {
	for _, t := range Short(told) {
		events = append(events, Event{Reason: "StepFallsShort", Warning: true, Message: fmt.Sprintf("Step %d cannot be carried out as it is written: %s.", step, t)})
	}
	return events
}

// asWritten has the status say by a condition that the step which is carried out is not as it is written, as long as that is
// so.
func (d *decision) asWritten() {
	var why []string
	reason := rollouts.ReasonTrafficIgnored
	n := d.rollingStep()
	if n > 0 {
		if s := &d.plan.Steps[n-1]; s.Traffic != nil && len(s.Matches) > 0 {
			why = append(why, "traffic: has no effect beside matches; remove it, or make two steps of it")
		}
		if t := &d.facts.Traffic; t.ShortOf == Want(n) && len(t.Short) > 0 {
			reason = rollouts.ReasonNotExpressed
			for _, told := range t.Short {
				why = append(why, told.String())
			}
		}
	}
	if len(why) == 0 {
		if d.status.Condition(rollouts.ConditionAsWritten) != nil {
			d.status.Conditions = slices.DeleteFunc(d.status.Conditions, func(c rollouts.Condition) bool { return c.Type == rollouts.ConditionAsWritten })
		}
		return
	}
	more := ""
	if extra := len(why) - maxShort; extra > 0 {
		why, more = why[:maxShort], fmt.Sprintf(" (and %d more)", extra)
	}
	d.condition(rollouts.ConditionAsWritten, corev1.ConditionFalse, reason, fmt.Sprintf("Step %d is not carried out as it is written: %s%s.", n, strings.Join(why, "; and "), more))
}

// rollingStep is the step that is carried out, from 1; 0 if none is.
func (d *decision) rollingStep() int {
	rel, c := d.status.Release(), d.status.Condition(rollouts.ConditionProgressing)
	if d.status.Phase != rollouts.PhaseProgressing || rel == nil || c == nil || c.Reason != rollouts.ReasonInRolling && c.Reason != rollouts.ReasonPaused {
		return 0
	}
	if n := int(rel.CurrentStepIndex); n >= 1 && n <= len(d.plan.Steps) {
		return n
	}
	return 0
}
