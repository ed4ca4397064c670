package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// flagger runs Flagger as it is released, with its own definitions and permissions.
const flagger = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: flagger, namespace: default}
spec:
  selector: {matchLabels: {app: flagger}}
  template:
    metadata: {labels: {app: flagger}}
    spec:
      serviceAccountName: flagger
      containers:
      - name: flagger
        image: flagger:dev
        args: [-log-level=info, -mesh-provider=smi:v1alpha1]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
        securityContext: {readOnlyRootFilesystem: true, runAsUser: 10001}
`

// flaggersCanary releases the Deployment "web" in two steps, as long as what the webhook asks answers.
const flaggersCanary = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: web}
spec:
  provider: %s
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  service: {port: 80, targetPort: 8080}
  analysis:
    interval: 10s
    threshold: 2
    stepWeights: [7, 50]
    webhooks: [{name: accepted, url: "http://judge.%s/", timeout: 5s}]
`

// TestFlaggersCanariesOfMeshedPods has Flagger, by each of its providers that write TrafficSplits, take over a workload that is in use, release a
// version of it, and roll the next one back. A client of the mesh notices nothing but the versions.
func TestFlaggersCanariesOfMeshedPods(t *testing.T) {
	needsDriver(t, "flagger")
	w := newWorldNamed(t, "e2e-flagger")
	manifests := filepath.Join(w.source("flagger"), "artifacts/flagger")
	w.kubectl("", "apply", "--server-side", "-f", filepath.Join(manifests, "crd.yaml"))
	w.established("canaries.flagger.app")
	for _, text := range []string{filepath.Join(manifests, "account.yaml"), "-"} {
		w.kubectl(flagger, "--namespace=default", "apply", "-f", text)
	}
	w.kubectl("", "--namespace=default", "rollout", "status", "deployment/flagger", fmt.Sprintf("--timeout=%s", patience))
	t.Cleanup(func() { w.logs("--namespace=default deployment/flagger") })
	for _, provider := range []string{"smi:v1alpha1", "smi:v1alpha2", "smi:v1alpha3", "linkerd", "osm"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			newWorldNamed(t, "e2e-flagger-"+strings.ReplaceAll(provider, ":", "-")).flaggerReleases(provider)
		})
	}
}

func (w *world) flaggerReleases(provider string) {
	w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	w.apply(fmt.Sprintf(versioned, "apps/v1\nkind: Deployment", "  progressDeadlineSeconds: 120"), fmt.Sprintf(meshService, "web"))
	w.callers("front", "judge")
	w.kubectl("", "rollout", "status", "deployment/web", fmt.Sprintf("--timeout=%s", patience))
	w.eventually(func() error {
		if got := w.call("front", "get", "http://web/"); !strings.HasPrefix(got, "200 v1/web-") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	ended := w.record("front", "http://web/")
	w.apply(fmt.Sprintf(flaggersCanary, provider, w.namespace))
	w.flaggers("Initialized")
	time.Sleep(afterChange + beforeChange) // for a hundred requests by these weights, as below

	w.releaseVersioned("deployment", "v2")
	w.flaggers("Progressing")
	w.flaggers("Promoting")
	w.flaggers("Succeeded")
	promoted := time.Now()
	time.Sleep(afterChange + beforeChange)

	// v3 is not accepted. The judge is first asked when requests go to it.
	w.kubectl("", "scale", "deployment/judge", "--replicas=0")
	w.kubectl("", "wait", "--for=delete", "pods", "--selector=app=judge", fmt.Sprintf("--timeout=%s", patience))
	w.releaseVersioned("deployment", "v3")
	w.flaggers("Progressing")
	w.flaggers("Failed")
	rolledBack := time.Now()
	time.Sleep(afterChange + 4*beforeChange)

	r := ended()
	r.check(w.T, func(a recordedAnswer) bool { return !strings.Contains(a.text, "/web-primary-") }, 0, 7, 50, 0, 7, 0)
	for _, a := range r.answers {
		if a.at.After(promoted) && a.says("v1") || a.at.After(rolledBack.Add(afterChange)) && !a.says("v2") {
			w.Errorf("%s: %s; v2 was promoted at %s, v3 was rolled back until %s", a.at, a.text, promoted, rolledBack)
			break
		}
	}
	if got := w.kubectl("", "get", "trafficsplits.split.smi-spec.io", "web", `--output=jsonpath={range .status.conditions[*]}{.type}={.status} {end}`); !strings.Contains(got, "Accepted=True") || !strings.Contains(got, "ResolvedRefs=True") {
		w.Errorf("the split has the conditions %s", got)
	}
}

// flaggers waits until the Canary is in a phase.
func (w *world) flaggers(phase string) {
	w.Helper()
	w.kubectl("", "wait", "--for=jsonpath={.status.phase}="+phase, "canaries.flagger.app/web", "--timeout=4m")
}
