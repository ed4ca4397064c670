package rollouts

import (
	"encoding/json"
	"testing"

	"github.com/weirmesh/weir/api/rollouts"
)

// TestStepsKeepSessions looks at the route in each step of a release of a rule that keeps sessions: the copy for the beta's cookie has the
// sessions of the rule it is named after, no backend is left for a version without a share, and at the end, and after a rollback from each
// step, everything is as its user wrote it.
func TestStepsKeepSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "Deployment", "replicas: 2", "{canary: {"+route+`, steps: [
    {replicas: 1, matches: [{headers: [{name: Cookie, type: RegularExpression, value: "(.*;\\s*)?beta=yes(;.*)?"}]}]},
    {traffic: 20%, replicas: 1}, {traffic: 100%, replicas: 1}, {traffic: 100%, replicas: 100%}]}}`)
	w.patch(routeKind, `{"spec":{"rules":[{"name":"all","sessionPersistence":{"sessionName":"shop","absoluteTimeout":"12h","cookieConfig":{"lifetimeType":"Permanent"}},"backendRefs":[{"name":"web","port":80,"weight":7}]}]}}`)
	w.settled("v1")
	before := w.written()
	c := w.start(1, false)
	w.until(rollouts.PhaseHealthy, 0)

	const (
		sessions = `"sessionPersistence":{"absoluteTimeout":"12h","cookieConfig":{"lifetimeType":"Permanent"},"sessionName":"shop","type":"Cookie"}`
		anywhere = `"matches":[{"path":{"type":"PathPrefix","value":"/"}}]`
		backend  = `{"group":"","kind":"Service","name":"web","port":80,"weight":`
		canary   = `{"group":"","kind":"Service","name":"web-canary","port":80,"weight":`
	)
	steps := []string{
		`[{"backendRefs":[` + canary + `7}],"matches":[{"headers":[{"name":"Cookie","type":"RegularExpression","value":"(.*;\\s*)?beta=yes(;.*)?"}],"path":{"type":"PathPrefix","value":"/"}}],"name":"all-canary-0",` + sessions + `},` +
			`{"backendRefs":[` + backend + `7}],` + anywhere + `,"name":"all",` + sessions + `}]`,
		`[{"backendRefs":[` + backend + `80},` + canary + `20}],` + anywhere + `,"name":"all",` + sessions + `}]`,
		`[{"backendRefs":[` + canary + `100}],` + anywhere + `,"name":"all",` + sessions + `}]`,
	}
	rules := func(step int) {
		t.Helper()
		u, err := w.get(routeKind)
		if err != nil {
			t.Fatal(err)
		}
		spec, _ := u.Object["spec"].(map[string]any)
		text, err := json.Marshal(spec["rules"])
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != steps[step-1] {
			t.Errorf("step %d has the rules\n%s\nwant\n%s", step, text, steps[step-1])
		}
	}
	for last := 1; last <= len(steps); last++ { // back from each step
		if testing.Short() && last == 2 {
			continue
		}
		w.release("v2")
		for step := 1; step <= last; step++ {
			w.until(rollouts.PhaseProgressing, int32(step))
			rules(step)
			if step < last {
				w.approve()
			}
		}
		if last < len(steps) {
			w.release("v1")
			w.until(rollouts.PhaseHealthy, 0)
			w.same(before, "v1")
		}
	}
	w.approve()
	w.until(rollouts.PhaseHealthy, 0)
	w.same(before, "v2")
	c.stop()
}
