package cli_test

import (
	"fmt"
	"net/http"
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
	// No request comes before the step is in force: 500 are a whole number of blocks then.
	waitUntil(t, func() bool { return strings.Contains(w.rollouts("list").stdout, "‖ Paused") })
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

// rollouts runs "weir rollout" with arguments against the admin endpoint.
func (w *world) rollouts(args ...string) result {
	return weir("", append(append([]string{"rollout"}, args...), "--admin", w.weir.Admin())...)
}

func TestRolloutCommandsControlARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("services.yaml", w.rollout(""))
	w.run("--rollout-state", "off")
	w.rollouts("list").want(t, 0, "default", "blue", "✔ Healthy")
	w.rollouts("promote", "blue").want(t, 1, "stderr:promote default/blue: nothing is being released")
	w.rollouts("get", "green").want(t, 1, "stderr:there is no Rollout default/green")
	w.rollouts("pause", "green").want(t, 1, "stderr:there is no such Rollout")
	w.rollouts("history", "blue").want(t, 0, "Nothing was released yet.")
	w.rollouts("get").want(t, 2, "stderr:which Rollout?")
	w.rollouts("promote", "blue", "--step", "0").want(t, 2, "stderr:steps count from 1")
	w.rollouts("get", "other/blue", "-n", "default").want(t, 2, "stderr:not in the namespace")

	w.write("services.yaml", w.rollout("green"))
	waitUntil(t, func() bool { return strings.Contains(w.rollouts("list").stdout, "‖ Paused") })
	// The share that was set is the one that is measured.
	waitUntil(t, func() bool {
		w.count(100, "green")
		return strings.Contains(w.rollouts("get", "blue").stdout, "Measured:  20.0 %")
	})
	w.rollouts("get", "blue").want(t, 0,
		"Rollout:   default/blue", "Strategy:  Canary, by HTTPRoute all", "Step:      1/1", "Requests:  20% of the requests go to blue-canary, 80% to blue.", "Set:       20 %",
		"├─ revision 2 (canary), Service blue-canary: 1 endpoint\n│  └─ 127.0.0.1:"+w.backends["green"], "└─ revision 1 (stable), Service blue: 1 endpoint", "Last events:")
	w.rollouts("list").want(t, 0, "1/1", "20 %", "20.0 %", "1 to 2")
	w.rollouts("status", "blue", "--watch=false").want(t, 0, "Paused: Step 1 of 1 waits until somebody approves it.")
	w.rollouts("status", "blue", "--timeout", "1ms").want(t, 1, "stderr:not over after 1ms")
	w.rollouts("abort", "blue").want(t, 0)
	w.rollouts("status", "blue").want(t, 1, "Aborted: ")
	waitUntil(t, func() bool { return w.count(20, "blue") == 20 })
	w.rollouts("retry", "blue").want(t, 0)
	waitUntil(t, func() bool { return strings.Contains(w.rollouts("list").stdout, "‖ Paused") })
	w.rollouts("promote", "default/blue").want(t, 0)
	waitUntil(t, func() bool { return w.count(20, "green") == 20 })
	waitUntil(t, func() bool { return strings.Contains(w.rollouts("list").stdout, "‖ Waiting") })
	w.rollouts("promote", "blue").want(t, 0)
	w.rollouts("status", "blue", "--timeout", "1m").want(t, 0, "Healthy: ")
	w.rollouts("history", "blue").want(t, 0, "REVISION", "released", "taken back")
	r := w.rollouts("list", "-o", "json", "-n", "default")
	r.want(t, 0, `"state": "Healthy"`, `"revision": 2`)
	w.rollouts("list", "-n", "other").want(t, 0, "There are no Rollouts in the namespace other.")

	if code, body := w.admin("/rollouts/default/blue"); code != 200 || !strings.Contains(body, `"name": "blue"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, body := w.admin("/status"); code != 200 || !strings.Contains(body, `"phase": "Healthy"`) {
		t.Errorf("%d %s", code, body)
	}
	if _, body := w.admin("/"); !strings.Contains(body, "/rollouts ") {
		t.Errorf("index: %s", body)
	}
	// A page of another origin controls nothing.
	resp, err := http.NewRequest(http.MethodPost, w.weir.Admin()+"/rollouts/default/blue/pause", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Header.Set("Origin", "https://evil.example")
	answer, err := w.client.Do(resp)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("another origin's request is answered %s", answer.Status)
	}
	weir("", "rollout", "list", "--admin", "127.0.0.1:1").want(t, 1, "stderr:nobody answers at 127.0.0.1:1")
	weir("", "rollout", "list", "--admin", "://").want(t, 2, "stderr:want ADDRESS:PORT")
}
