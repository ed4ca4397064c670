package rollout

import (
	"strings"

	"github.com/weirmesh/weir/api/rollouts"
)

// cannot begins what a status says of a change that does not succeed. Nothing else that a status says contains it.
const cannot = "Weir cannot "

// Obstruct has a status say, after what it says anyway, that a change does not succeed: the change as a verb with its
// object, such as "update Deployment web", and why, as whole sentences. Decide takes that back out. It returns what it added.
func Obstruct(s *rollouts.Status, change, why string) (said string) {
	said = cannot + change + ": " + why
	each(s, func(message string) string { return strings.TrimLeft(unobstructed(message)+" "+said, " ") })
	return said
}

// Obstructed reports whether a status tells of a change that does not succeed.
func Obstructed(s *rollouts.Status) bool { return strings.Contains(s.Message, cannot) }

// unobstructed is a message without what Obstruct added.
func unobstructed(message string) string {
	before, _, found := strings.Cut(message, cannot)
	if !found {
		return message
	}
	return strings.TrimRight(before, " ")
}

// each edits every message that says how a release stands.
func each(s *rollouts.Status, edit func(string) string) {
	s.Message = edit(s.Message)
	if rel := s.Release(); rel != nil {
		rel.Message = edit(rel.Message)
	}
	if c := s.Condition(rollouts.ConditionProgressing); c != nil && s.Phase == rollouts.PhaseProgressing {
		c.Message = edit(c.Message)
	}
}
