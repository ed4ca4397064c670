package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// ofVersions counts answers by the version that gave them, and those that are none.
func ofVersions(text string) map[string]int {
	n := map[string]int{}
	for what, count := range counts(text) {
		switch {
		case strings.HasPrefix(what, "200 ") && strings.Contains(what, `"v1"`):
			n["v1"] += count
		case strings.HasPrefix(what, "200 ") && strings.Contains(what, `"v2"`):
			n["v2"] += count
		default:
			n[what] += count
		}
	}
	return n
}

// TestACanaryOfMeshedPods releases a version in steps where no Gateway is: the route's parent is the Service, and sidecars of its clients
// share out the requests, exactly. No request fails, and at the end everything is as its user wrote it.
func TestACanaryOfMeshedPods(t *testing.T) {
	t.Parallel()
	w := newWorldNamed(t, "e2e-mesh-rollout")
	w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	w.apply(strings.Replace(fmt.Sprintf(canaried, "Deployment", "replicas: 4", `{canary: {trafficRoutings: [{service: web, gateway: {httpRouteName: web}, gracePeriodSeconds: 1}], steps: [
    {traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 50%}, {traffic: 100%, replicas: 100%, pause: {duration: 1}}]}}`),
		"{name: edge}", `{group: "", kind: Service, name: web}`, 1))
	w.callers("front", "step-1", "step-2")
	w.kubectl("", "rollout", "status", "deployment/web", fmt.Sprintf("--timeout=%s", patience))
	w.phase("Healthy", 0)
	w.eventually(func() error {
		if n := ofVersions(w.call("front", "get", "http://web/", "4")); n["v1"] != 4 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
	before := w.written()
	end := w.loadOf("front", "http://web/", func(answer string) bool { return ofVersions(answer)["v1"]+ofVersions(answer)["v2"] == 1 })
	w.release("v2")
	w.phase("Progressing", 1)
	if n := ofVersions(w.call("step-1", "get", "http://web/", "50")); n["v2"] != 10 || n["v1"] != 40 {
		t.Errorf("step 1: %v, want 10 of 50", n)
	}
	w.approve()
	w.phase("Progressing", 2)
	if n := ofVersions(w.call("step-2", "get", "http://web/", "50")); n["v2"] != 25 || n["v1"] != 25 {
		t.Errorf("step 2: %v, want 25 of 50", n)
	}
	w.approve()
	w.phase("Healthy", 0)
	w.eventually(func() error {
		if after := strings.ReplaceAll(w.written(), "v2=0.0.0.0", "v1=0.0.0.0"); after != before {
			return fmt.Errorf("it is not as it was:\n%s\nwas\n%s", after, before)
		}
		return nil
	})
	if n := ofVersions(w.call("step-1", "get", "http://web/", "20")); n["v2"] != 20 {
		t.Errorf("at the end: %v", n)
	}
	answered, unknown := end()
	t.Logf("%d requests answered, of %d POSTs it is not known whether they arrived", answered, unknown)
	w.kubectl("", "delete", "rollout", "web", "--timeout=20s")
}
