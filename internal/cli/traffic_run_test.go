package cli_test

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/cli"
)

// pods are a Deployment "web" whose Pod is the backend blue, and a Deployment "db" without Pods that the Service green
// selects.
func (w *world) pods() string {
	slice := func(name, ref string) string {
		return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, labels: {team: %[1]s}}
spec: {selector: {app: %[1]s}, ports: [{port: 80, targetPort: %[2]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: %[2]s}]
endpoints: [{addresses: [127.0.0.1]%[3]s}]
`, name, w.backends[name], ref)
	}
	return slice("blue", ", targetRef: {kind: Pod, name: web-1}") + slice("green", "") + `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {tier: front}}
spec: {selector: {matchLabels: {app: blue}}, template: {metadata: {labels: {app: blue}}, spec: {containers: [{name: a, image: a}]}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-a, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u, controller: true}]}
spec: {selector: {matchLabels: {app: blue}}, template: {metadata: {labels: {app: blue}}, spec: {containers: [{name: a, image: a}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, labels: {app: blue}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-a, uid: u, controller: true}]}
spec: {containers: [{name: a, image: a}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: db}
spec: {selector: {matchLabels: {app: green}}, template: {metadata: {labels: {app: green}}, spec: {containers: [{name: a, image: a}]}}}
`
}

func (w *world) traffic(args ...string) result {
	w.t.Helper()
	return weir("", append(append([]string{"traffic"}, args...), "--admin", w.weir.Admin())...)
}

func TestTrafficCommandsShowWhatARunMeasured(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("services.yaml", w.pods())
	w.run("--rollout-state", "off")
	for range 40 {
		if got := w.get(); got != "blue" {
			t.Fatal(got)
		}
	}
	for word, name := range map[string]string{"pods": "web-1", "deploy": "web", "svc": "blue", "rs": "web-a"} {
		r := w.traffic("top", word)
		r.want(t, 0, "NAME", "SUCCESS", "RPS", "LATENCY_P99", "100.00%")
		if line := lineOf(r.stdout, name); len(strings.Fields(line)) != 6 || !strings.HasPrefix(line, name+" ") {
			t.Errorf("top %s:\n%s", word, r.stdout)
		}
	}
	if line := lineOf(w.traffic("top", "deployments", "-o", "wide").stdout, "db"); !strings.Contains(line, " - ") || !strings.Contains(line, "0.0rps") {
		t.Errorf("a deployment without traffic: %s", line)
	}
	if line := lineOf(w.traffic("top", "ns", "-o", "wide", "-A").stdout, "default"); len(strings.Fields(line)) != 9 {
		t.Errorf("wide: %s", line)
	}
	w.traffic("top", "deploy", "web").want(t, 0, "100.00%")
	if out := w.traffic("top", "deploy", "-l", "tier=front").stdout; lineOf(out, "web") == "" || lineOf(out, "db") != "" {
		t.Errorf("selected:\n%s", out)
	}
	w.traffic("top", "pods", "-n", "other").want(t, 0, "There are no pods in the namespace other.")

	var list metrics.TrafficMetricsList
	r := w.traffic("top", "pods", "-o", "json", "--window", "1m")
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%v\n%s", err, r.stdout)
	}
	if m, ok := list.Items[0].Measured(); !ok || m.Success != 40 || m.Failure != 0 || m.P99 < m.P50 || m.P50 <= 0 {
		t.Errorf("measured %+v", m)
	}
	w.traffic("top", "pods", "-o", "yaml").want(t, 0, "kind: TrafficMetricsList", "name: success_count", `value: "40"`)

	w.traffic("edges", "deployment/web").want(t, 0, "from", "Gateway default/edge", "100.00%")
	w.traffic("edges", "pod/web-1", "-o", "json").want(t, 0, `"direction": "from"`, `"kind": "Gateway"`)
	w.traffic("edges", "deploy", "db").want(t, 0, "Deployment default/db exchanged no traffic")
	w.traffic("topology", "deployment").want(t, 0, "| gateway/edge |", "rps -", "> | web |")
	w.traffic("topology", "pods", "-o", "dot").want(t, 0, "digraph", "\t", `[label="web-1"]`)
	w.traffic("topology", "pods", "-o", "json").want(t, 0, `"nodes"`, `"from"`)
	if svg := w.traffic("topology", "svc", "-o", "svg").stdout; !strings.Contains(svg, "blue") || xml.Unmarshal([]byte(svg), new(any)) != nil {
		t.Errorf("no SVG:\n%s", svg)
	}

	// curl shows what kubectl would.
	for path, want := range map[string]string{
		"/apis/metrics.smi-spec.io/v1alpha1/namespaces/default/deployments/web/edges": `"unit":"ms"`,
		"/apis/traffic.metrics.k8s.io/v1beta1":                                        `"name":"pods/edges"`,
		"/edges":                                                                      `"name":"web-1"`,
	} {
		if code, body := w.admin(path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// lineOf is the line of a table that begins with a name.
func lineOf(table, name string) string {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == name {
			return line
		}
	}
	return ""
}

func TestMistakesInTrafficCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("services.yaml", w.pods())
	w.run("--rollout-state", "off")
	w.traffic("top").want(t, 2, "stderr:of what? Give a kind: namespaces, nodes, pods")
	w.traffic("top", "routes").want(t, 2, `stderr:"routes" is no kind that has metrics`)
	w.traffic("top", "pods", "a", "b").want(t, 2, `stderr:unexpected argument "b"`)
	w.traffic("top", "pods", "-n", "x", "-A").want(t, 2, "stderr:--all-namespaces and --namespace x")
	w.traffic("top", "pods", "-l", "a in").want(t, 2, `stderr:--selector "a in"`)
	w.traffic("top", "pods", "--window", "0s").want(t, 2, "stderr:--window 0s")
	w.traffic("top", "pods", "--window", "2h").want(t, 1, "stderr:window", "stderr:1h")
	w.traffic("top", "pods", "--sort", "size").want(t, 2, "stderr:--sort")
	w.traffic("top", "pod", "gone").want(t, 1, `stderr:pods.traffic.metrics.k8s.io "gone" not found`)
	w.traffic("edges", "pod").want(t, 2, `stderr:"pod" names no resource: write KIND/NAME`)
	w.traffic("edges", "pod/other/web-1", "-n", "x").want(t, 2, "stderr:names no resource")
	w.traffic("edges", "pod/web-1", "--kind", "route").want(t, 2, `stderr:"route" is no kind`)
	w.traffic("topology", "pods", "web-1").want(t, 2, `stderr:unexpected argument "web-1"`)
	w.traffic("topology", "pods", "-o", "dot", "-w").want(t, 2, "stderr:--watch is for text")
	w.traffic("tap", "pod/gone").want(t, 1, `stderr:"gone" not found`)
	w.traffic("tap", "pod/web-1", "--rate", "5000").want(t, 2, "stderr:--rate: want a number from 1 to 1000")
	w.traffic("tap", "pod/web-1", "--status", "6xx").want(t, 2, "stderr:--status: want")
	weir("", "traffic", "topp").want(t, 2, `stderr:did you mean "top"?`)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	weir("", "traffic", "top", "pods", "--admin", other.URL).want(t, 1, "stderr:has no Traffic Metrics: is it the admin endpoint of weir run?")
}

func TestTapShowsRequestsAsTheyEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("services.yaml", w.pods())
	w.run("--rollout-state", "off")
	over := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() { // the tap opens at some time
		for {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
			for _, path := range []string{"shown?token=secret", "other"} {
				resp, err := w.client.Get(w.url() + path)
				if err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		}
	})
	r := w.traffic("tap", "deployment/web", "--path", "/shown", "--for", "2s")
	close(over)
	asking.Wait()
	host := net.JoinHostPort("127.0.0.1", fmt.Sprint(w.port))
	r.want(t, 0, "Gateway default/edge -> Pod default/web-1  GET "+host+"/shown  200  ")
	if strings.Contains(r.stdout, "secret") || strings.Contains(r.stdout, "/other") {
		t.Errorf("shown:\n%s", r.stdout)
	}
	var got struct{ Request struct{ Path string } }
	raw := w.traffic("tap", "deployment/web", "--for", "100ms", "-o", "json")
	first, _, _ := strings.Cut(raw.stdout, "\n")
	if err := json.Unmarshal([]byte(first), &got); raw.code != 0 || err != nil || !strings.Contains(first, `"counts"`) {
		t.Errorf("json: %v\n%s", err, raw.stdout)
	}
}

// TestSeveralRunsAreToldTogether: one process tells what others counted, too.
func TestSeveralRunsAreToldTogether(t *testing.T) {
	t.Parallel()
	first := newWorld(t)
	first.write("services.yaml", first.pods())
	first.run("--rollout-state", "off")
	w := newWorld(t)
	w.write("services.yaml", w.pods())
	w.run("--rollout-state", "off", "--traffic-from", first.weir.Admin())
	for range 10 {
		first.get()
	}
	waitUntil(t, func() bool {
		w.get()
		var list metrics.TrafficMetricsList
		r := w.traffic("top", "pods", "-o", "json", "--window", "1m")
		if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list.Items) != 1 {
			t.Fatalf("%v\n%s%s", err, r.stdout, r.err)
		}
		m, _ := list.Items[0].Measured()
		var own metrics.TrafficMetricsList
		if err := json.Unmarshal([]byte(first.traffic("top", "pods", "-o", "json", "--window", "1m").stdout), &own); err != nil {
			t.Fatal(err)
		}
		n, _ := own.Items[0].Measured()
		return n.Success == 10 && m.Success > 10
	})
}

func TestTheNameOfTheBinaryChoosesTheCommand(t *testing.T) {
	t.Parallel()
	for argv, want := range map[string]string{
		"weir check a": "check a", "/usr/bin/weir": "", "/usr/local/bin/kubectl-traffic top pods": "kubectl-traffic top pods", "kubectl-traffic.exe": "kubectl-traffic",
		"kubectl-weir traffic top": "kubectl-weir traffic top", "": "",
	} {
		if got := strings.Join(cli.Arguments(strings.Fields(argv)), " "); got != want {
			t.Errorf("%s: %q, want %q", argv, got, want)
		}
	}
}
