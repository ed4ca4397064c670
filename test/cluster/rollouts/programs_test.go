package rollouts

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
)

// Other programs that read and write Rollouts, as they do it: kubectl-kruise v1.2 (kruise-tools), and the check of health that Argo CD
// has for the kind. The names of fields are those that they use.

// part reads the part of a Rollout's status that these programs look at; they fail if there is none.
func part(u *unstructured.Unstructured, field string) (string, error) {
	for _, of := range []string{"canaryStatus", "blueGreenStatus"} {
		if s, there, _ := unstructured.NestedMap(u.Object, "status", of); there {
			return fmt.Sprint(s[field]), nil
		}
	}
	return "", errors.New("there is neither a canaryStatus nor a blueGreenStatus")
}

// argo is the health that Argo CD finds; an error means that its check fails.
func argo(u *unstructured.Unstructured) (string, error) {
	observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	if observed != u.GetGeneration() {
		return "Progressing", nil
	}
	canary, there, _ := unstructured.NestedMap(u.Object, "status", "canaryStatus")
	if !there {
		return "", errors.New("there is no canaryStatus")
	}
	switch state := canary["currentStepState"]; {
	case state == "StepPaused" && phase == "Progressing":
		return "Suspended", nil
	case state == "Completed" && phase == "Healthy":
		return "Healthy", nil
	case state == "StepPaused" && (phase == "Terminating" || phase == "Disabled"):
		return "Degraded", nil
	}
	return "Progressing", nil
}

// inArgo waits until Argo CD shows a health; empty means that its check fails.
func (w *world) inArgo(want string) {
	w.Helper()
	err := within(w.Context(), func() error {
		u, err := w.get(rolloutKind)
		if err != nil {
			return err
		}
		if got, err := argo(u); got != want || (err == nil) != (want != "") {
			return fmt.Errorf("Argo CD shows %q, %v, want %q: %v", got, err, want, u.Object["status"])
		}
		return nil
	})
	if err != nil {
		w.Error(err)
	}
}

// kruiseApproves approves a step as "kubectl kruise rollout approve" does.
func (w *world) kruiseApproves() {
	w.Helper()
	u, err := w.get(rolloutKind)
	if err != nil {
		w.Fatal(err)
	}
	if state, err := part(u, "currentStepState"); err != nil || state != "StepPaused" {
		w.Fatalf("the plugin refuses to approve a step in %q, %v", state, err)
	}
	of := "canaryStatus"
	if _, there, _ := unstructured.NestedMap(u.Object, "status", of); !there {
		of = "blueGreenStatus"
	}
	w.patch(rolloutKind, `{"status":{"`+of+`":{"currentStepState":"StepReady"}}}`, "status")
}

// kruiseDescribes reads what "kubectl kruise describe rollout --all" shows: the step, and the pods of the new version.
func (w *world) kruiseDescribes(step, state string, pods int) {
	w.Helper()
	u, err := w.get(rolloutKind)
	if err != nil {
		w.Fatal(err)
	}
	for field, want := range map[string]string{"currentStepIndex": step, "currentStepState": state} {
		if got, err := part(u, field); err != nil || got != want {
			w.Errorf("%s is %q, %v, want %q", field, got, err, want)
		}
	}
	label := "controller-revision-hash"
	if w.kind.Kind == "Deployment" {
		label = "pod-template-hash"
	}
	hash, err := part(u, "podTemplateHash")
	if err != nil || hash == "" {
		w.Fatalf("podTemplateHash is %q, %v", hash, err)
	}
	var list corev1.PodList
	if err := admin.List(w.Context(), &list, client.InNamespace(w.namespace), client.MatchingLabels{label: hash}); err != nil {
		w.Fatal(err)
	}
	n := 0
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			n++
		}
	}
	if n != pods {
		w.Errorf("the plugin finds %d pods of the new version by %s=%s, want %d", n, label, hash, pods)
	}
}

// TestOtherProgramsReadAndWriteRollouts has Argo CD look at releases that kubectl-kruise approves, pauses and resumes.
func TestOtherProgramsReadAndWriteRollouts(t *testing.T) {
	t.Parallel()
	steps := ", steps: [{traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 2}]}}"
	w := newWorld(t, "Deployment", "replicas: 3", "{canary: {"+route+steps)
	w.settled("v1")
	before := w.written()
	c := w.start(4, false)
	defer c.stop()
	w.until(rollouts.PhaseHealthy, 0)
	w.inArgo("Healthy")
	w.release("v2")
	w.until(rollouts.PhaseProgressing, 1)
	w.inArgo("Suspended")
	w.kruiseDescribes("1", "StepPaused", 1)
	w.patch(rolloutKind, `{"spec":{"strategy":{"paused":true}}}`) // kubectl kruise rollout pause
	w.kruiseApproves()
	w.says("The Rollout is paused.")
	w.inArgo("Progressing")
	w.patch(rolloutKind, `{"spec":{"strategy":{"paused":null}}}`) // kubectl kruise rollout resume
	w.until(rollouts.PhaseProgressing, 2)
	w.inArgo("Suspended")
	w.kruiseDescribes("2", "StepPaused", 2)
	w.kruiseApproves()
	w.until(rollouts.PhaseHealthy, 0)
	w.inArgo("Healthy")
	w.kruiseDescribes("2", "Completed", 3)
	w.same(before, "v2")

	w.release("v3")
	w.until(rollouts.PhaseProgressing, 1)
	w.release("v2") // taken back
	w.until(rollouts.PhaseHealthy, 0)
	w.inArgo("Progressing")
	w.release("v4")
	w.until(rollouts.PhaseProgressing, 1)
	w.patch(rolloutKind, `{"spec":{"disabled":true}}`)
	w.until(rollouts.PhaseDisabled, 0)
	w.inArgo("Degraded")
}

// TestOtherProgramsReadBlueGreenReleases as far as they can.
func TestOtherProgramsReadBlueGreenReleases(t *testing.T) {
	if testing.Short() {
		t.Skip("canary releases are read in the short form")
	}
	t.Parallel()
	w := newWorld(t, "Deployment", "replicas: 2", "{blueGreen: {"+route+", steps: [{traffic: 0%, replicas: 100%}, {traffic: 100%, replicas: 100%}]}}")
	w.settled("v1")
	c := w.start(5, false)
	defer c.stop()
	w.until(rollouts.PhaseHealthy, 0)
	w.release("v2")
	w.until(rollouts.PhaseProgressing, 1)
	w.inArgo("")
	w.kruiseDescribes("1", "StepPaused", 2)
	w.kruiseApproves()
	w.until(rollouts.PhaseHealthy, 0)
}

// says waits for a text in the Rollout's message.
func (w *world) says(text string) {
	w.Helper()
	err := within(w.Context(), func() error {
		if s, _, err := w.status(); err != nil || s.Message != text {
			return fmt.Errorf("it says %q, %v, want %q", s.Message, err, text)
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}
