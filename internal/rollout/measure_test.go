package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/api/rollouts"
)

// measuring is a release whose first step is being measured.
func measuring(t *testing.T, step string) (w *world, s *Shared) {
	t.Helper()
	s = &Shared{}
	w = newWorld(t, canaryRollout(false, step, "100%;100"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.shared = func() *Shared { return s }
	w.release("v2")
	w.must("step 1 is measured", func() bool { return w.rollout.Status.CurrentStepState == rollouts.StepMetricsAnalysis })
	return w, s
}

func (w *world) told(part string) (n int) {
	for _, line := range w.trace {
		if strings.HasPrefix(line, "event: ") && strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func (w *world) stays(d time.Duration) {
	w.t.Helper()
	end := w.now.Add(d)
	w.run(500, func() bool { return w.now.After(end) })
	if s := w.rollout.Status; s.CurrentStepIndex != 1 || s.CurrentStepState != rollouts.StepMetricsAnalysis {
		w.t.Fatalf("step 1 is not measured any more: %s", asText(s))
	}
}

func TestAStepWaitsForItsShare(t *testing.T) {
	w, s := measuring(t, "20%;20")
	w.stays(5 * time.Second)
	*s = Shared{Stable: 950, Canary: 50, Window: 20 * time.Second}
	w.stays(10 * time.Minute)
	if message := w.rollout.Status.Message; !strings.HasPrefix(message, "Step 1 of 2: about 5 % of the requests go to the new version, not 20 %.") {
		t.Errorf("it says %q", message)
	}
	if n := w.told("the new version got 5.0 % of 1000 requests in 20 s, and should get 20 %"); n != 1 {
		t.Errorf("told %d times, want once:\n%s", n, strings.Join(w.trace, "\n"))
	}
	*s = Shared{Stable: 801, Canary: 199, Window: time.Minute}
	w.must("step 1 waits", w.waits(1))
	if n := w.told("Step 1: the new version got 19.9 % of 1000 requests in 60 s."); n != 1 {
		t.Errorf("told %d times, want once:\n%s", n, strings.Join(w.trace, "\n"))
	}
}

func TestAStepWithAnotherShareIsApproved(t *testing.T) {
	w, s := measuring(t, "20%;20")
	*s = Shared{Stable: 1000, Window: time.Minute}
	w.stays(time.Minute)
	w.approve()
	w.must("step 2", func() bool { return w.rollout.Status.CurrentStepIndex == 2 })
	*s = Shared{Canary: 1000, Window: time.Minute}
	w.must("the end", w.finished)
}

func TestAStepIsNotHeldUpByWhatIsNotKnown(t *testing.T) {
	w, s := measuring(t, "20%;20")
	*s = Shared{Stable: 19, Window: glance - 1}
	w.stays(time.Minute)
	s.Window = glance
	w.must("few requests are enough", w.waits(1))
	if n := w.told("19 requests came in 10 s, too few"); n != 1 {
		t.Errorf("told %d times, want once:\n%s", n, strings.Join(w.trace, "\n"))
	}

	w, s = measuring(t, "20%;20")
	s.Unknown = "no proxy could be read"
	w.stays(stare - 5*time.Second)
	w.must("step 1 waits", w.waits(1))
	if n := w.told("not waited for any longer: no proxy could be read"); n != 1 {
		t.Errorf("told %d times, want once:\n%s", n, strings.Join(w.trace, "\n"))
	}
}

func TestAStepOfMatchesIsNotMeasured(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "x=1;10", "-;20", "100%;100"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.shared = func() *Shared { return &Shared{Stable: 1000, Window: time.Minute} }
	w.release("v2")
	for step := int32(1); step <= 2; step++ {
		w.must("it waits", w.waits(step))
		w.approve()
	}
}

// TestASharesToleranceIsThatOfItsRequests: a share that is exact agrees however few requests there are, and one that is half of what it
// should be does not when there are many.
func TestASharesToleranceIsThatOfItsRequests(t *testing.T) {
	for _, want := range []uint64{0, 1, 5, 20, 50, 99, 100} {
		for total := uint64(fewest); total < 100_000; total = total*3/2 + 1 {
			exact := (total*want + 50) / 100
			if !agrees(exact, total, float64(want)/100) {
				t.Errorf("%d of %d is not %d %%", exact, total, want)
			}
			for _, off := range []uint64{total*want/100 + total*3/100, total * want / 200} {
				if n := float64(total); n > 8000 && want >= 5 && want <= 50 && agrees(off, total, float64(want)/100) {
					t.Errorf("%d of %d is %d %%", off, total, want)
				}
			}
		}
	}
	if agrees(1, 1000, 0) == agrees(10, 1000, 0) || agrees(999, 1000, 1) == agrees(990, 1000, 1) {
		t.Error("all and nothing have half a percent of tolerance")
	}
}

// TestAnApprovalMayStandInOnePlace: people patch the status of the release, as OpenKruise's plugin does, or the one above that repeats it.
func TestAnApprovalMayStandInOnePlace(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "20%;20", "30%;30", "40%;40"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	w.must("step 1 waits", w.waits(1))
	w.rollout.Status.CurrentStepState = rollouts.StepReady
	w.must("step 2 waits", w.waits(2))
	w.rollout.Status.CanaryStatus.CurrentStepState = rollouts.StepReady
	w.must("step 3 waits", w.waits(3))
	w.rollout.Status.CurrentStepState, w.rollout.Status.CurrentStepIndex = rollouts.StepReady, 2 // an approval of another step
	w.run(50, func() bool { return false })
	if s := w.rollout.Status; s.CanaryStatus.CurrentStepIndex != 3 || s.CurrentStepState != rollouts.StepPaused || s.CurrentStepIndex != 3 {
		t.Errorf("the status is %s", asText(s))
	}
}
