package operate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/api/rollouts"
)

// TestRequestsOfTheStepAloneAreMeasured: those that came before its share was in force say nothing about it.
func TestRequestsOfTheStepAloneAreMeasured(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		state rollouts.StepState
		since time.Duration
		want  time.Duration
	}{
		{rollouts.StepPaused, 12500 * time.Millisecond, 12 * time.Second},
		{rollouts.StepMetricsAnalysis, time.Second, time.Second},
		{rollouts.StepPaused, time.Hour, 30 * time.Second},
		{rollouts.StepPaused, -3 * time.Second, 30 * time.Second},
		{rollouts.StepTrafficRouting, 12 * time.Second, 30 * time.Second},
	} {
		at := metav1.NewTime(now.Add(-c.since))
		r := &rollouts.Rollout{Status: rollouts.Status{CanaryStatus: &rollouts.CanaryStatus{Release: rollouts.Release{CurrentStepState: c.state, LastUpdateTime: &at}}}}
		if got := windowOf(r, now); got != c.want {
			t.Errorf("%s for %v: %v, want %v", c.state, c.since, got, c.want)
		}
	}
	if got := windowOf(&rollouts.Rollout{}, now); got != 30*time.Second {
		t.Errorf("no release: %v", got)
	}
}
