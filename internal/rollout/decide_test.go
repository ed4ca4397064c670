package rollout

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/test/size"
)

func TestACanaryGoesThroughItsSteps(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "x=1;10", "20%;20@60", "50%;50@0", "100%;100"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	w.must("step 1 waits", w.waits(1))
	w.run(100, func() bool { return false })
	if !w.waits(1)() || w.rollout.Status.Message != "Step 1 of 4 waits until somebody approves it." || w.pods["v2"] != 1 || w.pods["v1"] != 9 {
		t.Errorf("nobody approved step 1, but status is %s, pods %v", asText(w.rollout.Status), w.pods)
	}
	w.approve()
	w.must("step 2 waits", w.waits(2))
	begun := w.now
	w.must("step 3", func() bool { return w.rollout.Status.CurrentStepIndex == 3 })
	if lasted := w.now.Sub(begun); lasted < 59*time.Second || lasted > 62*time.Second {
		t.Errorf("step 2 lasted %v, want 60 s", lasted)
	}
	w.must("the end", w.finished)
	if c := w.rollout.Status.Condition(rollouts.ConditionSucceeded); c == nil || c.Status != "True" || w.rollout.Status.CurrentStepState != rollouts.StepCompleted {
		t.Errorf("status %s", asText(w.rollout.Status))
	}
	w.tracesTo(t,
		"event: Revision v2 is being released.",
		"action: hold the workload", "action: pin the stable Service of v1", "action: upgrade pods to 1", "event: Step 1: the new version has its pods.",
		"action: make the canary Service of v2", "action: route requests as 1", "event: Step 1: Requests with header x: 1 go to svc-canary, all others to svc.",
		"event: Step 1 of 4 is complete.",
		"action: upgrade pods to 2", "event: Step 2: the new version has its pods.", "action: route requests as 2", "event: Step 2: 20% of the requests go to svc-canary, 80% to svc.",
		"event: Step 2 of 4 is complete.",
		"action: upgrade pods to 5", "event: Step 3: the new version has its pods.", "action: route requests as 3", "event: Step 3: 50% of the requests go to svc-canary, 50% to svc.",
		"event: Step 3 of 4 is complete.",
		"action: restore the stable Service", "action: upgrade pods to 10", "event: Step 4: the new version has its pods.", "action: route requests as 4",
		"event: Step 4: 100% of the requests go to svc-canary, 0% to svc.", "event: Step 4 of 4 is complete, the last one.",
		"action: route requests as 0", "action: remove the canary Service", "action: resume the workload", "action: release the workload",
		"event: Revision v2 is released.",
	)
}

func TestABlueGreenReleaseServesTheNewVersionUntilTheEnd(t *testing.T) {
	w := newWorld(t, blueGreenRollout("0%;100", "100%;100"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	w.must("step 1 waits", w.waits(1))
	if w.pods["v1"] != 10 || w.pods["v2"] != 10 {
		t.Errorf("pods %v, want all of both", w.pods)
	}
	w.release("v3")
	w.run(50, func() bool { return false })
	if !strings.Contains(w.rollout.Status.Message, "roll back first") || w.canary != "v2" {
		t.Errorf("another version midway: %s", w.rollout.Status.Message)
	}
	w.newest = "v2"
	w.approve()
	w.must("the end", w.finished)
	w.tracesTo(t,
		"event: Revision v2 is being released.",
		"action: hold the workload", "action: pin the stable Service of v1", "action: upgrade pods to 10", "event: Step 1: the new version has its pods.",
		"action: make the canary Service of v2", "action: route requests as 1", "event: Step 1: 0% of the requests go to svc-canary, 100% to svc.", "event: Step 1 of 2 is complete.",
		"action: upgrade pods to 10", // the workload forgot what it was told when the other version came
		"event: Step 2: the new version has its pods.", "action: route requests as 2", "event: Step 2: 100% of the requests go to svc-canary, 0% to svc.",
		"event: Step 2 of 2 is complete, the last one.",
		"action: restore the stable Service", "action: resume the workload", "action: route requests as 0", "action: remove the canary Service", "action: release the workload",
		"event: Revision v2 is released.",
	)
}

func TestARollbackRoutesToTheStableVersionFirst(t *testing.T) {
	for name, r := range map[string]*rollouts.Rollout{"partition": canaryRollout(false, "20%", "50%;50"), "extra pods": canaryRollout(true, "20%", "50%;50"), "blue-green": blueGreenRollout("50%;100", "100%;100")} {
		w := newWorld(t, r)
		w.must("healthy", w.phase(rollouts.PhaseHealthy))
		w.release("v2")
		w.must(name+": step 1 waits", w.waits(1))
		w.trace = nil
		w.release("v1")
		w.must(name+": the end", w.finished)
		if c := w.rollout.Status.Condition(rollouts.ConditionSucceeded); c == nil || c.Status != "False" {
			t.Errorf("%s: status %s", name, asText(w.rollout.Status))
		}
		if want := []string{"event: The workload is back at its stable revision.", "action: route requests as 0", "action: resume the workload"}; strings.Join(w.trace[:3], "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: it began with\n%s", name, strings.Join(w.trace, "\n"))
		}
	}
}

func TestAnAbortedReleaseBeginsOnlyWhenItIsWanted(t *testing.T) {
	w := newWorld(t, canaryRollout(true, "20%", "50%;50"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	w.must("step 1 waits", w.waits(1))
	w.rollout.Annotations[AbortAnnotation] = "v2"
	w.must("aborted", func() bool {
		return w.phase(rollouts.PhaseHealthy)() && w.routed == WantOriginal && w.canary == "" && w.pinned == ""
	})
	w.run(100, func() bool { return false })
	if w.rollout.Status.Phase != rollouts.PhaseHealthy || !strings.Contains(w.rollout.Status.Message, "aborted") || w.pods["v1"] != 10 || w.pods["v2"] != 0 {
		t.Errorf("status %s, pods %v", asText(w.rollout.Status), w.pods)
	}
	delete(w.rollout.Annotations, AbortAnnotation)
	w.must("it begins anew", w.waits(1))
	w.rollout.Annotations[AbortAnnotation] = "v2"
	w.must("aborted again", func() bool { return w.phase(rollouts.PhaseHealthy)() && w.pods["v2"] == 0 })
	w.release("v1")
	w.must("nothing is left after a rollback", w.finished)
}

func TestAnotherRevisionMidwayBeginsAnew(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "20%", "50%;50"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	w.must("step 1 waits", w.waits(1))
	w.approve()
	w.must("step 2 waits", w.waits(2))
	w.trace = nil
	w.release("v3")
	w.must("step 1 waits", w.waits(1))
	if w.rollout.Status.CanaryStatus.CanaryRevision != "v3" || w.canary != "v3" || w.pinned != "v1" {
		t.Errorf("status %s, canary %s, pinned %s", asText(w.rollout.Status), w.canary, w.pinned)
	}
	for _, line := range w.trace {
		if strings.Contains(line, "restore the stable Service") || strings.Contains(line, "resume") {
			t.Errorf("requests could meet pods of both: %s", strings.Join(w.trace, "\n"))
		}
	}
}

// TestAReleaseDoesNotBeginWithWhatIsLeftOfAnEarlierOne: whoever approves the step that waits approves none of an earlier release.
func TestAReleaseDoesNotBeginWithWhatIsLeftOfAnEarlierOne(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "20%", "50%;50"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	w.must("step 1 waits", w.waits(1))
	w.release("v1")
	w.must("taken back", w.phase(rollouts.PhaseHealthy))
	w.release("v3")
	w.must("it begins", w.phase(rollouts.PhaseProgressing))
	if s := w.rollout.Status; s.CurrentStepState != rollouts.StepInit || s.Revision() != "v3" {
		t.Errorf("status %s", asText(s))
	}
}

func TestPauseJumpAndAChangedPlan(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "20%@1", "30%@1", "50%;50@1", "60%;50@1", "x=1;60"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	w.must("step 2", func() bool { return w.rollout.Status.CurrentStepIndex == 2 })
	w.rollout.Spec.Strategy.Paused = true
	w.run(100, func() bool { return false })
	if c := w.rollout.Status.Condition(rollouts.ConditionProgressing); c.Reason != rollouts.ReasonPaused || w.rollout.Status.CurrentStepIndex != 2 {
		t.Fatalf("status %s", asText(w.rollout.Status))
	}
	w.rollout.Spec.Strategy.Paused = false
	w.must("step 5 waits", w.waits(5))
	w.trace = nil
	w.rollout.Status.CanaryStatus.NextStepIndex = 4
	w.must("step 4", func() bool { return w.rollout.Status.CurrentStepIndex == 4 && w.routed == 4 })
	w.must("step 5 waits again", w.waits(5))
	w.rollout.Status.CanaryStatus.NextStepIndex = 99
	w.turn()
	if w.rollout.Status.CanaryStatus.NextStepIndex != -1 || !w.waits(5)() {
		t.Errorf("a step that does not exist: %s", asText(w.rollout.Status))
	}
	w.rollout.Spec.Strategy.Canary.Steps[4] = canaryRollout(false, "70%;60").Spec.Strategy.Canary.Steps[0]
	w.must("the step as it is now", func() bool { return w.waits(5)() && w.routing.Percent == 70 })
}

// A step without traffic and matches leaves routing to Kubernetes: what earlier steps changed is put back first.
func TestAStepThatRoutesNothingPutsTheRoutesBack(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "20%", "-;50", "60%;60"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	w.must("step 1 waits", w.waits(1))
	w.approve()
	w.must("step 2 waits", w.waits(2))
	if w.routed != WantOriginal || w.pinned != "" || w.canary != "" || w.pods["v2"] != 5 {
		t.Errorf("routed %d, pinned %q, canary %q, pods %v", w.routed, w.pinned, w.canary, w.pods)
	}
	w.approve()
	w.must("step 3 waits", w.waits(3))
	if w.routed != 3 || w.pinned != "v1" || w.canary != "v2" {
		t.Errorf("routed %d, pinned %q, canary %q", w.routed, w.pinned, w.canary)
	}
}

// Somebody's edit of a route makes it carry no step: the step is laid over it anew, and lasts no longer for that.
func TestAnEditMidwayHasTheStepLaidOverItAnew(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "20%@60", "50%;50"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	w.must("step 1 lasts", w.waits(1))
	begun := w.now
	w.run(40, func() bool { return w.now.Sub(begun) >= 30*time.Second })
	w.route(WantOriginal)
	w.pinned = ""
	w.must("the step is in force again", func() bool { return w.routed == 1 && w.pinned == "v1" })
	w.must("step 2", func() bool { return w.rollout.Status.CurrentStepIndex == 2 })
	if lasted := w.now.Sub(begun); lasted > 65*time.Second {
		t.Errorf("step 1 lasted %v, want 60 s", lasted)
	}
}

func TestDisableAndDelete(t *testing.T) {
	for _, end := range []string{"disable", "delete"} {
		w := newWorld(t, canaryRollout(false, "20%", "50%;50"))
		w.must("healthy", w.phase(rollouts.PhaseHealthy))
		w.release("v2")
		w.must("step 1 waits", w.waits(1))
		if end == "disable" {
			w.rollout.Spec.Disabled = true
			w.must("disabled", w.phase(rollouts.PhaseDisabled))
		} else {
			w.rollout.DeletionTimestamp = &metav1.Time{Time: w.now}
			w.must("gone", func() bool { return !w.finalizer })
			if c := w.rollout.Status.Condition(rollouts.ConditionTerminating); c.Status != "False" || c.Reason != rollouts.ReasonCompleted {
				t.Errorf("status %s", asText(w.rollout.Status))
			}
		}
		if !w.asItWas() {
			t.Errorf("%s: routed %d, pinned %q, canary %q, marked %t", end, w.routed, w.pinned, w.canary, w.marked)
		}
	}
}

func TestAWorkloadThatVanishesLeavesNothingChanged(t *testing.T) {
	w := newWorld(t, canaryRollout(true, "20%", "50%;50"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	w.must("step 1 waits", w.waits(1))
	w.gone, w.marked, w.held = true, false, false
	w.must("initial", w.phase(rollouts.PhaseInitial))
	if !w.asItWas() || w.rollout.Status.Release() != nil {
		t.Errorf("status %s, routed %d", asText(w.rollout.Status), w.routed)
	}
}

// TestWhatIsReplacedBeforeItIsHeldIsReleased: a workload's own controller was faster, and no pod can come back.
func TestWhatIsReplacedBeforeItIsHeldIsReleased(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "20%", "50%;50"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	w.held = false
	w.rollout.Status = Decide(w.facts()).Status // the release begins, and nothing of it is carried out
	w.pods = map[string]int32{"v2": w.replicas}
	f := func() Facts {
		f := w.facts()
		f.Workload.Gone, f.Workload.Stable = true, "v1"
		return f
	}
	var events []string
	for range 20 {
		out := Decide(f())
		w.rollout.Status = out.Status
		for _, e := range out.Events {
			events = append(events, e.Reason)
		}
		if out.Action != nil {
			t.Fatalf("nothing has to be changed: %+v", out.Action)
		}
		if out.Status.Phase == rollouts.PhaseHealthy {
			break
		}
		w.now = w.now.Add(time.Minute)
	}
	if c := w.rollout.Status.Condition(rollouts.ConditionSucceeded); c == nil || c.Status != "True" || w.rollout.Status.Phase != rollouts.PhaseHealthy {
		t.Errorf("status %s", asText(w.rollout.Status))
	}
	if got := strings.Join(events, " "); got != "ReplacedAtOnce Released" {
		t.Errorf("events %s", got)
	}
}

// TestWhatIsReplacedWhileNobodyLooksIsTold: there was no controller of Rollouts, and nobody held the workload.
func TestWhatIsReplacedWhileNobodyLooksIsTold(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "20%"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	look := func(update string, generation int64) (events []string) {
		for range 3 {
			f := w.facts()
			f.Workload.Update, f.Workload.Stable, f.Workload.UpdateHash, f.Workload.Complete, f.Workload.Generation = update, update, update, true, generation
			out := Decide(f)
			w.rollout.Status = out.Status
			for _, e := range out.Events {
				events = append(events, e.Reason)
			}
			if out.Action != nil || out.Status.Phase != rollouts.PhaseHealthy {
				t.Fatalf("nothing is to be done: %+v, %s", out.Action, out.Status.Phase)
			}
		}
		return events
	}
	f := w.facts()
	first, generation := f.Workload.Update, f.Workload.Generation
	for _, step := range []struct {
		update     string
		generation int64
		want       string
	}{
		{first, generation, ""}, {"v2", generation + 1, "ReplacedAtOnce"}, {"v2", generation + 2, ""}, {"another name of v2", generation + 2, ""},
		{first, generation + 3, "ReplacedAtOnce"},
	} {
		if got := strings.Join(look(step.update, step.generation), " "); got != step.want {
			t.Errorf("%s, generation %d: told %q, want %q", step.update, step.generation, got, step.want)
		}
		if got := w.rollout.Status.Revision(); step.want != "" && got != step.update {
			t.Errorf("the status has revision %s, want %s", got, step.update)
		}
	}
	// Taken back by hand, as it is after a release that was rolled back.
	w.rollout.Status.Conditions = append(w.rollout.Status.Conditions, rollouts.Condition{Type: rollouts.ConditionSucceeded, Status: "False"})
	w.rollout.Status.CanaryStatus.CanaryRevision = "v3"
	if got := look(first, generation+9); len(got) > 0 {
		t.Errorf("the stable revision: told %v", got)
	}
}

// TestWhatIsReplacedBetweenTheRecordAndTheHoldIsReleased: the controller wrote down how the workload was, and was cut off
// before it held it.
func TestWhatIsReplacedBetweenTheRecordAndTheHoldIsReleased(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "20%", "50%;50"))
	w.must("healthy", w.phase(rollouts.PhaseHealthy))
	w.release("v2")
	w.held, w.marked = false, true
	w.rollout.Status = Decide(w.facts()).Status
	w.pods = map[string]int32{"v2": w.replicas}
	var events, actions []string
	for range 20 {
		f := w.facts()
		f.Workload.Gone, f.Workload.Stable = w.marked, "v1"
		out := Decide(f)
		w.rollout.Status = out.Status
		for _, e := range out.Events {
			events = append(events, e.Reason)
		}
		if out.Action != nil {
			actions = append(actions, w.describe(*out.Action))
			w.carryOut(*out.Action)
		}
		if out.Status.Phase == rollouts.PhaseHealthy {
			break
		}
		w.now = w.now.Add(time.Minute)
	}
	if c := w.rollout.Status.Condition(rollouts.ConditionSucceeded); c == nil || c.Status != "True" || !w.asItWas() {
		t.Errorf("status %s, held %t, marked %t", asText(w.rollout.Status), w.held, w.marked)
	}
	if got := strings.Join(append(events, actions...), ", "); got != "ReplacedAtOnce, Released, release the workload" {
		t.Errorf("it went %s", got)
	}
}

// TestNoStablePodIsAwaitedThatCannotComeBack: nodes of a DaemonSet restarted midway, and their pods came with the new version.
func TestNoStablePodIsAwaitedThatCannotComeBack(t *testing.T) {
	for left, goesOn := range map[int32]bool{3: true, 1: true, 0: false} {
		w := newWorld(t, canaryRollout(false, "20%;20", "50%;50"))
		w.daemon = true
		w.must("healthy", w.phase(rollouts.PhaseHealthy))
		w.release("v2")
		w.must("step 1 waits", w.waits(1))
		if w.pods = map[string]int32{"v1": left, "v2": w.replicas - left}; left == 0 {
			w.route(WantOriginal) // its user sees that nobody serves the rest
			w.pinned = ""
		}
		w.approve()
		if got := w.run(300, w.waits(2)); got != goesOn {
			t.Errorf("with %d of 10 pods of the stable version left: step 2 is carried out: %t, want %t; status %s", left, got, goesOn, asText(w.rollout.Status))
		}
		if want := "0 pods of the stable version are ready"; !goesOn && !strings.Contains(w.rollout.Status.Message, want) {
			t.Errorf("status %s, want %q", asText(w.rollout.Status), want)
		}
	}
}

// TestAWorkloadThatCannotBeReleasedIsNotHeld: somebody who knows less of it held it at admission.
func TestAWorkloadThatCannotBeReleasedIsNotHeld(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "50%;100"))
	f := w.facts()
	f.Workload.Unfit, f.Workload.Held = "It cannot.", true
	if out := Decide(f); out.Action == nil || out.Action.Do != Release || out.Status.Message != "It cannot." {
		t.Errorf("%+v", out)
	}
}

// TestAWorkloadThatNobodyLooksAtIsNotSearched: the Rollout says why, and is put back as one whose workload is gone.
func TestAWorkloadThatNobodyLooksAtIsNotSearched(t *testing.T) {
	w := newWorld(t, canaryRollout(false, "50%;100"))
	f := w.facts()
	f.Workload, f.Unlisted = nil, "It is of no kind that is released here."
	if out := Decide(f); out.Action != nil || out.Finalizer || out.Status.Phase != rollouts.PhaseInitial || out.Status.Message != f.Unlisted {
		t.Errorf("%+v", out)
	}
}

func TestAWorkloadThatCannotBeReleasedIsLeftAlone(t *testing.T) {
	w := newWorld(t, blueGreenRollout("50%;100", "100%;100"))
	w.release("v2")
	f := w.facts()
	f.Workload.Unfit, f.Workload.Held = "It cannot.", false
	out := Decide(f)
	if out.Action != nil || out.Finalizer || out.Status.Phase != rollouts.PhaseInitial || out.Status.Message != "It cannot." || out.Status.Release() != nil {
		t.Errorf("%+v", out)
	}
}

// TestWhereverItIsCutOffItResumes loses every single status, and every single action, one at a time and for good.
func TestWhereverItIsCutOffItResumes(t *testing.T) {
	walk := func(r func() *rollouts.Rollout, cut int, status bool) *world {
		w := newWorld(t, r())
		n := 0
		lose := func() bool { n++; return n == cut }
		if status {
			w.lostStatus = lose
		} else {
			w.lostAction = lose
		}
		w.must("healthy", w.phase(rollouts.PhaseHealthy))
		w.release("v2")
		for !w.run(3000, func() bool { return w.finished() || w.rollout.Status.CurrentStepState == rollouts.StepPaused }) {
			t.Fatalf("cut off at %d: %s", cut, asText(w.rollout.Status))
		}
		for !w.finished() {
			w.approve()
			w.must("the next pause", func() bool { return w.finished() || w.rollout.Status.CurrentStepState == rollouts.StepPaused })
		}
		if n < cut {
			return nil // it ended before
		}
		return w
	}
	for name, r := range map[string]func() *rollouts.Rollout{
		"partition":  func() *rollouts.Rollout { return canaryRollout(false, "x=1;10", "-;20@5", "50%;50", "100%;100@0") },
		"extra pods": func() *rollouts.Rollout { return canaryRollout(true, "x=1;10", "50%;50@3", "100%;100") },
		"blue-green": func() *rollouts.Rollout { return blueGreenRollout("0%;100", "100%;100@3") },
	} {
		for _, status := range []bool{true, false} {
			cuts := 0
			for cut := 1; walk(r, cut, status) != nil; cut++ {
				cuts++
			}
			if cuts < 8 {
				t.Errorf("%s: only %d places to be cut off at", name, cuts)
			}
		}
	}
}

// TestAnyWalkEndsWithEverythingAsItWas has all that may happen to a Rollout happen at random, and loses statuses and
// actions. No request ever meets a Service without pods. Once nothing more happens, the walk ends, and nothing is left of
// any release.
func TestAnyWalkEndsWithEverythingAsItWas(t *testing.T) {
	seed := rand.Uint64()
	for walk := range size.Of(100, 500) {
		if anyWalk(t, seed, uint64(walk)); t.Failed() {
			return
		}
	}
}

func anyWalk(t *testing.T, seed, walk uint64) {
	rnd := rand.New(rand.NewPCG(seed, walk))
	one := func(all ...string) string { return all[rnd.IntN(len(all))] }
	steps := func() (all []string) {
		pods := []string{"10", "30", "100"}
		for i := range 3 {
			all = append(all, one("x=1", "20%", "100%", "-")+";"+pods[i]+one("", "@3"))
		}
		return all
	}
	r := canaryRollout(rnd.IntN(2) == 0, steps()...)
	if rnd.IntN(4) == 0 {
		r = blueGreenRollout(steps()...)
	}
	w := newWorld(t, r)
	w.lostStatus = func() bool { return rnd.IntN(20) == 0 }
	w.lostAction = func() bool { return rnd.IntN(10) == 0 }
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, walk %d:\n%s", seed, walk, strings.Join(w.trace, "\n"))
		}
	}()
	version := 1
	for range 60 {
		w.run(rnd.IntN(40), func() bool { return false })
		event := one("release", "release", "rollback", "approve", "approve", "approve", "pause", "resume", "jump", "disable", "enable", "plan", "abort", "lose")
		w.note("-- " + event)
		switch rel := w.rollout.Status.Release(); event {
		case "release":
			version++
			w.release("v" + string(rune('0'+version%10)) + one("", "a"))
		case "rollback":
			w.release(w.stable)
		case "approve":
			if rel != nil && rel.CurrentStepState == rollouts.StepPaused {
				w.approve()
			}
		case "pause", "resume":
			r.Spec.Strategy.Paused = event == "pause"
		case "jump":
			if rel != nil {
				rel.NextStepIndex = int32(rnd.IntN(6) - 1)
			}
		case "disable", "enable":
			r.Spec.Disabled = event == "disable"
			if w.gone = false; event == "disable" {
				w.held = w.held && w.marked // a workload without a Rollout is not held
			}
		case "plan":
			plan := canaryRollout(false, steps()...).Spec.Strategy.Canary.Plan
			*r.Spec.Strategy.Plan() = plan
		case "lose": // somebody changes what the Rollout changed
			switch rnd.IntN(3) {
			case 0:
				w.route(WantOriginal)
			case 1:
				if w.routing == nil {
					w.canary = ""
				}
			case 2:
				w.pinned = ""
			}
		case "abort":
			r.Annotations[AbortAnnotation] = w.newest
		}
		if w.t.Failed() {
			return
		}
	}
	// Nothing more happens.
	w.note("-- quiet")
	never := func() bool { return false }
	w.lostStatus, w.lostAction = never, never
	delete(r.Annotations, AbortAnnotation)
	r.Spec.Strategy.Paused, r.Spec.Disabled = false, false
	if rnd.IntN(3) == 0 {
		r.DeletionTimestamp = &metav1.Time{Time: w.now}
		w.must("deleted", func() bool { return !w.finalizer && w.asItWas() })
		return
	}
	if r.Spec.Strategy.BlueGreen != nil && w.rollout.Status.Phase == rollouts.PhaseProgressing && w.newest != w.rollout.Status.Revision() {
		w.release(w.stable) // as its message asks for
	}
	for !w.finished() {
		w.must("the end or a pause", func() bool {
			return w.finished() || w.rollout.Status.CurrentStepState == rollouts.StepPaused && w.rollout.Status.Phase == rollouts.PhaseProgressing
		})
		if rel := w.rollout.Status.Release(); rel != nil && rel.CurrentStepState == rollouts.StepPaused {
			w.approve()
		}
	}
}
