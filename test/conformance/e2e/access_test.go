package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// inpods are Deployments of one pod each of the two ends of package test/access, and Services: at 8080 for HTTP/1.1, at 8082
// for HTTP/2.
func (w *world) inpods(names ...string) {
	w.Helper()
	for _, name := range names {
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
    metadata: {labels: {app: %[1]s}}
    spec:
      serviceAccountName: %[1]s
      terminationGracePeriodSeconds: 5
      containers: [{name: inpod, image: "inpod:dev", args: [serve], ports: [{containerPort: 8080}, {containerPort: 8082}]}]
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {selector: {app: %[1]s}, ports: [{name: http, port: 8080}, {name: h2c, port: 8082}]}
`, name))
	}
	w.rolledOut(names...)
}

// inpod executes it in a pod of a Deployment and returns what it prints.
func (w *world) inpod(name string, args ...string) string {
	w.Helper()
	return w.kubectl("", append([]string{"exec", "deployment/" + name, "--container=inpod", "--", "/inpod"}, args...)...)
}

// TestNoWayLeadsAroundARuleInPods sends the ways around the rules of package test/access from one pod to another, by way of
// both sidecars, and from a pod without one: over HTTP/1.1 and HTTP/2, to an application of either. Whatever reaches it must
// be permitted; of a client without an identity, nothing is.
func TestNoWayLeadsAroundARuleInPods(t *testing.T) {
	t.Parallel()
	w := newWorldNamed(t, "e2e-mesh-access")
	w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	w.inpods("cart", "web")
	out := newWorldNamed(t, "e2e-mesh-access-outside")
	out.inpods("web")
	w.apply(`
apiVersion: access.smi-spec.io/v1alpha4
kind: TrafficTarget
metadata: {name: web}
spec:
  destination: {kind: ServiceAccount, name: cart}
  rules: [{kind: HTTPRouteGroup, name: rules}, {kind: TCPRoute, name: main}]
  sources: [{kind: ServiceAccount, name: web}]
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {name: rules}
spec:
  matches:
  - {name: public, pathRegex: '/public/[a-z0-9]+$', methods: [GET]}
  - {name: upload, pathRegex: '/upload$', methods: [POST]}
  - {name: team, pathRegex: /team/, methods: [GET], headers: [{x-team: a|b}]}
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: TCPRoute
metadata: {name: main}
spec: {matches: {ports: [8080, 8082]}}
`)
	w.eventually(func() error {
		for path, want := range map[string]string{"8080/public/a": "200", "8080/admin": "403", "8082/public/a": "200", "8082/admin": "403"} {
			if got := w.inpod("web", "get", "http://cart:"+path); !strings.HasPrefix(got, want) {
				return fmt.Errorf("%s: %q, want %s", path, got, want)
			}
		}
		return nil
	})
	if got := w.inpod("web", "get", "http://web:8080/admin"); !strings.HasPrefix(got, "200") {
		t.Errorf("a workload without rules: %q", got)
	}
	const verdict = "http://127.0.0.1:8090/"
	w.inpod("web", "get", verdict) // what came until now
	w.inpod("cart", "get", verdict)
	attacks := []struct {
		from    *world
		port    string
		reaches bool
	}{{w, "8080", true}, {out, "8080", false}, {w, "8082", true}, {out, "8082", false}}
	if testing.Short() {
		attacks = attacks[:2] // the application of HTTP/2 is left to the full size
	}
	for _, c := range attacks {
		began := time.Now()
		attack := c.from.inpod("web", "attack", "cart."+w.namespace+":"+c.port)
		said := w.inpod("cart", "get", verdict)
		var sent, reached int
		if _, err := fmt.Sscanf(attack, "sent %d", &sent); err != nil {
			t.Errorf("the attack of %s:%s says\n%s", c.from.namespace, c.port, attack)
		}
		if _, err := fmt.Sscanf(said, "200 reached %d", &reached); err != nil {
			t.Errorf("from %s, the application at %s got what is not permitted:\n%s", c.from.namespace, c.port, said)
		}
		if sent < 1500 || (reached > 100) != c.reaches || !c.reaches && reached > 0 {
			t.Errorf("from %s, %d ways were sent, and %d requests reached the application at %s", c.from.namespace, sent, reached, c.port)
		}
		t.Logf("from %s: %d ways, of which %d requests reached the application at %s, in %v", c.from.namespace, sent, reached, c.port, time.Since(began).Round(time.Millisecond))
	}
}

// TestPodsJudgeAGatewaysMirrorsAndConnections has a Gateway send to pods with policies, one of which does not name it: that one
// gets neither its mirrored requests nor its connections, and the requests that are mirrored are answered as before.
func TestPodsJudgeAGatewaysMirrorsAndConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	w := newWorldNamed(t, "e2e-mesh-edge")
	w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	w.callers("main", "shadow")
	const policy = `
apiVersion: access.smi-spec.io/v1alpha4
kind: TrafficTarget
metadata: {name: %[1]s}
spec:
  destination: {kind: ServiceAccount, name: %[1]s}
  rules: [{kind: HTTPRouteGroup, name: all}]
  sources: [{kind: ServiceAccount, name: %[2]s}]
---
apiVersion: access.smi-spec.io/v1alpha4
kind: TrafficTarget
metadata: {name: %[1]s-connections}
spec:
  destination: {kind: ServiceAccount, name: %[1]s}
  rules: [{kind: TCPRoute, name: all}]
  sources: [{kind: ServiceAccount, name: %[2]s}]
`
	w.apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: main, port: 9001, protocol: TCP}
  - {name: shadow, port: 9002, protocol: TCP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: main}
spec:
  parentRefs: [{name: edge, sectionName: http}]
  rules:
  - filters: [{type: RequestMirror, requestMirror: {backendRef: {name: shadow, port: 80}}}]
    backendRefs: [{name: main, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: main}
spec:
  parentRefs: [{name: edge, sectionName: main}]
  rules: [{backendRefs: [{name: main, port: 9001}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: shadow}
spec:
  parentRefs: [{name: edge, sectionName: shadow}]
  rules: [{backendRefs: [{name: shadow, port: 9001}]}]
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {name: all}
spec: {matches: [{name: all, pathRegex: .*, methods: ["*"]}]}
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: TCPRoute
metadata: {name: all}
spec: {}
`, fmt.Sprintf(policy, "main", "edge-weir"), fmt.Sprintf(policy, "shadow", "main"))
	url := w.programmed("edge")
	address := strings.TrimPrefix(url, "http://")
	got := func(name string) (n int) { // how many requests its application got that came by the Gateway
		text := w.call(name, "get", "http://127.0.0.1:8080/counted")
		status, count, _ := strings.Cut(text, " ")
		n, err := strconv.Atoi(count)
		if err != nil || status != "200" {
			t.Fatalf("%s has counted %q", name, text)
		}
		return n
	}
	w.eventually(func() error {
		if a, err := get(w.Context(), url); a.Status != http.StatusOK { // its answer is no toy's
			return fmt.Errorf("the Gateway answers %d, %v", a.Status, err)
		}
		if line, err := say(address+":9001", "x"); line != "main says x" {
			return fmt.Errorf("the Gateway's connection: %q, %v", line, err)
		}
		return nil
	})
	// The policy of shadow counts by now if that of main does: both are of one configuration.
	const n = 200
	before, main := got("shadow"), got("main")
	began := time.Now()
	for range n {
		if a, err := get(w.Context(), url+"/count"); a.Status != http.StatusOK {
			t.Fatalf("while its mirror is refused, a request is answered %d, %v", a.Status, err)
		}
	}
	took := time.Since(began)
	if line, err := say(address+":9002", "x"); line != "" {
		t.Errorf("a connection that the pod's policy refuses: %q, %v", line, err)
	}
	if reached := got("main") - main; reached != n {
		t.Errorf("%d of %d requests reached main", reached, n)
	}
	if reached := got("shadow") - before; reached != 0 {
		t.Errorf("%d of %d requests reached shadow, which refuses them", reached, n)
	}
	w.apply(fmt.Sprintf(policy, "shadow", "edge-weir"))
	w.eventually(func() error {
		if line, err := say(address+":9002", "x"); line != "shadow says x" {
			return fmt.Errorf("a connection that is permitted now: %q, %v", line, err)
		}
		before := got("shadow")
		if a, err := get(w.Context(), url+"/count"); a.Status != http.StatusOK {
			return fmt.Errorf("status %d, %v", a.Status, err)
		}
		time.Sleep(100 * time.Millisecond) // nobody waits for a mirrored request
		if got("shadow") == before {
			return fmt.Errorf("no mirrored request reaches shadow, which permits them now")
		}
		return nil
	})
	t.Logf("%d requests with a mirror that is refused took %v", n, took.Round(time.Millisecond))
}

// say is what a server answers to a line over a connection of its own, without the end of the line.
func say(address, text string) (string, error) {
	c, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprintln(c, text); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}
