package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// callers are Deployments of one pod each, which serve several protocols and call others; a Service leads to each.
func (w *world) callers(names ...string) {
	w.Helper()
	for _, name := range names {
		name, annotations, _ := strings.Cut(name, " ")
		w.apply(fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {%[2]s}}
    spec:
      serviceAccountName: %[1]s
      terminationGracePeriodSeconds: 5
      containers:
      - name: caller
        image: caller:dev
        args: [serve, %[1]s]
        ports: [{containerPort: 8080, name: web}]
        readinessProbe: {httpGet: {path: /, port: web}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 12}
        livenessProbe: {tcpSocket: {port: 9000}, timeoutSeconds: 10}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec:
  selector: {app: %[1]s}
  ports: [{name: http, port: 80, targetPort: web}, {name: greet, port: 9000}, {name: tcp-lines, port: 9001}]
`, name, annotations))
	}
	for _, name := range names {
		name, _, _ := strings.Cut(name, " ")
		w.kubectl("", "rollout", "status", "deployment/"+name, fmt.Sprintf("--timeout=%s", patience))
	}
}

// call executes a client in a pod of a Deployment and returns what it prints.
func (w *world) call(from string, args ...string) string {
	w.Helper()
	text := w.kubectl("", append([]string{"exec", "deployment/" + from, "--container=caller", "--", "/caller"}, args...)...)
	return strings.TrimSpace(text)
}

// TestMeshedPods has pods with sidecars, one of which serves no plain text, and one without: each reaches what it may, by
// Services and by addresses, with requests and connections of which the server or the client speaks first.
func TestMeshedPods(t *testing.T) {
	w := newWorldNamed(t, "e2e-mesh")
	w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	w.callers("web", "pay weirmesh.github.io/plain-text: refused")
	out := newWorldNamed(t, "e2e-mesh-outside")
	out.callers("old")
	for _, name := range []string{"web", "pay"} {
		got := w.kubectl("", "get", "pods", "--selector=app="+name, "--output=jsonpath={.items[0].spec.initContainers[*].name}")
		if got != "weir-redirect weir-sidecar" {
			t.Errorf("%s has the init containers %q", name, got)
		}
	}
	ip := func(w *world, name string) string {
		return w.kubectl("", "get", "pods", "--selector=app="+name, "--output=jsonpath={.items[0].status.podIP}")
	}
	for _, c := range []struct {
		in         *world
		from       string
		args, want string // want is the beginning
	}{
		{w, "web", "get http://pay/", "200 pay"},
		{w, "web", "get http://pay." + w.namespace + ".svc.cluster.local/", "200 pay"},
		{w, "web", "get http://" + ip(w, "pay") + ":8080/", "200 pay"},
		{w, "web", "get http://web/", "200 web"},
		{w, "web", "get http://" + ip(w, "web") + ":8080/", "200 web"},
		{w, "web", "get http://old.e2e-mesh-outside/", "200 old"},
		{w, "web", "get http://" + ip(out, "old") + ":8080/", "200 old"},
		{w, "web", "say pay:9000 ", "hello from pay"},
		{w, "web", "say pay:9001 x", "pay says x"},
		{w, "web", "say " + ip(w, "pay") + ":9000 ", "hello from pay"},
		{w, "web", "say " + ip(w, "pay") + ":9001 x", "pay says x"},
		{w, "web", "say web:9000 ", "hello from web"},
		{w, "web", "say old.e2e-mesh-outside:9000 ", "hello from old"},
		{out, "old", "get http://web.e2e-mesh/", "200 web"},
		{out, "old", "say web.e2e-mesh:9000 ", "hello from web"},
		{out, "old", "say web.e2e-mesh:9001 x", "web says x"},
		{out, "old", "get http://pay.e2e-mesh/", "error"},
		{out, "old", "get http://" + ip(w, "pay") + ":8080/", "error"},
	} {
		c.in.eventually(func() error {
			if got := c.in.call(c.from, strings.Split(c.args, " ")...); !strings.HasPrefix(got, c.want) {
				return fmt.Errorf("%s: %s: %q, want %q", c.from, c.args, got, c.want)
			}
			return nil
		})
	}
	// A Gateway of a namespace without sidecars has an identity, too.
	w.apply(fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: routes}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: %s}]
  to: [{group: "", kind: Service}]
`, out.namespace))
	url := out.gateway("edge")
	out.apply(fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: pay}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: pay, namespace: %s, port: 80}]}]
`, w.namespace))
	out.eventually(func() error {
		if a, err := get(out.Context(), url); a.Status != http.StatusOK { // its answer is no toy's
			return fmt.Errorf("the Gateway answers %d, %v", a.Status, err)
		}
		return nil
	})
}
