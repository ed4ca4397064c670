package release

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// text is a Standing in a line, without its name.
func (s Standing) text() string {
	share := func(f *float64) string {
		if f == nil {
			return "-"
		}
		return fmt.Sprint(*f)
	}
	return fmt.Sprintf("%s %d/%d set %s measured %s", s.Phase, s.Step, s.Steps, share(s.Set), share(s.Measured))
}

// TestStatsTellOfARelease follows one through its steps, to its ends.
func TestStatsTellOfARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newToy(t, "{traffic: 10%, replicas: 1}, {matches: [{headers: [{name: x-beta, value: ours}]}], replicas: 1}, {traffic: 50%, replicas: 1}")
		want := map[Transition]uint64{}
		stage := func(what, standing string, add ...Transition) {
			t.Helper()
			for _, a := range add {
				want[a]++
			}
			s := c.Controller.Stats()
			if len(s.Rollouts) != 1 || s.Rollouts[0].text() != standing || s.Rollouts[0].NamespacedName != name {
				t.Errorf("%s: %+v, want %q", what, s.Rollouts, standing)
			}
			maps.DeleteFunc(s.Passed, func(_ Transition, n uint64) bool { return n == 0 })
			if !maps.Equal(s.Passed, want) {
				t.Errorf("%s: %v, want %v", what, s.Passed, want)
			}
		}
		c.run(c.healthy)
		stage("before", "Healthy 0/3 set - measured -")
		c.release("v2")
		c.run(c.waits(1))
		stage("step 1", "Progressing 1/3 set 0.1 measured -", Begun, StepReached)
		if since := c.Controller.Stats().Rollouts[0].Since; since.IsZero() || since.After(time.Now()) {
			t.Errorf("the step began %v", since)
		}
		before := c.Controller.Stats().Rollouts[0].Since
		time.Sleep(time.Minute)
		c.approve()
		c.run(c.waits(2))
		stage("step 2, of matches", "Progressing 2/3 set - measured -", StepReached)
		if since := c.Controller.Stats().Rollouts[0].Since; since.Sub(before) < time.Minute {
			t.Errorf("step 2 began %v, step 1 %v", since, before)
		}
		c.release("v3")
		c.run(c.waits(1))
		stage("another version", "Progressing 1/3 set 0.1 measured -", Replaced, StepReached)
		c.approve()
		c.run(c.waits(2))
		c.approve()
		c.run(c.waits(3))
		stage("step 3", "Progressing 3/3 set 0.5 measured -", StepReached, StepReached)
		c.approve()
		c.run(c.healthy)
		stage("the end", "Healthy 0/3 set - measured -", Completed)

		c.release("v4")
		c.run(c.waits(1))
		c.release("v3")
		c.run(c.healthy)
		stage("back", "Healthy 0/3 set - measured -", Begun, StepReached, RolledBack)

		c.release("v5")
		c.run(c.waits(1))
		status := c.status()
		c.edit(rolloutKind, func(u *unstructured.Unstructured) {
			all := maps.Clone(u.GetAnnotations())
			all[rollout.AbortAnnotation] = status.Revision()
			u.SetAnnotations(all)
		})
		c.run(c.healthy)
		stage("given up", "Healthy 0/3 set - measured -", Begun, StepReached, Aborted)

		c.edit(rolloutKind, func(u *unstructured.Unstructured) {
			all := maps.Clone(u.GetAnnotations())
			delete(all, rollout.AbortAnnotation)
			u.SetAnnotations(all)
		})
		c.run(c.waits(1))
		stage("again", "Progressing 1/3 set 0.1 measured -", Begun, StepReached)
		c.edit(rolloutKind, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, true, "spec", "disabled")
		})
		c.run(func() bool { return c.status().Phase == rollouts.PhaseDisabled })
		stage("disabled", "Disabled 0/3 set - measured -", Stopped)

		c.Controller.stop()
		if s := c.Controller.Stats(); s.Carrying || s.Rollouts != nil || s.Passed != nil {
			t.Errorf("without the lease: %+v", s)
		}
		c.Controller.forget()
		if s := c.Controller.Stats(); !s.Carrying || s.Rollouts != nil || s.Passed[Begun] != want[Begun] {
			t.Errorf("with the lease again: %+v", s)
		}
	})
}

// TestStatsAreBounded holds that Rollouts beyond the bound are counted, and take the place of those that go.
func TestStatsAreBounded(t *testing.T) {
	c := &Controller{}
	c.forget()
	r := &rollouts.Rollout{Spec: rollouts.Spec{Strategy: rollouts.Strategy{Canary: &rollouts.Canary{}}}}
	named := func(i int) types.NamespacedName { return types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(i)} }
	const more = 3
	for i := range maxShown + more {
		for range 2 {
			(&turn{Controller: c, name: named(i), r: r}).stands(&rollouts.Status{Phase: rollouts.PhaseHealthy}, nil, time.Now())
		}
	}
	for i := range maxShown + more {
		s := c.Stats()
		if len(s.Rollouts) != min(maxShown, maxShown+more-i) || s.Unshown != max(0, more-i) {
			t.Fatalf("without %d: %d and %d more", i, len(s.Rollouts), s.Unshown)
		}
		c.concern(named(i), nil)
		c.concern(named(i), nil) // none is forgotten twice
	}
	if s := c.Stats(); len(s.Rollouts) != 0 || s.Unshown != 0 || len(c.stats.standing) != 0 {
		t.Errorf("at the end: %+v", s)
	}
}

// TestWhatCannotBeMeasuredIsTold holds that people with a Rollout learn that a share cannot be measured, and not from where.
func TestWhatCannotBeMeasuredIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const address = "http://10.1.2.3:9090/prometheus"
		c := newToy(t, "{traffic: 20%, replicas: 1}")
		var log bytes.Buffer
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		err := errors.New(address + " does not answer")
		c.Counted = func(context.Context, Count) (*rollout.Shared, error) {
			if err != nil {
				return nil, err
			}
			return &rollout.Shared{Stable: 810, Canary: 190, Window: 20 * time.Second}, nil
		}
		c.run(c.healthy)
		c.release("v2")
		c.run(func() bool { return strings.Contains(c.status().Message, "Traffic Metrics cannot be read") })
		for _, status := range []any{c.status(), c.objects[c.key(rolloutKind)].Object} {
			text, err := json.Marshal(status)
			if err != nil || strings.Contains(string(text), "10.1.2.3") {
				t.Errorf("the Rollout is %s, %v", text, err)
			}
		}
		if !strings.Contains(log.String(), address) || !strings.Contains(log.String(), "rollout=default/web") {
			t.Errorf("the log is %s", log.String())
		}
		if s := c.Stats(); s.Unmeasured == 0 || s.Rollouts[0].text() != "Progressing 1/1 set 0.2 measured -" {
			t.Errorf("%+v", s)
		}
		err = nil
		c.run(c.waits(1))
		if s := c.Stats(); s.Rollouts[0].text() != "Progressing 1/1 set 0.2 measured 0.19" {
			t.Errorf("measured: %+v", s)
		}
	})
}
