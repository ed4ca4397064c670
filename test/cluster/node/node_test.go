package node

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/cluster/components"
	"github.com/weirmesh/weir/test/cluster/image"
)

// patience is how long anything may take to become so, on a machine that is busy.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

func TestANodeRunsPodsAndLeavesNothingBehind(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a node needs root")
	}
	if testing.Short() {
		t.Skip("the tests on real pods run on one")
	}
	images, err := image.Build(t.Context(), t.TempDir(),
		image.Program{Dir: "..", Package: "./pause", Tags: []string{Pause}},
		image.Program{Dir: "../dns", Package: ".", Tags: []string{CoreDNS}})
	if err != nil {
		t.Fatal(err)
	}
	cache := components.Cache{Log: os.Stderr}
	dir := filepath.Join(t.TempDir(), "node")
	n, err := Start(t.Context(), Options{Cache: cache, Dir: dir, Images: images, Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	// Whatever happens: twice does no harm.
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	if found, err := Find(cache, dir); err != nil || found.pid != n.pid {
		t.Errorf("found %+v, %v", found, err)
	}

	// The cluster's DNS is a pod: it runs a command, and it is reached at a load balancer's address.
	if said := kubectl(t, n, "", "--namespace=kube-system", "exec", "deployment/coredns", "--", "/dns", "-version"); !strings.Contains(said, "CoreDNS") {
		t.Errorf("the command said %q", said)
	}
	kubectl(t, n, `
apiVersion: v1
kind: Service
metadata: {name: any, namespace: kube-system}
spec: {type: LoadBalancer, selector: {k8s-app: kube-dns}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: asked, namespace: kube-system}
spec: {type: LoadBalancer, loadBalancerIP: 10.250.0.127, selector: {k8s-app: kube-dns}, ports: [{port: 80, targetPort: 8080}]}
`, "apply", "-f", "-")
	for service, want := range map[string]string{"any": "", "asked": LastAskedFor.String()} {
		var address string
		eventually(t, func() error {
			address = kubectl(t, n, "", "--namespace=kube-system", "get", "service", service, "--output=jsonpath={.status.loadBalancer.ingress[0].ip}")
			if address == "" || want != "" && address != want {
				return fmt.Errorf("Service %s has %q, want %q", service, address, want)
			}
			return nil
		})
		eventually(t, func() error { return reach(t.Context(), n, "http://"+address+"/health") })
	}

	if err := n.RestartAPIServer(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	kubectl(t, n, "", "--namespace=kube-system", "get", "service", "asked")

	seen := traces(t, n)
	for what, found := range seen.look(t) {
		if found == "" && what != "mounts" { // they are seen from inside
			t.Errorf("no %s of a node that runs", what)
		}
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	for what, found := range seen.look(t) {
		if found != "" {
			t.Errorf("%s left: %s", what, found)
		}
	}
	if _, err := Find(cache, dir); err == nil {
		t.Error("the node is found when it is gone")
	}
}

// TestMain and this make the test binary a client in the node's network, as no other can be relied on.
func init() {
	if url := os.Getenv("NODE_TEST_GET"); url != "" {
		client := http.Client{Timeout: 5 * time.Second}
		response, err := client.Get(url)
		if err != nil || response.StatusCode != http.StatusOK {
			fmt.Println(response, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func reach(ctx context.Context, n *Node, url string) error {
	cmd := n.Command(ctx, os.Args[0])
	cmd.Env = append(cmd.Env, "NODE_TEST_GET="+url)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("GET %s: %w: %s", url, err, out)
	}
	return nil
}

func kubectl(t *testing.T, n *Node, input string, args ...string) string {
	t.Helper()
	cmd := n.Command(t.Context(), "kubectl", args...)
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %q: %v: %s", args, err, stderr.Bytes())
	}
	return string(out)
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatal(err)
		}
	}
}

// trace is what a node may leave on a machine.
type trace struct {
	dir        string
	namespaces []string // as /proc names them
	pods       []string // by their UIDs
}

func traces(t *testing.T, n *Node) trace {
	tr := trace{dir: n.dir}
	for _, kind := range []string{"net", "mnt", "pid"} {
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", n.pid, kind))
		if err != nil {
			t.Fatal(err)
		}
		tr.namespaces = append(tr.namespaces, name)
	}
	tr.pods = strings.Fields(kubectl(t, n, "", "get", "pods", "--all-namespaces", "--output=jsonpath={.items[*].metadata.uid}"))
	if len(tr.pods) == 0 {
		t.Fatal("no pods")
	}
	return tr
}

// look for files, processes in the namespaces or started from the folder, mounts, and control groups of pods. What is found is one of
// each, by its kind; it is empty for none.
func (tr trace) look(t *testing.T) map[string]string {
	found := map[string]string{"files": "", "processes": "", "mounts": "", "control groups": ""}
	if _, err := os.Stat(tr.dir); err == nil {
		found["files"] = tr.dir
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, tr.dir) {
			found["mounts"] = line
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		command, _ := os.ReadFile(filepath.Join(p, "cmdline")) // an error means that it has ended
		if bytes.Contains(command, []byte(tr.dir)) {
			found["processes"] = string(command)
		}
		for _, kind := range []string{"net", "mnt", "pid"} {
			if name, err := os.Readlink(filepath.Join(p, "ns", kind)); err == nil && slices.Contains(tr.namespaces, name) {
				found["processes"] = string(command)
			}
		}
	}
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		for _, pod := range tr.pods {
			if err == nil && d.IsDir() && strings.Contains(filepath.Base(path), pod) {
				found["control groups"] = path
			}
		}
		return nil // those of others come and go
	})
	return found
}
