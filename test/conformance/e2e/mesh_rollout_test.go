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
	steps := []struct {
		share    int // percent
		replicas string
	}{{20, "1"}, {50, "50%"}}
	replicas, last, of := "replicas: 4", "{traffic: 100%, replicas: 100%, pause: {duration: 1}}", 50
	if testing.Short() {
		steps, replicas, last = steps[:1], "replicas: 2", ""
	}
	var text strings.Builder
	callers := []string{"front"}
	for i, s := range steps {
		fmt.Fprintf(&text, "{traffic: %d%%, replicas: %s}, ", s.share, s.replicas)
		callers = append(callers, fmt.Sprint("step-", i+1))
	}
	w.apply(strings.Replace(fmt.Sprintf(canaried, "Deployment", replicas, `{canary: {trafficRoutings: [{service: web, gateway: {httpRouteName: web}, gracePeriodSeconds: 1}], steps: [
    `+text.String()+last+`]}}`),
		"{name: edge}", `{group: "", kind: Service, name: web}`, 1))
	w.callers(callers...)
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
	for i, s := range steps {
		w.phase("Progressing", i+1)
		want := of * s.share / 100
		if n := ofVersions(w.call(callers[i+1], "get", "http://web/", fmt.Sprint(of))); n["v2"] != want || n["v1"] != of-want {
			t.Errorf("step %d: %v, want %d of %d", i+1, n, want, of)
		}
		w.approve()
	}
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
