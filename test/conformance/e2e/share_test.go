package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// trickle asks URLs in turn, one each tenth of a second, until it is stopped: few enough for others to outnumber soon.
func (w *world) trickle(urls ...string) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if a, err := get(context.WithoutCancel(ctx), urls[i%len(urls)]); err != nil || a.Status != http.StatusOK {
				w.Errorf("%s: %+v, %v", urls[i%len(urls)], a, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	stop = func() { cancel(); running.Wait() }
	w.Cleanup(stop)
	return stop
}

// step waits until the release is at a step, in a state, with a message that has a text.
func (w *world) step(n int, state, message string) {
	w.Helper()
	w.watched("rollout/web", func(text []byte) error {
		var r rollout
		if err := json.Unmarshal(text, &r); err != nil {
			return err
		}
		if s := r.Status; s.CurrentStepIndex != n || s.CurrentStepState != state || !strings.Contains(s.Message, message) {
			return fmt.Errorf("the Rollout is %+v, want step %d in %s with %q", s, n, state, message)
		}
		return nil
	})
}

// told waits for a text in the Events of a reason.
func (w *world) told(reason, text string) {
	w.Helper()
	w.eventually(func() error {
		all := w.kubectl("", "get", "events", "--field-selector=reason="+reason, `--output=jsonpath={range .items[*]}{.message}{"\n"}{end}`)
		if !strings.Contains(all, text) {
			return fmt.Errorf("the Events %s are %q, want %q", reason, all, text)
		}
		return nil
	})
}

// TestAStepWaitsForItsShare has a rule of the route lead to the new version alone, by which people try it out. While they make most of the
// requests, the new version gets another share than the step says: the step waits with an Event, and goes on when the shares agree, as
// others outnumber them, or when somebody approves it.
func TestAStepWaitsForItsShare(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	t.Parallel()
	w := newWorld(t)
	url := w.gateway("edge")
	w.apply(strings.Replace(fmt.Sprintf(canaried, "Deployment", "replicas: 2", `{canary: {trafficRoutings: [{service: web, gateway: {httpRouteName: web}, gracePeriodSeconds: 1}], steps: [
    {traffic: 20%, replicas: 1}, {traffic: 40%, replicas: 1}]}}`),
		"  rules: [", "  rules: [{matches: [{path: {value: /preview}}], backendRefs: [{name: web-canary, port: 80}]}, ", 1))
	w.rolledOut("web")
	w.answers(url, http.StatusOK, "v1")
	w.phase("Healthy", 0)

	w.release("v2")
	w.step(1, "StepMetricsAnalysis", "")
	began := time.Now()
	stop := w.trickle(url+"/preview", url)
	w.step(1, "StepMetricsAnalysis", "of the requests go to the new version, not 20 %. It waits until they agree, or somebody approves the step.")
	w.told("ShareDiffers", "Step 1: the new version got ")
	t.Logf("step 1 waits after %v", time.Since(began).Round(100*time.Millisecond))
	stop()
	l := startLoad(t, url)
	w.step(1, "StepPaused", "")
	w.told("ShareMeasured", "Step 1: the new version got ")
	w.boardHasData()
	l.end(t)
	t.Logf("shares agree after %v", time.Since(began).Round(100*time.Millisecond))

	w.approve()
	w.step(2, "StepMetricsAnalysis", "")
	stop = w.trickle(url + "/preview")
	w.step(2, "StepMetricsAnalysis", "of the requests go to the new version, not 40 %")
	w.told("ShareDiffers", "Step 2: the new version got ")
	stop()
	w.approve()
	w.phase("Healthy", 0)
	if got := w.shares(url, 20); got["v2"] != 20 {
		t.Errorf("at the end: %v", got)
	}
}
