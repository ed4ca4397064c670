package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weirmesh/weir/test/conformance/install"
)

// rounds is how often a test replaces what it is about.
func rounds() int {
	if testing.Short() {
		return 1
	}
	return 20
}

// newSplitShop is a world whose Gateway "edge", of so many proxies, leads to a TrafficSplit over v1, three pods, and v2, one pod.
// The pods end as abruptly as they can: they have no preStop hook, and do not finish what they were asked.
func newSplitShop(t *testing.T, proxies int) (w *world, url string) {
	t.Helper()
	w = newWorld(t)
	w.toys("v1", "v2")
	w.kubectl("", "scale", "deployment/v1", "--replicas=3")
	w.rolledOut("v1")
	w.apply(fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: edge}
data:
  parameters.yaml: |
    replicas: %d
    accessLog: stdout
    accessLogOptions: {reasons: [any]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: %s
  infrastructure:
    parametersRef: {group: "", kind: ConfigMap, name: edge}
  listeners:
  - {name: http, port: 80, protocol: HTTP}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  selector: {app: v1}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: shop}
spec:
  service: shop
  backends:
  - {service: v1, weight: 50}
  - {service: v2, weight: 50}
---%s`, proxies, install.Class, fmt.Sprintf(shop, "shop")))
	url = w.programmed("edge")
	w.rolledOut("edge-weir")
	w.answers(url, http.StatusOK, "v1")
	w.answers(url, http.StatusOK, "v2")
	return w, url
}

// rolledOut waits until Deployments are as they are to be.
func (w *world) rolledOut(deployments ...string) {
	w.Helper()
	for _, name := range deployments {
		w.kubectl("", "rollout", "status", "deployment/"+name, fmt.Sprintf("--timeout=%s", patience))
	}
}

// toldReasons logs what the proxies' access logs say of requests that failed.
func (w *world) toldReasons() {
	w.Helper()
	for line := range strings.Lines(w.kubectl("", "logs", "--selector=gateway.networking.k8s.io/gateway-name=edge", "--tail=-1")) {
		if strings.Contains(line, `"reason":`) {
			w.Log(strings.TrimSpace(line))
		}
	}
}

func TestReplacingBackendsFailsNoRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("releases replace them under load")
	}
	t.Parallel()
	w, url := newSplitShop(t, 1)
	l := startSteady(t, url, 0)
	l.more(steadyRate)
	for range rounds() {
		w.kubectl("", "rollout", "restart", "deployment/v1", "deployment/v2")
		w.rolledOut("v1", "v2")
		l.more(steadyRate)
	}
	l.end(t)
	w.toldReasons()
}

// TestReplacingProxiesFailsNoRequest deletes one of two proxies, the older one, and all controllers in the same moment. No connect may
// be refused, either.
func TestReplacingProxiesFailsNoRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("a rolling update of the proxies shows it")
	}
	w, url := newSplitShop(t, 2)
	l := startSteady(t, url, 0)
	replaceProxies(w, l, rounds())
	l.end(t)
	w.toldReasons()
}

// TestReplacingTheOnlyProxyFailsNoRequest deletes the only proxy and all controllers in the same moment. Until the next proxy is ready
// the one that ends serves. If the machine is so slow that this takes longer than the drain's delay, connects are refused in between,
// and clients try again. What was sent is answered.
func TestReplacingTheOnlyProxyFailsNoRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	w, url := newSplitShop(t, 1)
	l := startSteady(t, url, patience)
	replaceProxies(w, l, rounds())
	l.end(t)
	w.toldReasons()
}

func replaceProxies(w *world, l *steady, rounds int) {
	w.Helper()
	l.more(steadyRate)
	before := w.proxies()
	for range rounds {
		w.kubectl("", "--namespace", install.Namespace, "delete", "pods", "--all", "--wait=false")
		w.kubectl("", "delete", "pod", before[0], "--wait=false")
		w.kubectl("", "wait", "--for=delete", "pod/"+before[0], fmt.Sprintf("--timeout=%s", patience))
		w.rolledOut("edge-weir")
		w.kubectl("", "--namespace", install.Namespace, "rollout", "status", "deployment/weir-controller", fmt.Sprintf("--timeout=%s", patience))
		l.more(steadyRate)
		now := w.proxies()
		if len(now) != len(before) || now[0] == before[0] {
			w.Fatalf("the proxies are %q, were %q", now, before)
		}
		before = now
	}
}

// proxies are the names of the Gateway's pods that have not been told to end, the oldest first.
func (w *world) proxies() (names []string) {
	w.Helper()
	list := w.kubectl("", "get", "pods", "--selector=gateway.networking.k8s.io/gateway-name=edge", "--sort-by=.metadata.creationTimestamp",
		`--output=jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{"\n"}{end}`)
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) == 1 {
			names = append(names, fields[0])
		}
	}
	return names
}
