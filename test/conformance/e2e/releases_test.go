package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

// releases are a world with a Deployment and its Rollout.
type releases struct {
	*world
	url      string
	strategy string
	before   string // what its user wrote, of version v1
	count    int
	version  string // all requests go to it when nothing is being released
	coming   string // what is released, or was last
}

// newReleases begins with version v1 of so many pods. The strategy is a canary's steps.
func newReleases(w *world, replicas int, steps string) *releases {
	w.Helper()
	r := &releases{
		world: w, url: w.gateway("edge"), version: "v1", count: 1,
		strategy: `{canary: {trafficRoutings: [{service: web, gateway: {httpRouteName: web}, gracePeriodSeconds: 1}], steps: [` + steps + `]}}`,
	}
	r.write(replicas)
	w.rolledOut("web")
	w.answers(r.url, 200, "v1")
	w.phase("Healthy", 0)
	r.before = w.written()
	return r
}

func (r *releases) write(replicas int) {
	r.Helper()
	r.apply(fmt.Sprintf(canaried, "Deployment", fmt.Sprintf("replicas: %d", replicas), r.strategy))
}

// begin releases the next version, and waits at a step.
func (r *releases) begin(step int) (version string) {
	r.Helper()
	r.next()
	r.phase("Progressing", step)
	return r.coming
}

// next releases a version that there was not before.
func (r *releases) next() {
	r.Helper()
	r.count++
	r.coming = fmt.Sprintf("v%d", r.count)
	r.release(r.coming)
}

// healthy waits until all requests go to a version, and everything is as it was written.
func (r *releases) healthy(version string) {
	r.Helper()
	r.phase("Healthy", 0)
	r.same(version)
}

func (r *releases) same(version string) {
	r.Helper()
	r.version = version
	r.eventually(func() error {
		if after := strings.ReplaceAll(r.written(), version+"=0.0.0.0", "v1=0.0.0.0"); after != r.before {
			return fmt.Errorf("it is not as it was:\n%s\nwas\n%s", after, r.before)
		}
		if got := r.shares(r.url, 20); got[version] != 20 {
			return fmt.Errorf("%v, want %s alone", got, version)
		}
		return nil
	})
}

// away waits until no request goes to a version.
func (r *releases) away(version string) {
	r.Helper()
	r.eventually(func() error {
		if got := r.shares(r.url, 20); got[version] > 0 {
			return fmt.Errorf("%v, want none of %s", got, version)
		}
		return nil
	})
}

// These are what may become of a release that waits at its first step.

func promoted(r *releases) {
	r.approve()
	r.healthy(r.coming)
}

func rolledBack(r *releases) {
	r.release(r.version)
	r.healthy(r.version)
}

// aborted leaves the workload with a version that it does not run, until the annotation or the version goes.
func aborted(r *releases) {
	r.kubectl("", "annotate", "rollout", "web", "rollouts.weirmesh.github.io/abort="+r.kubectl("", "get", "rollout", "web", "--output=jsonpath={.status.canaryStatus.canaryRevision}"))
	r.away(r.coming)
	r.phase("Healthy", 0)
}

// replaced has another version wait at the first step.
func replaced(r *releases) {
	between := r.coming
	r.next()
	r.away(between)
	r.eventually(func() error {
		if got := r.shares(r.url, 20); got[r.coming] == 0 {
			return fmt.Errorf("%v, want some of %s", got, r.coming)
		}
		return nil
	})
	r.phase("Progressing", 1)
}

// deleted ends with the Rollout.
func deleted(r *releases) {
	r.kubectl("", "delete", "rollout", "web", "--timeout=60s")
	r.rolledOut("web")
	r.same(r.coming)
}

func (r *releases) retry() {
	r.Helper()
	r.kubectl("", "annotate", "rollout", "web", "rollouts.weirmesh.github.io/abort-")
}

// ways are how a release ends that has begun, and how the next one can begin.
var ways = map[string][]func(r *releases){
	"promoted":        {promoted},
	"rolled back":     {rolledBack},
	"aborted":         {aborted, rolledBack, (*releases).retry},
	"replaced midway": {replaced, promoted},
	"deleted": {deleted, func(r *releases) {
		r.apply(r.rolloutAlone())
		r.phase("Healthy", 0)
	}},
}

// rolloutAlone is the Rollout as it was written, without its workload.
func (r *releases) rolloutAlone() string {
	all := strings.Split(fmt.Sprintf(canaried, "Deployment", "replicas: 2", r.strategy), "\n---\n")
	return all[len(all)-1]
}

// TestReleasesFailNoRequest ends releases in each way, over and over, under load: no request fails, and each time everything is as its
// user wrote it.
func TestReleasesFailNoRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("a canary of meshed pods is one under load, and test/cluster/rollouts ends releases in each way on an API server")
	}
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReleases(newWorldNamed(t, "e2e-releases-"+strings.ReplaceAll(name, " ", "-")), 2, `{traffic: 50%, replicas: 1}`)
			l := startLoad(t, r.url)
			for round := range rounds() {
				began := time.Now()
				took := func() time.Duration {
					d := time.Since(began).Round(100 * time.Millisecond)
					began = time.Now()
					return d
				}
				r.begin(1)
				parts := []time.Duration{took()}
				for _, part := range way {
					part(r)
					parts = append(parts, took())
				}
				t.Logf("round %d: %v", round+1, parts)
			}
			l.end(t)
		})
	}
}

const threeSteps = `{traffic: 20%, replicas: 1}, {traffic: 40%, replicas: 50%}, {traffic: 60%, replicas: 75%}`

// pods counts those of each version that are available.
func (w *world) pods() (of map[string]int) {
	w.Helper()
	of = map[string]int{}
	list := w.kubectl("", "get", "pods", "--selector=app=web",
		`--output=jsonpath={range .items[*]}{.spec.containers[0].args[1]} {.status.conditions[?(@.type=="Ready")].status} {.metadata.deletionTimestamp}{"\n"}{end}`)
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] == "True" {
			version, _, _ := strings.Cut(fields[0], "=")
			of[version]++
		}
	}
	return of
}

// has waits until there are so many pods of two versions.
func (r *releases) has(stable string, m int, canary string, n int) {
	r.Helper()
	r.eventually(func() error {
		if of := r.pods(); of[stable] != m || of[canary] != n {
			return fmt.Errorf("%v pods, want %d of %s, %d of %s", of, m, stable, n, canary)
		}
		return nil
	})
}

func (w *world) jump(step int) {
	w.Helper()
	w.kubectl("", "patch", "rollout", "web", "--subresource=status", "--type=merge", "--patch", fmt.Sprintf(`{"status":{"canaryStatus":{"nextStepIndex":%d}}}`, step))
}

// TestAReleaseJumpsAndScales to a later step and back, and is scaled within a step by an autoscaler: the pods of both versions follow.
// A PodDisruptionBudget is there all the time.
func TestAReleaseJumpsAndScales(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	t.Parallel()
	r := newReleases(newWorld(t), 4, threeSteps)
	r.apply(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 3, selector: {matchLabels: {app: web}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 4
  maxReplicas: 8
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
`)
	l := startLoad(t, r.url)
	next := r.begin(1)
	r.has("v1", 3, next, 1)
	r.jump(3)
	r.phase("Progressing", 3)
	r.has("v1", 1, next, 3)
	r.jump(2)
	r.phase("Progressing", 2)
	r.has("v1", 2, next, 2)
	r.kubectl("", "patch", "hpa", "web", "--type=merge", "--patch", `{"spec":{"minReplicas":8}}`)
	r.has("v1", 4, next, 4)
	if got := r.shares(r.url, 50); got[next] < 10 || got[next] > 30 {
		t.Errorf("step 2: %v, want 40 %% of %s", got, next)
	}
	r.approve()
	r.phase("Progressing", 3)
	r.has("v1", 2, next, 6)
	r.approve()
	r.before = strings.Replace(r.before, `"replicas": 4`, `"replicas": 8`, 1)
	r.healthy(next)
	l.end(t)
}

// TestAReleaseThatDoesNotStart waits at its first step while the stable version serves, and goes on with a version that starts.
func TestAReleaseThatDoesNotStart(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	t.Parallel()
	r := newReleases(newWorld(t), 3, threeSteps)
	l := startLoad(t, r.url)
	image := func(image string) {
		t.Helper()
		r.kubectl("", "patch", "deployment", "web", "--type=json", "--patch", `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"`+image+`"}]`)
	}
	image("nowhere.invalid/toy:1")
	r.eventually(func() error {
		waiting := r.kubectl("", "get", "pods", "--selector=app=web", "--output=jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}")
		if !strings.Contains(waiting, "Image") {
			return fmt.Errorf("pods wait for %q", waiting)
		}
		return nil
	})
	l.more(200)
	if s := r.rollout().Status; s.Phase != "Progressing" || s.CurrentStepIndex != 1 || s.CurrentStepState == "StepPaused" || !strings.Contains(s.Message, "pod") {
		t.Errorf("the Rollout is %+v, want it to wait for a pod", s)
	}
	if of := r.pods(); of["v1"] < 2 {
		t.Errorf("%v pods, want at least 2", of)
	}
	image(install.Image)
	r.healthy("v1")
	next := r.begin(1)
	for step := 2; step <= 3; step++ {
		r.approve()
		r.phase("Progressing", step)
	}
	r.approve()
	r.healthy(next)
	l.end(t)
}

// TestVersionsThatFollowEachOther are applied before the one before is released: the last of them is what runs in the end.
func TestVersionsThatFollowEachOther(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	t.Parallel()
	r := newReleases(newWorld(t), 3, `{traffic: 50%, replicas: 50%, pause: {duration: 2}}, {traffic: 100%, replicas: 100%, pause: {duration: 1}}`)
	l := startLoad(t, r.url)
	for r.count < 8 {
		r.count++
		r.release(fmt.Sprintf("v%d", r.count))
		l.more(200 * (1 + r.count%3)) // half a second to one and a half
	}
	r.healthy("v8")
	l.end(t)
}

// TestAReleaseOverAnAPIServersRestartFailsNoRequest has no API server for half a minute in the middle of a step.
func TestAReleaseOverAnAPIServersRestartFailsNoRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	r := newReleases(newWorld(t), 4, threeSteps)
	l := startLoad(t, r.url)
	next := r.begin(1)
	r.approve()
	r.cluster("restart", "-away", "30s")
	r.phase("Progressing", 2)
	r.has("v1", 2, next, 2)
	r.approve()
	r.phase("Progressing", 3)
	r.approve()
	r.healthy(next)
	l.end(t)
}

// TestAReleaseOverTheControllersRestartFailsNoRequest kills the controllers at the beginning, in the middle and at the end.
func TestAReleaseOverTheControllersRestartFailsNoRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	r := newReleases(newWorld(t), 4, threeSteps)
	kill := func() {
		t.Helper()
		r.kubectl("", "--namespace", install.Namespace, "delete", "pods", "--all", "--force", "--grace-period=0")
	}
	l := startLoad(t, r.url)
	r.count++
	r.release("v2")
	kill()
	r.phase("Progressing", 1)
	r.has("v1", 3, "v2", 1)
	for step := 2; step <= 3; step++ {
		r.approve()
		kill()
		r.phase("Progressing", step)
	}
	r.approve()
	kill()
	r.healthy("v2")
	l.end(t)
}

// TestAReleaseOverADrainedNode drains the only node in the middle of a step: a PodDisruptionBudget keeps what serves, and when the node
// is there again, the release goes on.
func TestAReleaseOverADrainedNode(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	r := newReleases(newWorld(t), 4, threeSteps)
	r.apply(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 3, selector: {matchLabels: {app: web}}}
`)
	node := r.kubectl("", "get", "nodes", "--output=jsonpath={.items[0].metadata.name}")
	l := startLoad(t, r.url)
	next := r.begin(1)
	// The node has no room for what it is drained of, so the budget ends it.
	_, err := install.Kubectl(t.Context(), "", "drain", node, "--namespace", r.namespace, "--pod-selector=app=web", "--timeout=15s", "--ignore-daemonsets")
	if err == nil || !strings.Contains(err.Error(), "disruption budget") {
		t.Errorf("drained: %v, want the budget to forbid it", err)
	}
	if of := r.pods(); of["v1"]+of[next] != 3 {
		t.Errorf("%v pods, want 3", of)
	}
	r.approve()
	l.more(400)
	r.kubectl("", "uncordon", node)
	r.phase("Progressing", 2)
	r.has("v1", 2, next, 2)
	r.approve()
	r.phase("Progressing", 3)
	r.approve()
	r.healthy(next)
	l.end(t)
}
