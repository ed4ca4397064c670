package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

func TestTrafficIsSplitAndMirrored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.toys("v1", "v2", "copy")
	url := w.gateway("edge")
	w.apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}]
  rules:
  - backendRefs:
    - {name: v1, port: 80, weight: 3}
    - {name: v2, port: 80, weight: 1}
    filters:
    - type: RequestMirror
      requestMirror: {backendRef: {name: copy, port: 80}}
`)
	w.condition("httproute/shop", ".status.parents[*]", "Accepted", "True")
	w.eventually(func() error { return served(w, url+"/warm") })
	if image := w.kubectl("", "get", "pods", "--selector=gateway.networking.k8s.io/gateway-name=edge",
		"--output=jsonpath={.items[*].spec.containers[*].image}"); image != install.ProxyImage {
		t.Errorf("the proxy is of image %q, want %q", image, install.ProxyImage)
	}

	const n = 40
	counts := make(map[string]int)
	for i := range n {
		a, err := get(t.Context(), fmt.Sprintf("%s/order?number=%d", url, i))
		if err != nil || a.Status != http.StatusOK {
			t.Fatalf("request %d: %+v, %v", i, a, err)
		}
		counts[a.Service]++
	}
	// Weights are exact in each block of four; the first and the last may be cut.
	if got := counts["v1"]; got < 27 || got > 33 || counts["v1"]+counts["v2"] != n {
		t.Errorf("%v of %d requests, want 30 to v1 and 10 to v2", counts, n)
	}
	w.eventually(func() error {
		log := w.kubectl("", "logs", "deployment/copy")
		for i := range n {
			if line := fmt.Sprintf("/order?number=%d\n", i); strings.Count(log, line) != 1 {
				return fmt.Errorf("%d copies of request %d", strings.Count(log, line), i)
			}
		}
		return nil
	})
}

// served is nil when a request is.
func served(w *world, url string) error {
	a, err := get(w.Context(), url)
	if err == nil && a.Status != http.StatusOK {
		err = fmt.Errorf("%s: status %d", url, a.Status)
	}
	return err
}

const shop = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}]
  rules:
  - backendRefs: [{name: %s, port: 80}]
`

func TestARevokedGrantStopsTraffic(t *testing.T) {
	if testing.Short() {
		t.Skip("test/cluster/kube shows it with an API server")
	}
	t.Parallel()
	w, other := newWorld(t), newWorldNamed(t, "e2e-elsewhere")
	other.toys("v1")
	grant := fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: routes}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: %s}]
  to: [{group: "", kind: Service}]
`, w.namespace)
	other.apply(grant)
	url := w.gateway("edge")
	w.apply(fmt.Sprintf(shop, "v1, namespace: "+other.namespace))
	w.answers(url, http.StatusOK, "v1")

	revoked := time.Now()
	other.kubectl("", "delete", "--wait=false", "referencegrant", "routes")
	w.answers(url, http.StatusInternalServerError, "")
	t.Logf("traffic had stopped %v after the grant began to be deleted, kubectl's own time included", time.Since(revoked).Round(time.Millisecond))
	w.condition("httproute/shop", ".status.parents[*]", "ResolvedRefs", "False")
	other.apply(grant)
	w.answers(url, http.StatusOK, "v1")
	w.condition("httproute/shop", ".status.parents[*]", "ResolvedRefs", "True")
}

func TestABrokenObjectLeavesTheGoodOnesAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("test/cluster/agreement and the statuses of the conformance suite show it")
	}
	t.Parallel()
	w := newWorld(t)
	w.toys("v1")
	w.apply(fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: nonsense}
type: kubernetes.io/tls
stringData: {tls.crt: nonsense, tls.key: nonsense}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: nonsense}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: broken}
spec:
  gatewayClassName: weir
  infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: missing}}
  listeners:
  - {name: http, port: 80, protocol: HTTP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: missing}
spec:
  parentRefs: [{name: edge}]
  rules:
  - matches: [{path: {value: /missing}}]
    backendRefs: [{name: missing, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: regex}
spec:
  parentRefs: [{name: edge}]
  rules:
  - matches: [{path: {type: RegularExpression, value: "/regex("}}]
    backendRefs: [{name: v1, port: 80}]
---%s`, fmt.Sprintf(shop, "v1")))
	url := w.programmed("edge")
	w.answers(url, http.StatusOK, "v1")
	w.answers(url+"/missing", http.StatusInternalServerError, "")
	w.condition("httproute/missing", ".status.parents[*]", "ResolvedRefs", "False")
	w.condition("httproute/shop", ".status.parents[*]", "ResolvedRefs", "True")
	w.condition("gateway/edge", `.status.listeners[?(@.name=="https")]`, "ResolvedRefs", "False")
	w.condition("gateway/broken", ".status", "Accepted", "False")
	// What comes later is still taken.
	w.toys("v2")
	w.apply(fmt.Sprintf(shop, "v2"))
	w.answers(url, http.StatusOK, "v2")
}
