package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// argosController is what differs from the manifests for one namespace: the image, which has no user of its own, the version in which it writes, and
// that it needs no sidecar.
const argosController = `{"spec": {"template": {"metadata": {"labels": {"weirmesh.github.io/inject": "disabled"}}, "spec": {"containers": [{"name": "argo-rollouts", "image": "argo-rollouts:dev",
  "imagePullPolicy": "IfNotPresent", "args": ["--namespaced", "--traffic-split-api-version=%s"], "securityContext": {"runAsUser": 999}}]}}}}`

const argosStrategy = `  strategy:
    canary:
      stableService: web-stable
      canaryService: web-canary
      trafficRouting: {smi: {%s}}
      steps:
      - setWeight: 7
      - pause: {duration: 10s}
      - setWeight: 50
      - pause: {duration: 10s}
      - setWeight: 100
      - pause: {duration: 10s}`

// TestArgoRolloutsOfMeshedPods has Argo Rollouts, in each version of TrafficSplits that it writes, release a version of a workload that is in use and
// abort the release of the next one. A client of the mesh notices nothing but the versions.
func TestArgoRolloutsOfMeshedPods(t *testing.T) {
	needsDriver(t, "argo-rollouts")
	w := newWorldNamed(t, "e2e-argo")
	manifests := filepath.Join(w.source("argo-rollouts"), "manifests")
	definitions, err := filepath.Glob(filepath.Join(manifests, "crds/*-crd.yaml"))
	if err != nil || len(definitions) == 0 {
		t.Fatalf("no definitions in %s: %v", manifests, err)
	}
	for _, file := range definitions {
		w.kubectl("", "apply", "--server-side", "-f", file)
	}
	w.established("rollouts.argoproj.io")
	for _, c := range []struct{ version, routing, root string }{
		{"v1alpha1", "", "web-stable"}, // as by default, where the root is one of the backends
		{"v1alpha2", "rootService: web", "web"},
		{"v1alpha3", "rootService: web, trafficSplitName: shares", "web"},
	} {
		t.Run(c.version, func(t *testing.T) {
			t.Parallel()
			w := newWorldNamed(t, "e2e-argo-"+c.version)
			w.kubectl("", "apply", "-f", filepath.Join(manifests, "namespace-install.yaml"))
			w.kubectl("", "patch", "deployment", "argo-rollouts", "--patch", fmt.Sprintf(argosController, c.version))
			t.Cleanup(func() { w.logs("deployment/argo-rollouts") })
			w.argoReleases(fmt.Sprintf(argosStrategy, c.routing), "http://"+c.root+"/")
		})
	}
}

func (w *world) argoReleases(strategy, url string) {
	w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	w.apply(fmt.Sprintf(versioned, "argoproj.io/v1alpha1\nkind: Rollout", strategy), fmt.Sprintf(meshService, "web"), fmt.Sprintf(meshService, "web-stable"), fmt.Sprintf(meshService, "web-canary"))
	w.callers("front")
	w.argos("Healthy")
	w.eventually(func() error {
		if got := w.call("front", "get", url); !strings.HasPrefix(got, "200 v1/web-") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	ended := w.record("front", url)
	time.Sleep(afterChange + 2*beforeChange)

	const rollout = "rollouts.argoproj.io"
	w.releaseVersioned(rollout, "v2")
	w.argos("Paused")
	w.argos("Healthy")
	time.Sleep(afterChange + 2*beforeChange)

	w.releaseVersioned(rollout, "v3")
	w.argos("Paused") // for 10 s
	time.Sleep(afterChange + 4*beforeChange)
	w.kubectl("", "patch", rollout, "web", "--subresource=status", "--type=merge", `--patch={"status":{"abort":true}}`) // as its kubectl plugin does
	w.argos("Degraded")
	time.Sleep(afterChange + 4*beforeChange)

	r := ended()
	r.check(w.T, func(a recordedAnswer) bool {
		if len(r.weights) > 4 && a.at.After(r.weights[4].at) { // v2 is stable
			return a.says("v3")
		}
		return a.says("v2")
	}, 0, 7, 50, 100, 0, 7, 0)
	if len(r.weights) != 7 {
		return // which is an error already
	}
	back := 0
	for _, a := range r.answers {
		if a.at.After(r.weights[3].at.Add(afterChange)) && a.says("v1") {
			if back++; back == 1 {
				w.Errorf("%s: %s, although v2 had all requests since %s", a.at, a.text, r.weights[3].at)
			}
		}
	}
	if back > 0 {
		w.Errorf("%d requests went back to v1", back)
	}
}

// argos waits until Argo's Rollout is in a phase.
func (w *world) argos(phase string) {
	w.Helper()
	w.kubectl("", "wait", "--for=jsonpath={.status.phase}="+phase, "rollouts.argoproj.io/web", "--timeout=3m")
}
