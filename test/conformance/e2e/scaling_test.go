package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

// steady sends requests, so many a second, until it is stopped. What they are answered does not matter.
func (w *world) steady(url string, rate int) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		ticker := time.NewTicker(time.Second / time.Duration(rate))
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				_, _ = get(ctx, url)
			}
		}
	})
	stop = func() { cancel(); wait.Wait() }
	w.Cleanup(stop)
	return stop
}

// custom is how the chart registers custom metrics (traffic.customMetrics), and an autoscaler that scales by those of pods and
// of an object.
const custom = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta2.custom.metrics.k8s.io}
spec:
  group: custom.metrics.k8s.io
  version: v1beta2
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: weir-controller, namespace: ` + install.Namespace + `, port: 443}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 3
  behavior:
    scaleDown: {stabilizationWindowSeconds: 0}
  metrics:
  - type: Pods
    pods:
      metric: {name: requests_per_second, selector: {matchLabels: {window: 10s}}}
      target: {type: AverageValue, averageValue: "4"}
  - type: Object
    object:
      describedObject: {apiVersion: v1, kind: Service, name: web}
      metric: {name: requests_in_flight, selector: {matchLabels: {window: 10s}}}
      target: {type: Value, value: "1000"}
`

// TestAnAutoscalerFollowsRequestsPerSecond: up under traffic, and down again after it.
func TestAnAutoscalerFollowsRequestsPerSecond(t *testing.T) {
	if testing.Short() {
		t.Skip("an autoscaler takes minutes")
	}
	t.Parallel()
	w := newWorld(t)
	w.toys("web")
	url := w.gateway("edge")
	w.apply(fmt.Sprintf(shop, "web"))
	w.answers(url, 200, "web")
	w.apply(custom)
	t.Cleanup(func() {
		_, _ = install.Kubectl(context.Background(), "", "delete", "apiservice", "v1beta2.custom.metrics.k8s.io", "--ignore-not-found")
	})
	replicas := func(want string) {
		t.Helper()
		began := time.Now()
		w.eventually(func() error {
			got := w.kubectl("", "get", "deployment", "web", "--output=jsonpath={.spec.replicas}")
			if got != want {
				return fmt.Errorf("%s replicas, want %s: %s", got, want,
					w.kubectl("", "get", "hpa", "web", "--output=jsonpath={.status.conditions[*].message} {.status.currentMetrics}"))
			}
			return nil
		})
		t.Logf("%s replicas after %v: %s", want, time.Since(began).Round(time.Second), w.kubectl("", "get", "hpa", "web", "--output=jsonpath={.status.currentMetrics}"))
	}
	stop := w.steady(url, 20) // five times what one pod is to have
	replicas("3")
	stop()
	replicas("1")
}

// website are the services of the seed's canary: the one that users know, and its two versions, of which the second may fail.
const website = `
apiVersion: v1
kind: Service
metadata: {name: website}
spec:
  selector: {app: website-v1}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: canary}
spec:
  service: website
  backends: [{service: website-v1, weight: 100}, {service: website-v2, weight: 0}]
`

// TestTheCanaryLoop on pods: a version that answers gets all requests step by step, one that fails some gets none.
func TestTheCanaryLoop(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	t.Parallel()
	w := newWorld(t)
	w.toys("website-v1", "website-v2")
	url := w.gateway("edge")
	w.apply(website, fmt.Sprintf(shop, "website"))
	w.answers(url, 200, "website-v1")
	w.steady(url, 20)
	loop := func() (string, error) {
		script, err := filepath.Abs(filepath.Join(top, "examples/canary-loop/canary-kubectl.sh"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), script, w.namespace, "25", "100")
		cmd.Env = append(os.Environ(), "WINDOW=6")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		return string(out), err
	}
	weights := func() string {
		return w.kubectl("", "get", "trafficsplit", "canary", "--output=jsonpath={.spec.backends[*].weight}")
	}
	if out, err := loop(); err != nil || !strings.Contains(out, "done: website-v2 gets 100 %") || weights() != "0 100" {
		t.Errorf("a good version: %v, weights %s\n%s", err, weights(), out)
	}
	w.answers(url, 200, "website-v2")

	w.kubectl("", "patch", "deployment", "website-v2", "--type=json",
		`--patch=[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--fail-every=3"}]`)
	w.kubectl("", "rollout", "status", "deployment/website-v2", fmt.Sprintf("--timeout=%s", patience))
	var exit *exec.ExitError
	out, err := loop()
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, "requests failed") || weights() != "100 0" {
		t.Errorf("a bad version: %v, weights %s\n%s", err, weights(), out)
	}
	for range 5 {
		w.answers(url, 200, "website-v1")
	}
}
