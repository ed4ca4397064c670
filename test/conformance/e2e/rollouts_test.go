package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

// canaried is a workload of a kind, with the start of its spec, its Service, a route, and a Rollout with a strategy.
const canaried = `
apiVersion: apps/v1
kind: %[1]s
metadata: {name: web}
spec:
  %[2]s
  minReadySeconds: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: toy
        image: ` + install.Image + `
        args: [echo, "v1=0.0.0.0:8080"]
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 12}
        lifecycle: {preStop: {sleep: {seconds: 2}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: web, port: 80, weight: 7}]}]
---
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: web}
spec:
  workloadRef: {apiVersion: apps/v1, kind: %[1]s, name: web}
  strategy: %[3]s
`

type condition struct{ Type, Status, Reason string }

// rollout is what the tests read of a Rollout.
type rollout struct {
	Metadata struct {
		Annotations map[string]string
		Finalizers  []string
	}
	Status struct {
		Phase, Message, CurrentStepState string
		CurrentStepIndex                 int
		Conditions                       []condition
		CanaryStatus                     struct{ CanaryReplicas, CanaryReadyReplicas int }
	}
}

func (w *world) rollout() (r rollout) {
	w.Helper()
	if err := json.Unmarshal([]byte(w.kubectl("", "get", "rollout", "web", "--output=json")), &r); err != nil {
		w.Fatal(err)
	}
	return r
}

// phase waits until the Rollout is in a phase, and if a step is given, waits at it. One that is being taken back still has the step
// that it was taken back from.
func (w *world) phase(phase string, step int) {
	w.Helper()
	w.watched("rollout/web", func(text []byte) error {
		var r rollout
		if err := json.Unmarshal(text, &r); err != nil {
			return err
		}
		s := &r.Status
		rolling := slices.ContainsFunc(s.Conditions, func(c condition) bool { return c.Type == "Progressing" && c.Reason == "InRolling" })
		if s.Phase != phase || step > 0 && (s.CurrentStepIndex != step || s.CurrentStepState != "StepPaused" || !rolling) {
			return fmt.Errorf("the Rollout is %+v, want phase %s, step %d", r.Status, phase, step)
		}
		return nil
	})
}

func (w *world) approve() {
	w.Helper()
	w.kubectl("", "patch", "rollout", "web", "--subresource=status", "--type=merge", "--patch", `{"status":{"currentStepState":"StepReady","canaryStatus":{"currentStepState":"StepReady"}}}`)
}

// release changes the version that the pods say they are.
func (w *world) release(version string) { w.releaseOf("deployment", version) }

func (w *world) releaseOf(kind, version string) {
	w.Helper()
	w.kubectl("", "patch", kind, "web", "--type=json", "--patch", fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/args/1","value":"%s=0.0.0.0:8080"}]`, version))
}

// written are the objects that a user wrote, as they are, without what an API server adds.
func (w *world) written() string { return w.writtenOf("deployment") }

func (w *world) writtenOf(kind string) string {
	w.Helper()
	var all []string
	for _, object := range []string{kind + "/web", "service/web", "httproute/web"} {
		var u map[string]any
		if err := json.Unmarshal([]byte(w.kubectl("", "get", object, "--output=json")), &u); err != nil {
			w.Fatal(err)
		}
		delete(u, "status")
		meta := u["metadata"].(map[string]any)
		for _, field := range []string{"generation", "resourceVersion", "managedFields"} {
			delete(meta, field)
		}
		if a, ok := meta["annotations"].(map[string]any); ok {
			delete(a, "deployment.kubernetes.io/revision")
			delete(a, "deprecated.daemonset.template.generation")
		}
		text, err := json.MarshalIndent(u, "", " ")
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "\n")
}

// shares asks until the canary has had a share of a number of requests.
func (w *world) shares(url string, n int) map[string]int {
	w.Helper()
	got := map[string]int{}
	for range n {
		a, err := get(w.Context(), url)
		if err != nil || a.Status != http.StatusOK {
			w.Fatalf("%+v, %v", a, err)
		}
		got[a.Service]++
	}
	return got
}

func newRollout(t *testing.T, kind, spec, strategy string) (w *world, url string) {
	t.Helper()
	w = newWorld(t)
	url = w.gateway("edge")
	w.apply(fmt.Sprintf(canaried, kind, spec, strategy))
	w.kubectl("", "rollout", "status", kind+"/web", fmt.Sprintf("--timeout=%s", patience))
	w.answers(url, http.StatusOK, "v1")
	w.phase("Healthy", 0)
	return w, url
}

// TestACanaryOfADeployment releases a version in steps, under load: the shares are exact, no request fails, and at the end
// everything is as its user wrote it.
func TestACanaryOfADeployment(t *testing.T) {
	if testing.Short() {
		t.Skip("releases under load show it")
	}
	t.Parallel()
	w, url := newRollout(t, "Deployment", "replicas: 4", `{canary: {trafficRoutings: [{service: web, gateway: {httpRouteName: web}, gracePeriodSeconds: 1}], steps: [
    {traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 50%}, {traffic: 100%, replicas: 100%, pause: {duration: 1}}]}}`)
	before := w.written()
	l := startLoad(t, url)
	began := time.Now()
	w.release("v2")
	w.phase("Progressing", 1)
	t.Logf("step 1 after %v", time.Since(began).Round(time.Millisecond))
	if got := w.shares(url, 50); got["v2"] < 5 || got["v2"] > 20 {
		t.Errorf("step 1: %v", got)
	}
	w.approve()
	w.phase("Progressing", 2)
	w.approve()
	w.phase("Healthy", 0)
	w.eventually(func() error {
		if after := strings.ReplaceAll(w.written(), "v2=0.0.0.0", "v1=0.0.0.0"); after != before {
			return fmt.Errorf("it is not as it was:\n%s\nwas\n%s", after, before)
		}
		return nil
	})
	if got := w.shares(url, 20); got["v2"] != 20 {
		t.Errorf("at the end: %v", got)
	}
	l.end(t)
	r := w.rollout()
	if len(r.Metadata.Annotations["rollouts.weirmesh.github.io/workload"]) > 0 {
		t.Errorf("what was remembered is left: %v", r.Metadata.Annotations)
	}
	w.kubectl("", "delete", "rollout", "web", "--timeout=20s")
}

// TestWaysOutOfARelease goes back to the version before, takes a release back by the annotation, replaces the version midway,
// edits a route midway and deletes the Rollout midway, all under load: no request fails, and everything is as it was.
func TestWaysOutOfARelease(t *testing.T) {
	if testing.Short() {
		t.Skip("a canary shows it")
	}
	t.Parallel()
	w, url := newRollout(t, "Deployment", "replicas: 4", `{canary: {trafficRoutings: [{service: web, gateway: {httpRouteName: web}, gracePeriodSeconds: 1}], steps: [
    {traffic: 20%, replicas: 1}, {matches: [{headers: [{name: x-beta, value: "yes"}]}], replicas: 50%}, {traffic: 100%, replicas: 100%}]}}`)
	before := w.written()
	same := func(version string) {
		w.Helper()
		w.eventually(func() error {
			if after := strings.ReplaceAll(w.written(), version+"=0.0.0.0", "v1=0.0.0.0"); after != before {
				return fmt.Errorf("it is not as it was:\n%s\nwas\n%s", after, before)
			}
			return nil
		})
		if got := w.shares(url, 20); got[version] != 20 {
			t.Errorf("%v, want %s alone", got, version)
		}
	}
	l := startLoad(t, url)

	w.release("v2")
	w.phase("Progressing", 1)
	w.release("v1") // back
	w.phase("Healthy", 0)
	same("v1")

	w.kubectl("", "patch", "rollout", "web", "--type=merge", "--patch", `{"spec":{"strategy":{"paused":false}}}`)
	w.release("v2")
	w.phase("Progressing", 1)
	w.approve()
	w.phase("Progressing", 2)
	w.kubectl("", "annotate", "httproute", "web", "note=mine") // an edit midway is kept
	w.release("v1")
	w.phase("Healthy", 0)
	w.kubectl("", "annotate", "httproute", "web", "note-")
	same("v1")

	w.release("v2")
	w.phase("Progressing", 1)
	w.release("v3") // another one midway
	w.eventually(func() error {
		if got := w.shares(url, 20); got["v2"] > 0 || got["v3"] == 0 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	w.phase("Progressing", 1)
	w.kubectl("", "delete", "rollout", "web", "--timeout=60s") // midway
	w.eventually(func() error {
		if got := w.shares(url, 20); got["v3"] != 20 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	w.kubectl("", "rollout", "status", "deployment/web", fmt.Sprintf("--timeout=%s", patience))
	same("v3")
	l.end(t)
}

// TestABlueGreenRelease runs all pods of both versions beside each other.
func TestABlueGreenRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("a canary shows it")
	}
	t.Parallel()
	w, url := newRollout(t, "Deployment", "replicas: 2", `{blueGreen: {trafficRoutings: [{service: web, gateway: {httpRouteName: web}, gracePeriodSeconds: 1}], steps: [
    {traffic: 0%, replicas: 100%}, {traffic: 100%, replicas: 100%}]}}`)
	before := w.written()
	l := startLoad(t, url)
	w.release("v2")
	w.phase("Progressing", 1)
	if got := w.shares(url, 20); got["v1"] != 20 {
		t.Errorf("step 1: %v", got)
	}
	if n := w.kubectl("", "get", "pods", "--selector=app=web", "--field-selector=status.phase=Running", "--output=name"); len(strings.Fields(n)) != 4 {
		t.Errorf("the pods are %q, want 4", n)
	}
	w.kubectl("", "patch", "rollout", "web", "--subresource=status", "--type=merge", "--patch", `{"status":{"currentStepState":"StepReady","blueGreenStatus":{"currentStepState":"StepReady"}}}`)
	w.phase("Healthy", 0)
	w.eventually(func() error {
		if after := strings.ReplaceAll(w.written(), "v2=0.0.0.0", "v1=0.0.0.0"); after != before {
			return fmt.Errorf("it is not as it was:\n%s\nwas\n%s", after, before)
		}
		return nil
	})
	l.end(t)
}

// TestACanaryOfExtraPods leaves all stable pods until the end, and stops as long as its user has paused it, whoever approves the step.
func TestACanaryOfExtraPods(t *testing.T) {
	if testing.Short() {
		t.Skip("a canary of pods that replace others shows most of it")
	}
	t.Parallel()
	w, url := newRollout(t, "Deployment", "replicas: 3", `{canary: {enableExtraWorkloadForCanary: true, trafficRoutings: [{service: web, gateway: {httpRouteName: web}, gracePeriodSeconds: 1}], steps: [
    {traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 2}]}}`)
	before := w.written()
	paused := func(yes bool) {
		t.Helper()
		w.kubectl("", "patch", "rollout", "web", "--type=merge", "--patch", fmt.Sprintf(`{"spec":{"strategy":{"paused":%t}}}`, yes))
	}
	l := startLoad(t, url)
	w.release("v2")
	w.phase("Progressing", 1)
	if of := w.pods(); of["v1"] != 3 || of["v2"] != 1 {
		t.Errorf("step 1 has %v pods, want 3 of v1 and 1 of v2", of)
	}
	paused(true)
	w.approve()
	w.watched("rollout/web", func(text []byte) error {
		if !strings.Contains(string(text), "The Rollout is paused.") {
			return fmt.Errorf("it does not say that it is paused: %s", text)
		}
		return nil
	})
	l.more(600)
	if r := w.rollout(); r.Status.CurrentStepIndex != 1 {
		t.Errorf("though it is paused, the Rollout is %+v", r.Status)
	}
	paused(false)
	w.phase("Progressing", 2)
	if of := w.pods(); of["v1"] != 3 || of["v2"] != 2 {
		t.Errorf("step 2 has %v pods, want 3 of v1 and 2 of v2", of)
	}
	w.approve()
	w.phase("Healthy", 0)
	w.kubectl("", "rollout", "status", "deployment/web", fmt.Sprintf("--timeout=%s", patience))
	w.eventually(func() error {
		if after := strings.ReplaceAll(w.written(), "v2=0.0.0.0", "v1=0.0.0.0"); after != before {
			return fmt.Errorf("it is not as it was:\n%s\nwas\n%s", after, before)
		}
		return nil
	})
	if got := w.shares(url, 20); got["v2"] != 20 {
		t.Errorf("at the end: %v", got)
	}
	l.end(t)
}

// budget is a PodDisruptionBudget of the pods: so many have to be available.
func (w *world) budget(available int) {
	w.Helper()
	w.apply(fmt.Sprintf(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: %d, selector: {matchLabels: {app: web}}}
`, available))
}

// TestACanaryOfAStatefulSet replaces its pods from the last one on, goes back midway, and releases another version to its end,
// under load. A step back needs a pod evicted, which waits as long as a PodDisruptionBudget forbids it; an autoscaler makes a pod more
// within a step.
func TestACanaryOfAStatefulSet(t *testing.T) {
	if testing.Short() {
		t.Skip("a canary of a Deployment shows it")
	}
	t.Parallel()
	w, url := newRollout(t, "StatefulSet", "replicas: 3\n  serviceName: web\n  podManagementPolicy: Parallel", `{canary: {trafficRoutings: [{service: web, gateway: {httpRouteName: web}, gracePeriodSeconds: 1}], steps: [
    {traffic: 30%, replicas: 1}, {traffic: 60%, replicas: 2}, {traffic: 100%, replicas: 100%}]}}`)
	before := w.writtenOf("statefulset")
	same := func(version string) {
		w.Helper()
		w.eventually(func() error {
			if after := strings.ReplaceAll(w.writtenOf("statefulset"), version+"=0.0.0.0", "v1=0.0.0.0"); after != before {
				return fmt.Errorf("it is not as it was:\n%s\nwas\n%s", after, before)
			}
			return nil
		})
		if got := w.shares(url, 20); got[version] != 20 {
			t.Errorf("%v, want %s alone", got, version)
		}
	}
	l := startLoad(t, url)
	w.releaseOf("statefulset", "v2")
	w.phase("Progressing", 1)
	if pods := w.kubectl("", "get", "pods", "--selector=app=web", "--output=jsonpath={range .items[*]}{.metadata.name} {.spec.containers[0].args[1]}{'\\n'}{end}"); strings.Count(pods, "v2=") != 1 || !strings.Contains(pods, "web-2 v2=") {
		t.Errorf("step 1 has the pods\n%s", pods)
	}
	w.releaseOf("statefulset", "v1")
	w.phase("Healthy", 0)
	same("v1")
	w.releaseOf("statefulset", "v3")
	w.phase("Progressing", 1)
	w.approve()
	w.phase("Progressing", 2)
	w.budget(3)
	w.jump(1)
	w.told("EvictionForbidden", "disruption budget")
	if of := w.pods(); of["v3"] != 2 {
		t.Errorf("%v pods, want still 2 of v3", of)
	}
	w.budget(2)
	w.phase("Progressing", 1)
	w.eventually(func() error {
		if of := w.pods(); of["v1"] != 2 || of["v3"] != 1 {
			return fmt.Errorf("step 1 has %v pods, want 2 of v1 and 1 of v3", of)
		}
		return nil
	})
	w.apply(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: web}
  minReplicas: 4
  maxReplicas: 5
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
`)
	w.eventually(func() error {
		if of := w.pods(); of["v1"] != 3 || of["v3"] != 1 {
			return fmt.Errorf("scaled within step 1 there are %v pods, want 3 of v1 and 1 of v3", of)
		}
		return nil
	})
	w.approve()
	w.phase("Progressing", 2)
	w.approve()
	w.phase("Healthy", 0)
	before = strings.Replace(before, `"replicas": 3`, `"replicas": 4`, 1)
	same("v3")
	l.end(t)
}

// TestACanaryOfADaemonSet replaces its pod, of which there is one on a single node, when a PodDisruptionBudget permits it.
func TestACanaryOfADaemonSet(t *testing.T) {
	if testing.Short() {
		t.Skip("a canary of a Deployment shows it")
	}
	t.Parallel()
	w, url := newRollout(t, "DaemonSet", "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}", `{canary: {trafficRoutings: [{service: web, gateway: {httpRouteName: web}, gracePeriodSeconds: 1}], steps: [
    {matches: [{headers: [{name: x-beta, value: "yes"}]}], replicas: 1}, {traffic: 100%, replicas: 100%}]}}`)
	before := w.writtenOf("daemonset")
	w.budget(1)
	w.releaseOf("daemonset", "v2")
	w.told("EvictionForbidden", "disruption budget")
	w.answers(url, http.StatusOK, "v1")
	w.budget(0)
	w.phase("Progressing", 1)
	w.approve()
	w.phase("Healthy", 0)
	w.eventually(func() error {
		if after := strings.ReplaceAll(w.writtenOf("daemonset"), "v2=0.0.0.0", "v1=0.0.0.0"); after != before {
			return fmt.Errorf("it is not as it was:\n%s\nwas\n%s", after, before)
		}
		return nil
	})
	w.answers(url, http.StatusOK, "v2")
}
