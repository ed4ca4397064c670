package local

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/view"
)

// Bounds on what is remembered of a Rollout.
const (
	maxReleases = 20
	maxEvents   = 50
)

// state is what is remembered of one Rollout. It outlives the process.
type state struct {
	// Stable and Update are the versions behind the two Services. Update is nil if the canary's Service has no endpoints.
	// They are of the same number if there is nothing to release.
	Stable revision  `json:"stable"`
	Update *revision `json:"update,omitempty"`
	// Last is the number of the newest revision.
	Last int `json:"last"`

	Status rollouts.Status `json:"status"`
	// Routing is what is laid over the objects; nil leaves them as they are written.
	Routing *rollout.Routing `json:"routing,omitempty"`
	// Paused and Abort are what somebody asked for. Abort is the name of a revision.
	Paused bool   `json:"paused,omitempty"`
	Abort  string `json:"abort,omitempty"`
	// Promoted is the name of the revision of which somebody said that the stable Service has it.
	Promoted string `json:"promoted,omitempty"`

	Releases []view.Past  `json:"releases,omitempty"`
	Events   []view.Event `json:"events,omitempty"`
}

// revision is a version: the endpoints of a Service, as long as some of them stay.
type revision struct {
	Number int `json:"number"`
	// Name has the number and a hash of its first endpoints.
	Name string `json:"name"`
	// Endpoints are those it has now, as "address:port", sorted.
	Endpoints []string `json:"endpoints"`
}

func (s *state) newRevision(endpoints []string) revision {
	s.Last++
	sum := sha256.Sum256([]byte(strings.Join(endpoints, " ")))
	return revision{Number: s.Last, Name: fmt.Sprintf("%d-%s", s.Last, hex.EncodeToString(sum[:3])), Endpoints: endpoints}
}

// active reports whether there is something to release.
func (s *state) active() bool { return s.Update != nil && s.Update.Name != s.Stable.Name }

// waiting reports whether the release is over but for the stable Service, which has not got the new version yet.
func (s *state) waiting() bool {
	c := s.Status.Condition(rollouts.ConditionProgressing)
	return s.active() && s.Status.Phase == rollouts.PhaseProgressing && c != nil && c.Reason == rollouts.ReasonFinalising
}

// within reports whether all of some endpoints are among others.
func within(some, others []string) bool {
	return len(some) > 0 && !slices.ContainsFunc(some, func(e string) bool { return !slices.Contains(others, e) })
}

// common reports whether any endpoint is among others.
func common(some, others []string) bool {
	return slices.ContainsFunc(some, func(e string) bool { return slices.Contains(others, e) })
}

// observe takes note of the endpoints that the two Services have now. A Service without endpoints keeps its revision, but
// for the canary's. promoted reports that the stable Service has the new version.
func (s *state) observe(stable, canary []string) (promoted bool) {
	if s.Last == 0 {
		s.Stable = s.newRevision(stable)
	}
	switch {
	case len(stable) == 0:
	case s.active() && (within(stable, s.Update.Endpoints) || within(stable, canary)):
		promoted = true
	case len(s.Stable.Endpoints) == 0 || common(stable, s.Stable.Endpoints):
		s.Stable.Endpoints = stable
	case s.waiting(): // whatever took the place of the old version is the user's new one
		promoted = true
	case s.active():
		s.Stable = s.newRevision(stable)
	default:
		same := s.Update != nil
		s.Stable = s.newRevision(stable)
		if same { // an unchanged canary begins no release
			s.Update.Number, s.Update.Name = s.Stable.Number, s.Stable.Name
		}
	}
	switch {
	case len(canary) == 0 && promoted: // the endpoints moved from one Service to the other
	case len(canary) == 0:
		s.Update = nil
	case s.Update == nil && within(canary, s.Stable.Endpoints):
		s.Update = &revision{Number: s.Stable.Number, Name: s.Stable.Name, Endpoints: canary}
	case s.Update == nil, !common(canary, s.Update.Endpoints):
		fresh := s.newRevision(canary)
		s.Update = &fresh
	default:
		s.Update.Endpoints = canary
	}
	if s.Update == nil || s.Abort != s.Update.Name {
		s.Abort = ""
	}
	if s.Update == nil || s.Promoted != s.Update.Name {
		s.Promoted = ""
	}
	return s.active() && (promoted || s.Promoted != "")
}

// settle makes the version that was released the stable one.
func (s *state) settle(stable []string) {
	s.Stable = revision{Number: s.Update.Number, Name: s.Update.Name, Endpoints: stable}
	s.Promoted, s.Abort = "", ""
}

// tell adds events.
func (s *state) tell(now time.Time, events ...rollout.Event) {
	for _, e := range events {
		s.Events = append(s.Events, view.Event{Time: now, Warning: e.Warning, Message: e.Message})
	}
	if n := len(s.Events) - maxEvents; n > 0 {
		s.Events = slices.Delete(s.Events, 0, n)
	}
}

// record keeps the history of releases true. before is the status that was decided on.
func (s *state) record(before *rollouts.Status, now time.Time) {
	open := func() *view.Past {
		if n := len(s.Releases); n > 0 && s.Releases[n-1].Ended == nil {
			return &s.Releases[n-1]
		}
		return nil
	}
	end := func(o view.Outcome) {
		if p := open(); p != nil {
			p.Ended, p.Outcome = &now, o
		}
	}
	after := &s.Status
	if after.Phase == rollouts.PhaseProgressing && s.active() {
		if p := open(); p == nil || p.Name != s.Update.Name {
			end(view.Replaced)
			s.Releases = append(s.Releases, view.Past{Revision: s.Update.Number, Name: s.Update.Name, Begun: now, Endpoints: slices.Clone(s.Update.Endpoints)})
			if n := len(s.Releases) - maxReleases; n > 0 {
				s.Releases = slices.Delete(s.Releases, 0, n)
			}
		}
	}
	if before.Phase == rollouts.PhaseProgressing && after.Phase != rollouts.PhaseProgressing {
		outcome := view.TakenBack
		if c := after.Condition(rollouts.ConditionSucceeded); c != nil && c.Status == "True" {
			outcome = view.Released
		}
		end(outcome)
	}
}
