package command

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// at is a canary of three steps that releases v2 in the place of v1, and waits at the first one.
func at(change ...func(*Facts)) Facts {
	half, everything := intstr.FromString("50%"), intstr.FromString("100%")
	lasts := int32(60)
	r := &rollouts.Rollout{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Annotations: map[string]string{}},
		Spec: rollouts.Spec{WorkloadRef: rollouts.Ref{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, Strategy: rollouts.Strategy{Canary: &rollouts.Canary{Plan: rollouts.Plan{
			Steps: []rollouts.Step{{Replicas: &half}, {Replicas: &half, Pause: rollouts.Pause{Duration: &lasts}}, {Replicas: &everything}},
		}}}},
		Status: rollouts.Status{
			Phase: rollouts.PhaseProgressing, Conditions: []rollouts.Condition{{Type: rollouts.ConditionProgressing, Reason: rollouts.ReasonInRolling}},
			CanaryStatus: &rollouts.CanaryStatus{CanaryRevision: "v2", Release: rollouts.Release{StableRevision: "v1", CurrentStepIndex: 1, NextStepIndex: 2, CurrentStepState: rollouts.StepPaused}},
		},
	}
	f := Facts{
		Rollout: r, Workload: &rollout.Workload{Settled: true, Stable: "v1", Update: "v2", Replicas: 4, Ready: 2},
		Revisions: []Revision{{1, "v0", map[string]any{"of": "v0"}}, {3, "v1", map[string]any{"of": "v1"}}, {4, "v2", map[string]any{"of": "v2"}}},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func reason(text string) func(*Facts) {
	return func(f *Facts) { f.Rollout.Status.Conditions[0].Reason = text }
}

func state(s rollouts.StepState) func(*Facts) {
	return func(f *Facts) { f.Rollout.Status.CanaryStatus.CurrentStepState = s }
}

func step(n, next int32) func(*Facts) {
	return func(f *Facts) {
		f.Rollout.Status.CanaryStatus.CurrentStepIndex, f.Rollout.Status.CanaryStatus.NextStepIndex = n, next
	}
}

func paused(f *Facts) {
	f.Rollout.Spec.Strategy.Paused = true
	reason(rollouts.ReasonPaused)(f)
}

func mistaken(f *Facts) {
	path := "api"
	f.Rollout.Spec.Strategy.Canary.Steps[1].Matches = []rollouts.Match{{Path: &gatewayv1.HTTPPathMatch{Value: &path}}}
}

func away(f *Facts) { f.Away = "OpenKruise is there" }

// released is after the release: v2 serves alone.
func released(f *Facts) {
	f.Rollout.Status.Phase = rollouts.PhaseHealthy
	f.Workload.Stable = "v2"
	reason(rollouts.ReasonCompleted)(f)
}

// given has v2 given up, and everything put back.
func given(f *Facts) {
	f.Rollout.Status.Phase = rollouts.PhaseHealthy
	f.Rollout.Annotations[rollout.AbortAnnotation] = "v2"
	reason(rollouts.ReasonCompleted)(f)
}

func giving(f *Facts) {
	f.Rollout.Annotations[rollout.AbortAnnotation] = "v2"
	reason(rollouts.ReasonCancelling)(f)
}

// back has the workload at its stable version again.
func back(f *Facts) { f.Workload.Update = f.Workload.Stable }

func blueGreen(f *Facts) {
	s := &f.Rollout.Spec.Strategy
	s.BlueGreen, s.Canary = &rollouts.BlueGreen{Plan: s.Canary.Plan}, nil
	old := f.Rollout.Status.CanaryStatus
	f.Rollout.Status.CanaryStatus, f.Rollout.Status.BlueGreenStatus = nil, &rollouts.BlueGreenStatus{Release: old.Release, UpdatedRevision: old.CanaryRevision}
}

// third is another version midway.
func third(f *Facts) { f.Workload.Update = "v3" }

func unsettled(f *Facts) { f.Workload.Settled = false }

func TestACommandIsOneChangeOrSaysWhyNot(t *testing.T) {
	const ready = `{"status":{"canaryStatus":{"currentStepState":"StepReady"},"currentStepState":"StepReady"}}`
	const first = `{"status":{"canaryStatus":{"nextStepIndex":1}}}`
	const abort = `{"metadata":{"annotations":{"rollouts.weirmesh.github.io/abort":"v2"}}}`
	const retry = `{"metadata":{"annotations":{"rollouts.weirmesh.github.io/abort":null}}}`
	const pause, resume = `{"spec":{"strategy":{"paused":true}}}`, `{"spec":{"strategy":{"paused":null}}}`
	type f = []func(*Facts)
	for _, c := range []struct {
		name  string
		of    Command
		facts f
		// change is "PART JSON", says a part of what is said; without a change, of the error.
		change, says string
	}{
		{"a step that waits", Command{Verb: Promote}, nil, "rollouts/status " + ready, "Step 1 of 3 is approved."},
		{"of blue-green", Command{Verb: Promote}, f{blueGreen}, `rollouts/status {"status":{"blueGreenStatus":{"currentStepState":"StepReady"},"currentStepState":"StepReady"}}`, "approved"},
		{"under OpenKruise, with names of its own", Command{Verb: Promote}, f{away, blueGreen, third}, `rollouts/status {"status":{"blueGreenStatus":{"currentStepState":"StepReady"},"currentStepState":"StepReady"}}`, "approved"},
		{"paused", Command{Verb: Promote}, f{paused}, "rollouts/status " + ready, "waits for resume"},
		{"a step that does not wait", Command{Verb: Promote}, f{state(rollouts.StepUpgrade)}, "", "step 1 of 3 does not wait: it is in StepUpgrade"},
		{"a step whose share does not agree", Command{Verb: Promote}, f{state(rollouts.StepMetricsAnalysis)}, "rollouts/status " + ready, "Step 1 of 3 is approved."},
		{"no release", Command{Verb: Promote}, f{released}, "", "nothing is being released"},
		{"aborted", Command{Verb: Promote}, f{given}, "", "the release was aborted: retry"},
		{"beginning", Command{Verb: Promote}, f{reason(rollouts.ReasonInitializing)}, "", "begins just now"},
		{"finishing", Command{Verb: Promote}, f{reason(rollouts.ReasonFinalising)}, "", "being finished"},
		{"going back", Command{Verb: Promote}, f{reason(rollouts.ReasonCancelling)}, "", "being taken back"},
		{"another version in blue-green", Command{Verb: Promote}, f{blueGreen, third}, "", "a blue-green release takes no other version midway: go back by undo"},
		{"another version in a canary", Command{Verb: Promote}, f{third}, "rollouts/status " + ready, "approved"},
		{"deleted", Command{Verb: Promote}, f{func(f *Facts) { f.Rollout.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }}, "", "being deleted"},
		{"disabled", Command{Verb: Promote}, f{func(f *Facts) { f.Rollout.Spec.Disabled = true }}, "", "spec.disabled"},
		{"that cannot be carried out", Command{Verb: Promote}, f{mistaken}, "", "left alone: spec.strategy.canary.steps[1].matches[0].path.value"},
		{"the same under OpenKruise", Command{Verb: Promote}, f{mistaken, away}, "rollouts/status " + ready, "approved"},
		{"without steps", Command{Verb: Promote}, f{func(f *Facts) { f.Rollout.Spec.Strategy.Canary = nil }}, "", "no steps"},

		{"all the rest", Command{Verb: Promote, Full: true}, nil, `rollouts/status {"status":{"canaryStatus":{"currentStepIndex":3,"currentStepState":"Completed","nextStepIndex":-1},"currentStepIndex":3,"currentStepState":"Completed"}}`, "skipped"},
		{"all the rest in a step", Command{Verb: Promote, Full: true}, f{state(rollouts.StepUpgrade)}, `rollouts/status {"status":{"canaryStatus":{"currentStepIndex":3,"currentStepState":"Completed","nextStepIndex":-1},"currentStepIndex":3,"currentStepState":"Completed"}}`, "skipped"},
		{"all the rest under OpenKruise", Command{Verb: Promote, Full: true}, f{away}, "", "promote --full works only where Weir's controller carries Rollouts out (OpenKruise is there)"},
		{"all requests to half of the pods", Command{Verb: Promote, Full: true}, f{blueGreen}, "", "the new version has 2 of 4 pods"},
		{"all requests to unknown pods", Command{Verb: Promote, Full: true}, f{blueGreen, func(f *Facts) { f.Workload = nil }}, "", "cannot be read"},
		{"all requests to all pods", Command{Verb: Promote, Full: true}, f{blueGreen, func(f *Facts) { f.Workload.Ready = 4 }}, `rollouts/status {"status":{"blueGreenStatus":{"currentStepIndex":3,"currentStepState":"Completed","nextStepIndex":-1},"currentStepIndex":3,"currentStepState":"Completed"}}`, "skipped"},
		{"full and step", Command{Verb: Promote, Full: true, Step: 1}, nil, "", "exclude"},
		{"a later step", Command{Verb: Promote, Step: 3}, nil, `rollouts/status {"status":{"canaryStatus":{"nextStepIndex":3}}}`, "goes to step 3 of 3"},
		{"an earlier step", Command{Verb: Promote, Step: 1}, f{step(3, -1)}, "rollouts/status " + first, "goes to step 1 of 3"},
		{"the next step", Command{Verb: Promote, Step: 2}, nil, "rollouts/status " + ready, "goes to step 2 of 3"},
		{"the same step", Command{Verb: Promote, Step: 1}, nil, "", "the release is at step 1"},
		{"no step", Command{Verb: Promote, Step: 4}, nil, "", "there is no step 4: the Rollout has 3"},
		{"a step of abort", Command{Verb: Abort, Step: 1}, nil, "", "abort has neither full nor step"},

		{"pause", Command{Verb: Pause}, nil, "rollouts " + pause, "stays where it is"},
		{"pause without a release", Command{Verb: Pause}, f{released}, "rollouts " + pause, "the next release waits"},
		{"pause at the end", Command{Verb: Pause}, f{reason(rollouts.ReasonFinalising)}, "rollouts " + pause, "which pause does not stop"},
		{"pause twice", Command{Verb: Pause}, f{paused}, "", "paused already"},
		{"pause what is disabled", Command{Verb: Pause}, f{func(f *Facts) { f.Rollout.Spec.Disabled = true }}, "rollouts " + pause, "paused"},
		{"resume at a step that waits", Command{Verb: Resume}, f{paused}, "rollouts " + resume, "goes on. Step 1 of 3 waits until somebody approves it: promote"},
		{"resume at a step that lasts", Command{Verb: Resume}, f{paused, step(2, 3)}, "rollouts " + resume, "goes on."},
		{"resume at the last step, of all pods", Command{Verb: Resume}, f{paused, step(3, -1)}, "rollouts " + resume, "goes on."},
		{"resume what is not paused", Command{Verb: Resume}, nil, "", "is not paused. Step 1 of 3 waits"},
		{"resume without a release", Command{Verb: Resume}, f{released}, "", "is not paused."},

		{"abort", Command{Verb: Abort}, nil, "rollouts " + abort, "All requests go to the stable version, and pods of the new version are removed"},
		{"abort before the first step", Command{Verb: Abort}, f{reason(rollouts.ReasonInitializing)}, "rollouts " + abort, "stable version"},
		{"abort unread", Command{Verb: Abort}, f{func(f *Facts) { f.Workload = nil }}, "rollouts " + abort, "stable version"},
		{"abort pods that stay", Command{Verb: Abort}, f{func(f *Facts) { f.Workload.Stays = true }}, "rollouts " + abort, "stay until undo"},
		{"abort the version that has come", Command{Verb: Abort}, f{third}, `rollouts {"metadata":{"annotations":{"rollouts.weirmesh.github.io/abort":"v3"}}}`, "stable version"},
		{"abort blue-green with a third version", Command{Verb: Abort}, f{blueGreen, third}, "", "go back by undo"},
		{"abort twice", Command{Verb: Abort}, f{giving}, "", "aborted already"},
		{"abort what goes back", Command{Verb: Abort}, f{reason(rollouts.ReasonCancelling), back}, "", "being taken back"},
		{"abort nothing", Command{Verb: Abort}, f{released}, "", "nothing is being released"},
		{"abort the end", Command{Verb: Abort}, f{reason(rollouts.ReasonFinalising)}, "", "undo goes back"},
		{"abort under OpenKruise", Command{Verb: Abort}, f{away}, "", "abort works only where Weir's controller"},
		{"retry", Command{Verb: Retry}, f{given}, "rollouts " + retry, "begins again with its first step."},
		{"retry while it goes back", Command{Verb: Retry}, f{giving}, "rollouts " + retry, "when everything is put back"},
		{"retry with the annotation of another version", Command{Verb: Retry}, f{func(f *Facts) { f.Rollout.Annotations[rollout.AbortAnnotation] = "v0" }}, "rollouts " + retry, "Revision v0 may be released again."},
		{"retry after undo", Command{Verb: Retry}, f{given, back}, "rollouts " + retry, "Revision v2 may be released again."},
		{"retry nothing", Command{Verb: Retry}, nil, "", "no release was aborted"},
		{"retry under OpenKruise", Command{Verb: Retry}, f{given, away}, "", "retry works only where"},

		{"restart", Command{Verb: Restart}, nil, "rollouts/status " + first, "step 1 of 3"},
		{"restart under OpenKruise", Command{Verb: Restart}, f{away, step(3, -1)}, "rollouts/status " + first, "step 1 of 3"},
		{"restart what was aborted", Command{Verb: Restart}, f{given}, "rollouts " + retry, "begins again"},
		{"restart nothing", Command{Verb: Restart}, f{released}, "", `nothing is being released; "kubectl rollout restart Deployment/web"`},
		{"restart the end", Command{Verb: Restart}, f{reason(rollouts.ReasonFinalising)}, "", "being finished"},

		{"undo midway", Command{Verb: Undo}, nil, `workload {"of":"v1"}`, "Deployment web has the template of revision 3 (v1) again. The release is taken back"},
		{"undo a third version", Command{Verb: Undo}, f{blueGreen, third}, `workload {"of":"v1"}`, "taken back"},
		{"undo under OpenKruise", Command{Verb: Undo}, f{away}, `workload {"of":"v1"}`, "taken back"},
		{"undo what was aborted", Command{Verb: Undo}, f{given}, `workload {"of":"v1"}`, "retry has to be asked for"},
		{"undo at the end", Command{Verb: Undo}, f{reason(rollouts.ReasonFinalising)}, `workload {"of":"v1"}`, "taken back"},
		{"undo afterwards", Command{Verb: Undo}, f{released}, `workload {"of":"v1"}`, "releases it step by step"},
		{"undo twice", Command{Verb: Undo}, f{reason(rollouts.ReasonCancelling), back}, "", "back at its stable version"},
		{"undo the first version", Command{Verb: Undo}, f{released, func(f *Facts) { f.Revisions = f.Revisions[2:] }}, "", "no version before this one is kept"},
		{"undo what keeps no versions", Command{Verb: Undo}, f{released, func(f *Facts) { f.Revisions = nil }}, "", "no versions of Deployment web are kept (it has no ControllerRevisions): apply the former version"},
		{"undo to what is not kept", Command{Verb: Undo}, f{func(f *Facts) { f.Revisions = f.Revisions[2:] }}, "", "not kept any more"},
		{"undo without a workload", Command{Verb: Undo}, f{func(f *Facts) { f.Workload = nil }}, "", "there is no Deployment web"},
		{"undo without a template", Command{Verb: Undo}, f{func(f *Facts) { f.Revisions[1].Template = nil }}, "", "no template"},
		{"nonsense", Command{Verb: "dance"}, nil, "", `"dance" is nothing`},
	} {
		change, err := c.of.Change(at(c.facts...))
		if c.change == "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %+v, error %v, want %q", c.name, change, err, c.says)
			}
			continue
		}
		var what any = change.Merge
		if change.Of == Workload {
			what = change.Template
		}
		text, _ := json.Marshal(what)
		if got := string(change.Of) + " " + string(text); err != nil || got != c.change || !strings.Contains(change.Said, c.says) {
			t.Errorf("%s: %s (%s), error %v; want %s (%s)", c.name, got, change.Said, err, c.change, c.says)
		}
	}
	for _, verb := range []Verb{Abort, Undo} {
		if _, err := (Command{Verb: verb}).Change(at(unsettled)); !errors.Is(err, ErrUnsettled) {
			t.Errorf("%s of a workload that is not settled: %v", verb, err)
		}
	}
}

// TestWhatChangesTheStatusHasItsEffect has the controller's decision find each change.
func TestWhatChangesTheStatusHasItsEffect(t *testing.T) {
	for _, c := range []struct {
		of    Command
		facts []func(*Facts)
		step  int32
		state rollouts.StepState
		phase string
	}{
		{Command{Verb: Promote}, nil, 2, rollouts.StepUpgrade, rollouts.ReasonInRolling},
		{Command{Verb: Promote, Step: 2}, nil, 2, rollouts.StepUpgrade, rollouts.ReasonInRolling},
		{Command{Verb: Promote, Step: 3}, nil, 3, rollouts.StepInit, rollouts.ReasonInRolling},
		{Command{Verb: Promote, Full: true}, nil, 3, rollouts.StepCompleted, rollouts.ReasonFinalising},
		{Command{Verb: Restart}, nil, 1, rollouts.StepTrafficRouting, rollouts.ReasonInRolling}, // the pods are there
		{Command{Verb: Restart}, []func(*Facts){step(3, -1)}, 1, rollouts.StepInit, rollouts.ReasonInRolling},
		{Command{Verb: Abort}, nil, 1, rollouts.StepPaused, rollouts.ReasonCancelling},
		{Command{Verb: Pause}, nil, 1, rollouts.StepPaused, rollouts.ReasonPaused},
		{Command{Verb: Resume}, []func(*Facts){paused}, 1, rollouts.StepPaused, rollouts.ReasonInRolling},
		{Command{Verb: Retry}, []func(*Facts){given}, 1, rollouts.StepInit, rollouts.ReasonInitializing},
	} {
		f := at(c.facts...)
		f.Rollout.Status.Release().RolloutHash = rollout.Hash(f.Rollout.Spec.Strategy.Plan())
		if f.Rollout.Status.Phase == rollouts.PhaseHealthy {
			f.Rollout.Status.Conditions = append(f.Rollout.Status.Conditions, rollouts.Condition{Type: rollouts.ConditionSucceeded, Status: "False"})
		}
		change, err := c.of.Change(f)
		if err != nil {
			t.Errorf("%+v: %v", c.of, err)
			continue
		}
		// As an API server merges it.
		text, _ := json.Marshal(change.Merge)
		if change.Merge["spec"] != nil {
			f.Rollout.Spec.Strategy.Paused = strings.Contains(string(text), "true")
		} else if err := json.Unmarshal(text, f.Rollout); err != nil {
			t.Fatal(err)
		}
		if f.Rollout.Annotations[rollout.AbortAnnotation] == "" {
			delete(f.Rollout.Annotations, rollout.AbortAnnotation)
		}
		f.Workload.Held, f.Workload.Marked, f.Workload.Target, f.Workload.Updated = true, true, 2, 2
		out := rollout.Decide(rollout.Facts{Rollout: f.Rollout, Workload: f.Workload, Now: time.Unix(1e9, 0)})
		s := out.Status
		if p := s.Condition(rollouts.ConditionProgressing); s.CurrentStepIndex != c.step || s.CurrentStepState != c.state || p == nil || p.Reason != c.phase || s.Phase != rollouts.PhaseProgressing {
			t.Errorf("%+v: %s %+v step %d in %s, want %s, step %d in %s", c.of, s.Phase, p, s.CurrentStepIndex, s.CurrentStepState, c.phase, c.step, c.state)
		}
	}
}
