package kube

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/test/cluster/components"
)

// TestKubectlTrafficShowsWhatTheUserMaySee runs the binary, and kubectl with it as a plugin.
func TestKubectlTrafficShowsWhatTheUserMaySee(t *testing.T) {
	s := serveTraffic(t)
	s.proxy(s.a, "gw")
	programs, err := components.Cache{Log: os.Stderr}.Ensure(t.Context(), components.Kubectl)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	plugin := filepath.Join(dir, "kubectl-traffic")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../../..", "-trimpath", "-ldflags=-s -w", "-o", plugin, "./cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Symlink(plugin, filepath.Join(dir, "weir")); err != nil {
		t.Fatal(err)
	}
	execute := func(program, kubeconfig string, args ...string) (string, error) {
		t.Helper()
		if program != programs.Path(components.Kubectl) {
			program = filepath.Join(dir, program)
			args = append(args, "--kubeconfig", kubeconfig)
		}
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.WaitDelay = 10 * time.Second
		cmd.Env = []string{"HOME=" + dir, "PATH=" + dir, "KUBECONFIG=" + kubeconfig}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	masters := server.Kubeconfig
	limited, _ := s.trafficUser("cli-of-a", allTraffic, s.a)
	edges, _ := s.trafficUser("cli-edges-of-a", edgesOfPods, s.a)
	forbidden := func(user, scope string) string {
		return `weir: pods.traffic.metrics.k8s.io is forbidden: User "` + user + `" cannot list resource "pods" in API group "traffic.metrics.k8s.io" ` + scope
	}
	for _, c := range []struct {
		as, args string
		fails    bool
		holds    []string // lines, with single spaces; "!": not
	}{
		{masters, "top pods -n " + s.a, false, []string{"NAME SUCCESS RPS", "db 100.00% 1.7rps", "web 90.38% 3.5rps"}},
		{masters, "top pods -A", false, []string{s.a + " web 90.38% 3.5rps", s.b + " web - 0.0rps"}},
		{masters, "top pods", false, []string{"There are no pods in the namespace default."}},
		{masters, "top deployments -A -o json", false, []string{`"name": "api"`, `"namespace": "` + s.b + `"`}},
		{masters, "edges deployment/api -n " + s.b, false, []string{"to Pod " + s.a + "/web 90.00% 3.3rps"}},
		{masters, "edges pod/web -n " + s.a, false, []string{"from Pod " + s.b + "/web 90.00% 3.3rps", "to Pod " + s.a + "/db 100.00% 1.7rps"}},
		{masters, "topology deployments -A", false, []string{"| " + s.b + "/api | - 3.3rps 90.00% --> | pod/" + s.a + "/web |"}},
		{masters, "top deployments gone -n " + s.a, true, []string{`weir: deployments.traffic.metrics.k8s.io "gone" not found`}},
		{masters, "tap pod/web --for 3s -n " + s.a, false, []string{"Pod " + s.a + "/gw -> Pod " + s.a + "/web GET shop/tapped 200 1ms", "1 proxy takes part, 1 proxy does not answer"}},
		{limited, "tap pod/web --for 3s -n " + s.a, true, []string{"weir: a tap shows who talks to whom in all namespaces, and you may not tap in all of them", "!tapped"}},
		{edges, "tap pod/web --for 3s -n " + s.a, true, []string{`weir: pods.traffic.metrics.k8s.io "web" is forbidden: User "cli-edges-of-a" cannot get resource "pods/tap"`, "!tapped"}},
		{limited, "top pods -n " + s.a, false, []string{"web 90.38% 3.5rps"}},
		{limited, "top pods -A", true, []string{forbidden("cli-of-a", "at the cluster scope")}},
		{limited, "edges pod/web -n " + s.a, false, []string{"from unknown 90.38% 3.5rps", "to Pod " + s.a + "/db", "!" + s.b}},
		{limited, "topology pods -n " + s.a, false, []string{"--> | db |", "!" + s.b}},
		{masters, "top pods -n " + s.a + " --as cli-of-a", false, []string{"web 90.38% 3.5rps"}},
		{masters, "top pods -A --as cli-of-a", true, []string{forbidden("cli-of-a", "at the cluster scope")}},
		{masters, "top pods -A --as nobody --as-group system:masters", false, []string{s.a + " web 90.38% 3.5rps"}},
		{masters, "edges pod/web -n " + s.a + " --as cli-of-a", false, []string{"from unknown", "!" + s.b}},
		{limited, "top pods -n " + s.a + " --as nobody", true, []string{`"nobody" is forbidden: User "cli-of-a" cannot impersonate`}},
		{masters, "top pods -s https://127.0.0.1:1", true, []string{"the API server https://127.0.0.1:1 does not answer"}},
		{masters, "top pod web -A", true, []string{`--all-namespaces is for lists, and "pod web" names one resource`}},
		{edges, "edges pod/web -n " + s.a, false, []string{"to Pod " + s.a + "/db", "!" + s.b}},
		{edges, "topology pods -n " + s.a, true, []string{forbidden("cli-edges-of-a", `in the namespace "`+s.a+`"`)}},
	} {
		run := []string{"weir"}
		if c.as == limited { // kubectl takes its time; these are one of each command
			run = append(run, programs.Path(components.Kubectl))
		}
		for _, program := range run {
			said, err := execute(program, c.as, append([]string{"traffic"}, strings.Fields(c.args)...)...)
			var lines []string
			for line := range strings.Lines(said) {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
			text := strings.Join(lines, "\n")
			for _, part := range c.holds {
				part, not := strings.CutPrefix(part, "!")
				if strings.Contains(text, part) == not || (err != nil) != c.fails {
					t.Errorf("%s traffic %s says, %v:\n%s\nwant %s (not: %v)", filepath.Base(program), c.args, err, said, part, not)
				}
			}
		}
	}

	// An API server that does not reach the controller says so, and so does everybody who asks it.
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1beta1.traffic.metrics.k8s.io"}}}
	change(t, o, func() {
		if err := unstructured.SetNestedField(o.Object, int64(closed.Addr().(*net.TCPAddr).Port), "spec", "service", "port"); err != nil {
			t.Fatal(err)
		}
	})
	err = within(t.Context(), func() error {
		said, err := execute("weir", masters, "traffic", "top", "pods", "-n", s.a)
		if err == nil || !strings.Contains(said, `the API server reaches no controller that serves Traffic Metrics (service unavailable): "kubectl get apiservices" says why`) {
			return fmt.Errorf("%w: %s", cmp.Or(err, errors.New("it is answered")), said)
		}
		if said, err = execute(programs.Path(components.Kubectl), masters, "get", "apiservices", o.GetName()); err != nil || !strings.Contains(said, "False (FailedDiscoveryCheck)") {
			return fmt.Errorf("%v: %s", err, said)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
