package rollouts

import "testing"

func TestWhatIsReplacedIsRememberedUntilTheReleaseEnds(t *testing.T) {
	for _, c := range []struct {
		phase  Phase
		reason string
		part   FinalisingStep
		want   string
	}{
		{PhaseProgressing, ReasonInitializing, "", "v1"},
		{PhaseProgressing, ReasonInRolling, "", "v1"},
		{PhaseProgressing, ReasonInRolling, RouteTrafficToStable, "v1"}, // another version takes the place
		{PhaseProgressing, ReasonPaused, RouteTrafficToStable, "v1"},
		{PhaseProgressing, ReasonFinalising, "", "v1"}, // it begins to end
		{PhaseProgressing, ReasonFinalising, ResumeWorkload, ""},
		{PhaseProgressing, ReasonCancelling, RouteTrafficToStable, ""},
		{PhaseProgressing, ReasonCompleted, FinalisingEnd, ""},
		{PhaseHealthy, ReasonCompleted, "", ""},
		{PhaseTerminating, ReasonInRolling, "", ""},
	} {
		s := Status{Phase: c.phase, Conditions: []Condition{{Type: ConditionProgressing, Reason: c.reason}},
			CanaryStatus: &CanaryStatus{Release: Release{StableRevision: "v1", FinalisingStep: c.part}}}
		if got := s.Replaces(); got != c.want {
			t.Errorf("%s, %s, %q: %q, want %q", c.phase, c.reason, c.part, got, c.want)
		}
	}
	if got := (&Status{Phase: PhaseProgressing}).Replaces(); got != "" {
		t.Errorf("no release replaces %q", got)
	}
}
