package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rollout releases green in the place of blue.
func (w *world) rollout(canary string) string {
	text := w.services() + fmt.Sprintf(`---
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: blue}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: blue}
  strategy:
    canary:
      trafficRoutings: [{service: blue, gracePeriodSeconds: 0, gateway: {httpRouteName: all}}]
      steps:
      - {traffic: 20%%, replicas: 1}
---
apiVersion: v1
kind: Service
metadata: {name: blue-canary}
spec: {ports: [{port: 80, targetPort: %s}]}
`, w.backends["green"])
	if canary == "" {
		return text
	}
	return text + fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: blue-canary, labels: {kubernetes.io/service-name: blue-canary}}
addressType: IPv4
ports: [{port: %s}]
endpoints: [{addresses: [127.0.0.1]}]
`, w.backends[canary])
}

// count sends n requests and counts those that a backend answered.
func (w *world) count(n int, backend string) (got int) {
	for range n {
		if w.get() == backend {
			got++
		}
	}
	return got
}

func TestRunCarriesOutRollouts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("services.yaml", w.rollout(""))
	state := filepath.Join(t.TempDir(), "state.json")
	w.run("--rollout-state", state)
	if n := w.count(50, "blue"); n != 50 {
		t.Fatalf("%d of 50 requests reached the stable version before the release", n)
	}
	w.write("services.yaml", w.rollout("green"))
	waitUntil(t, func() bool { return w.count(10, "green") > 0 })
	if n := w.count(500, "green"); n != 100 {
		t.Errorf("%d of 500 requests reached the canary, want 100: 20%%", n)
	}
	if text, err := os.ReadFile(state); err != nil || !strings.Contains(string(text), `"currentStepIndex": 1`) {
		t.Errorf("state: %v\n%s", err, text)
	}
	if text, err := os.ReadFile(filepath.Join(w.dir, "route.yaml")); err != nil || string(text) != w.route("blue") {
		t.Errorf("the route's file was changed: %v\n%s", err, text)
	}
	// What was served before the process ended is served after it began again.
	w.weir.Stop()
	w.run("--rollout-state", state)
	if n := w.count(500, "green"); n != 100 {
		t.Errorf("after a restart %d of 500 requests reached the canary, want 100", n)
	}
	w.write("services.yaml", w.rollout(""))
	waitUntil(t, func() bool { return w.count(20, "blue") == 20 })
}
