package release

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/api/rollouts"
)

const twoSteps = "{traffic: 10%, replicas: 1}, {traffic: 50%, replicas: 1}"

// TestWhatIsDecidedAtOnceIsOneWrite holds every write of a release.
func TestWhatIsDecidedAtOnceIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newToy(t, twoSteps)
		before := c.written()
		var told int
		stage := func(what string, until func() bool, writes, events []string) {
			t.Helper()
			c.writes, told = nil, len(c.told)
			c.run(until)
			if !slices.Equal(c.writes, writes) {
				t.Errorf("%s: written are %q, want %q", what, c.writes, writes)
			}
			if !slices.Equal(c.told[told:], events) {
				t.Errorf("%s: told are %q, want %q", what, c.told[told:], events)
			}
		}
		stage("a Rollout comes", c.healthy, []string{"status"}, nil)
		c.release("v2")
		stage("begin", c.waits(1),
			[]string{
				"status", "Rollout", "Deployment", "Service", // held and pinned, within a second
				"status", "Rollout", "+ReplicaSet", "ReplicaSet",
				"status", "+Service", "HTTPRoute", "ReplicaSet", "status",
			}, []string{"ReleaseStarted", "PodsReady", "RequestsShifted"})
		c.approve()
		stage("step", c.waits(2), []string{"status", "HTTPRoute", "status"}, []string{"StepCompleted", "RequestsShifted"})
		c.approve()
		stage("end", c.healthy, []string{
			"status", "Service", "status", "HTTPRoute", "-Service", "Deployment", "Rollout", "Rollout", "status", "Rollout",
		}, []string{"StepCompleted", "Released"})
		c.edit(deploymentKind, func(u *unstructured.Unstructured) { setImage(u, "v1") })
		if after := c.written(); after != before {
			t.Errorf("afterwards there is\n%s\nbefore\n%s", after, before)
		}
	})
}

// TestPodsAreCountedNowAndThen has 40 pods come within 8 seconds.
func TestPodsAreCountedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newToy(t, "{traffic: 10%, replicas: 100%}, {traffic: 50%, replicas: 100%}")
		c.edit(deploymentKind, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, int64(40), "spec", "replicas")
		})
		c.run(c.healthy)
		c.slow, c.tended = 200*time.Millisecond, time.Now()
		c.release("v2")
		c.writes = nil
		begun := time.Now()
		c.run(c.waits(1))
		took := time.Since(begun)
		statuses := 0
		for _, w := range c.writes {
			if w == "status" {
				statuses++
			}
		}
		if took < 8*time.Second || statuses < int(took/telling)-1 || statuses > int(took/telling)+6 {
			t.Errorf("%d statuses in %s", statuses, took)
		}
	})
}

// TestADraftGivesWayToWhatAUserWrites approves a step by another hand between a decision and its store.
func TestADraftGivesWayToWhatAUserWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newToy(t, twoSteps)
		c.run(c.healthy)
		live := c.objects[c.key(rolloutKind)]
		d := draft{}
		r, errs := rollouts.Decode("v1beta1", live.Object)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		turn := &turn{Controller: c.Controller, name: name, live: live, r: r, draft: &d}
		status := r.Status
		status.Message = "another"
		d.add(turn, status)
		if d.over(turn); turn.r.Status.Message != "another" {
			t.Errorf("the draft is not seen: %+v", turn.r.Status)
		}
		c.edit(rolloutKind, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "1"}) })
		if err := turn.store(t.Context()); err == nil {
			t.Error("a status was stored over what a user wrote")
		}
		turn.live = c.objects[c.key(rolloutKind)]
		turn.r, _ = rollouts.Decode("v1beta1", turn.live.Object)
		if d.over(turn); turn.r.Status.Message == "another" || d.news() {
			t.Errorf("the draft outlasts what a user wrote: %+v", turn.r.Status)
		}
	})
}
