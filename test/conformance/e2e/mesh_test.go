package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

// callers are Deployments of one pod each, which serve several protocols and call others; a Service leads to each. Each is
// a name, and what pods have beside it as annotations; "brisk" ends as soon as it is told to, others after some seconds.
func (w *world) callers(names ...string) {
	w.Helper()
	for _, name := range names {
		name, annotations, _ := strings.Cut(name, " ")
		args := name
		if name == "brisk" {
			args += ", 0s"
		}
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
      terminationGracePeriodSeconds: 15
      containers:
      - name: caller
        image: caller:dev
        args: [serve, %[3]s]
        ports: [{containerPort: 8080, name: web}]
        readinessProbe: {httpGet: {path: /, port: web}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 12}
        livenessProbe: {tcpSocket: {port: 9000}, timeoutSeconds: 10}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec:
  selector: {app: %[1]s}
  ports: [{name: http, port: 80, targetPort: web}, {name: greet, port: 9000}, {name: tcp-lines, port: 9001}, {name: grpc, port: 9002}]
`, name, annotations, args))
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
	t.Parallel()
	w := newWorldNamed(t, "e2e-mesh")
	w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	w.callers("web", "pay weirmesh.github.io/plain-text: refused, weirmesh.github.io/access-log: json")
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
	w.apply(fmt.Sprintf(once, "pay")) // a Job with a sidecar, which is to end with its container
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
	w.eventually(func() error {
		if log, client := w.kubectl("", "logs", "deployment/pay", "--container=weir-sidecar"), `"source":"spiffe://cluster.local/ns/`+w.namespace+`/sa/web"`; !strings.Contains(log, client) {
			return fmt.Errorf("the access log has no %s: %s", client, log)
		}
		return nil
	})
	w.completes("pay")
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

// load has a workload send requests to another until they are asked for: what it returns ends them. Each must be answered, but
// those that it also returns: POSTs that met the end of a connection, of which nobody knows whether they arrived.
func (w *world) load(from, to string) (end func() (answered, unknown int)) {
	return w.loadOf(from, "http://"+to+"/", func(answer string) bool { return answer == "200 "+to })
}

// loadOf is load of a URL, with what good answers are.
func (w *world) loadOf(from, url string, good func(answer string) bool) (end func() (answered, unknown int)) {
	w.Helper()
	var said, wrong bytes.Buffer
	cmd := exec.CommandContext(w.Context(), "kubectl", "--namespace", w.namespace, "exec", "--stdin", "deployment/"+from, "--container=caller", "--", "/caller", "load", url)
	cmd.Stdout, cmd.Stderr = &said, &wrong
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	return func() (answered, unknown int) {
		w.Helper()
		if err := errors.Join(input.Close(), cmd.Wait()); err != nil {
			w.Errorf("the load: %v: %s", err, &wrong)
		}
		for line := range strings.Lines(said.String()) {
			line = strings.TrimSpace(line)
			number, answer, _ := strings.Cut(line, " ")
			if n, err := strconv.Atoi(number); err == nil && good(answer) {
				answered += n
			} else if err == nil && strings.Contains(line, " POST 502 backend_reset: ") {
				unknown += n
			} else {
				w.Errorf("under load: %s", line)
			}
		}
		return answered, unknown
	}
}

// restart replaces the pods of a Deployment.
func (w *world) restart(namespace, name string) {
	w.Helper()
	for _, args := range [][]string{{"restart"}, {"status", fmt.Sprintf("--timeout=%s", patience)}} {
		if _, err := install.Kubectl(w.Context(), "", append([]string{"--namespace", namespace, "rollout", args[0], "deployment/" + name}, args[1:]...)...); err != nil {
			w.Error(err)
		}
	}
}

// TestMeshedPodsAreReplaced replaces a hundred pods under load, whose application ends at once when it is told to: its sidecar
// stands alone for a moment, while clients still take it for an endpoint.
func TestMeshedPodsAreReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("takes four minutes")
	}
	const pods, replicas = 100, 10
	w := newWorldNamed(t, "e2e-mesh-replaced")
	w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	w.callers("web", "brisk")
	w.kubectl("", "scale", "deployment/brisk", fmt.Sprintf("--replicas=%d", replicas))
	w.kubectl("", "rollout", "status", "deployment/brisk", fmt.Sprintf("--timeout=%s", patience))
	w.eventually(func() error {
		if got := w.call("web", "get", "http://brisk/"); got != "200 brisk" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	end := w.load("web", "brisk")
	for n := 0; n < pods; n += replicas {
		began := time.Now()
		w.restart(w.namespace, "brisk")
		t.Logf("%d pods replaced in %v", replicas, time.Since(began).Round(100*time.Millisecond))
	}
	total, lost := end()
	t.Logf("%d requests were answered, %d POSTs met the end of a connection", total, lost)
	if total < 5000 || lost > pods/10 { // at most one for each ten applications that end
		t.Errorf("%d requests were answered, %d POSTs met the end of a connection", total, lost)
	}
}

// TestTrafficOfMeshedPods: what sidecars count of requests is exact at both ends, and at that end of an edge which has a sidecar
// if the other has none; whichever replica is asked, and by weir as by the API server. A tap shows who asked whom.
func TestTrafficOfMeshedPods(t *testing.T) {
	t.Parallel()
	w := newWorldNamed(t, "e2e-mesh-traffic")
	w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	w.callers("web", "pay weirmesh.github.io/plain-text: refused")
	w.apply(strings.ReplaceAll(bare, "NAME", "old"))
	w.kubectl("", "rollout", "status", "deployment/old", fmt.Sprintf("--timeout=%s", patience))
	weir := os.Getenv("WEIR_PROGRAM") // the one of the image
	run := func(args ...string) string {
		t.Helper()
		var out, wrong bytes.Buffer
		cmd := exec.CommandContext(t.Context(), weir, args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "WEIR_KUBECONFIG="+os.Getenv("KUBECONFIG")), &out, &wrong // weir traffic asks a run otherwise
		if err := cmd.Run(); err != nil {
			t.Fatalf("weir %s: %v: %s%s", strings.Join(args, " "), err, &out, &wrong)
		}
		return out.String()
	}
	// Each request counts, so none is sent before all are: a sidecar is ready only once it serves.
	const n = 40
	get := func(from, to string) {
		t.Helper()
		want := strings.TrimSpace(strings.Repeat("200 "+to+"\n", n))
		if got := w.call(from, "get", "http://"+to+"/", fmt.Sprint(n)); got != want {
			t.Fatalf("%s asked %s: %q", from, to, got)
		}
	}
	get("web", "pay")
	get("web", "old")
	get("old", "web")
	in := "namespaces/" + w.namespace + "/"
	once := [2]string{fmt.Sprint(n), "0"}
	began := time.Now()
	w.eventually(func() error {
		for path, want := range map[string][2]string{"deployments/pay": once, "deployments/web": once, "deployments/old": once} {
			m, err := w.metrics(in + path + "?window=1m")
			if got := m.counts(); err != nil || got != want {
				return fmt.Errorf("%s has %v, want %v, %w", path, got, want, err)
			}
		}
		return nil
	})
	t.Logf("known %v after the last request", time.Since(began).Round(time.Millisecond))
	for name, want := range map[string][]string{"web": {"from old", "to old", "to pay"}, "pay": {"from web"}, "old": {"from web", "to web"}} {
		m, err := w.metrics(in + "deployments/" + name + "/edges?window=1m")
		var got []string
		for _, item := range m.Items {
			got = append(got, item.Edge.Direction+" "+item.Edge.Resource.Name)
			if item.counts() != once || item.Edge.Resource.Kind != "Deployment" {
				t.Errorf("%s %+v has %v, want %v", name, item.Edge, item.counts(), once)
			}
		}
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s has the edges %q, want %q, %v", name, got, want, err)
		}
	}
	// The pod of a client is what its certificate says.
	m, err := w.metrics(in + "deployments/pay/edges?window=1m&kind=pods")
	pod := w.kubectl("", "get", "pods", "--selector=app=web", "--output=jsonpath={.items[*].metadata.name}")
	if err != nil || len(m.Items) != 1 || m.Items[0].Edge.Resource.Name != pod || m.Items[0].counts() != once {
		t.Errorf("pay is asked by %+v, want %s, %v", m.Items, pod, err)
	}
	w.replicasAgree(in+"deployments/pay?window=1m", once)
	if m, err := w.metrics(in[:len(in)-1] + "?window=1m"); err != nil || m.counts() != [2]string{fmt.Sprint(3 * n), "0"} {
		t.Errorf("the namespace has %v, want three times %d, %v", m.counts(), n, err)
	}
	if text := run("traffic", "top", "deployments", "--namespace", w.namespace); !strings.Contains(text, "pay") || !strings.Contains(text, "100.00%") {
		t.Errorf("weir traffic top:\n%s", text)
	}
	if text := run("traffic", "topology", "deployments", "--namespace", w.namespace, "-o", "dot"); !strings.Contains(text, "web") || !strings.Contains(text, "pay") || !strings.Contains(text, "->") {
		t.Errorf("weir traffic topology:\n%s", text)
	}

	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			_, _ = install.Kubectl(ctx, "", "--namespace", w.namespace, "exec", "deployment/web", "--container=caller", "--", "/caller", "get", "http://pay/tapped?secret", "5")
		}
	})
	defer asking.Wait()
	defer stop()
	server := w.kubectl("", "get", "pods", "--selector=app=pay", "--output=jsonpath={.items[*].metadata.name}")
	text, err := install.Kubectl(t.Context(), "", "get", "--raw", trafficAPI+"watch/"+in+"deployments/pay/tap?path=/tapped&for=8s")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for line := range strings.Lines(text) {
		var l struct {
			Request *struct {
				At, From struct{ Kind, Namespace, Name string }
				Path     string
				Status   int
			}
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if r := l.Request; r != nil {
			shown++
			if r.At.Name != server || r.From.Kind != "Pod" || r.From.Name != pod || r.Path != "/tapped" || r.Status != http.StatusOK {
				t.Errorf("the tap shows %s, want a request at %s from %s", line, server, pod)
			}
		}
	}
	if shown < 5 {
		t.Errorf("the tap shows %d requests:\n%s", shown, text)
	}
	stop()
	w.knowsSidecars(weir, run, server)
}

// knowsSidecars has weir look at the cluster, with a Gateway in front of the pods: it finds what the controller made of it,
// and nothing wrong.
func (w *world) knowsSidecars(weir string, run func(args ...string) string, pod string) {
	w.Helper()
	url := w.gateway("edge")
	w.apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: pay}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: pay, port: 80}]}]
---
apiVersion: access.smi-spec.io/v1beta1
kind: TrafficRole
metadata: {name: ask}
rules: [{resources: [{kind: Deployment, name: pay}, {kind: Deployment, name: old}], methods: [GET], paths: ["*"]}]
---
apiVersion: access.smi-spec.io/v1beta1
kind: TrafficRoleBinding
metadata: {name: ask}
subjects: [{kind: Deployment, name: web}, {kind: ServiceAccount, name: edge-weir}]
roleRef: {kind: TrafficRole, name: ask}
`)
	w.eventually(func() error {
		if a, err := get(w.Context(), url); a.Status != http.StatusOK {
			return fmt.Errorf("the Gateway answers %d, %v", a.Status, err)
		}
		return nil
	})
	if got := w.kubectl("", "get", "pods", "--selector=gateway.networking.k8s.io/gateway-name=edge", "--output=jsonpath={.items[*].spec.initContainers[*].name}"); got != "" {
		w.Errorf("the Gateway's proxies have the init containers %q", got)
	}
	status := run("status", "--namespace", w.namespace)
	if !regexp.MustCompile(`(?m)^sidecars +(\d+) of (\d+) pods ready, (\d+) connected.*, certificates until 20\d\d-`).MatchString(status) {
		w.Errorf("weir status:\n%s", status)
	}
	// What weir makes of the cluster is what the controller did: no status is stale, no proxy and no sidecar behind.
	w.eventually(func() error {
		text, err := exec.CommandContext(w.Context(), weir, "check", "--namespace", w.namespace, "-o", "json").Output()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			return err
		}
		for _, code := range []string{"WR709", "WR710", "WR711", "WR712", "WR724", "WR1042"} {
			if strings.Contains(string(text), code) {
				return fmt.Errorf("weir check has %s:\n%s", code, text)
			}
		}
		return nil
	})
	var config struct{ Listeners []struct{ Name string } }
	if err := json.Unmarshal([]byte(run("dump", "--pod", w.namespace+"/"+pod)), &config); err != nil || len(config.Listeners) < 3 {
		w.Errorf("weir dump --pod: %+v, %v", config, err)
	}
	for who, want := range map[string]string{"deployment/" + w.namespace + "/web": "allowed", "gateway/" + w.namespace + "/edge": "allowed"} {
		if text := run("explain", "--from", who, "--", "http://pay."+w.namespace); !strings.Contains(text, want) {
			w.Errorf("weir explain --from %s:\n%s", who, text)
		}
	}
	if text := run("access", "--namespace", w.namespace); !strings.Contains(text, "no sidecar") {
		w.Errorf("weir access:\n%s", text)
	}
}

// bare is a Deployment of one pod that is opted out of sidecars, and its Service.
const bare = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME, weirmesh.github.io/inject: disabled}}
    spec:
      containers:
      - name: caller
        image: caller:dev
        args: [serve, NAME]
        ports: [{containerPort: 8080, name: web}]
        readinessProbe: {httpGet: {path: /, port: web}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 12}
---
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec:
  selector: {app: NAME}
  ports: [{name: http, port: 80, targetPort: web}]
`

// TestMeshedPodsLive has one workload call another while the pods of both are replaced and the controller is, and a Job with
// a sidecar that ends. The services go on for some seconds after they were told to end, as Kubernetes wants it of each.
func TestMeshedPodsLive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	w := newWorldNamed(t, "e2e-mesh-life")
	w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	w.callers("web", "pay weirmesh.github.io/plain-text: refused")
	w.eventually(func() error {
		if got := w.call("web", "get", "http://pay/"); got != "200 pay" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	w.apply(fmt.Sprintf(once, "pay"))
	end := w.load("web", "pay")
	w.kubectl("", "scale", "deployment/pay", "--replicas=3")
	w.restart(w.namespace, "pay")
	w.restart(install.Namespace, "weir-controller")
	w.restart(w.namespace, "pay")
	answered, unknown := end()
	if answered < 1000 || unknown > 0 { // these services end their connections when nobody sends requests any more
		t.Errorf("%d requests were answered, %d POSTs met the end of a connection", answered, unknown)
	}
	t.Logf("%d requests were answered", answered)
	w.completes("pay")
}

// once is a Job of one container, which sends three requests to a service and ends.
const once = `
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: caller, image: "caller:dev", args: [get, "http://%s/", "3"]}]
`

// completes waits until that Job has ended as it should, its sidecar with it.
func (w *world) completes(service string) {
	w.Helper()
	w.kubectl("", "wait", "--for=condition=Complete", "job/once", fmt.Sprintf("--timeout=%s", patience))
	if got, want := w.kubectl("", "logs", "job/once", "--container=caller"), strings.Repeat("200 "+service+"\n", 3); got != want {
		w.Errorf("the job printed %q, want %q", got, want)
	}
	sidecar := `{.items[*].spec.initContainers[*].name} {.items[*].status.phase} {.items[*].status.initContainerStatuses[?(@.name=="weir-sidecar")].state.terminated.exitCode}`
	if got := w.kubectl("", "get", "pods", "--selector=job-name=once", "--output=jsonpath="+sidecar); got != "weir-redirect weir-sidecar Succeeded 0" {
		w.Errorf("the job's pod is %q, want one whose sidecar has ended well", got)
	}
}
