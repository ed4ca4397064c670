package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

const (
	top = "../../.."
	// patience is how long anything may take to become so, on a machine that is busy.
	patience = 2 * time.Minute
)

func TestMain(m *testing.M) {
	if !install.InCluster() {
		fmt.Println(`skipped: the tests need a cluster of their own, "make test-cluster"`)
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	for _, step := range []func() error{
		func() error { return install.Definitions(ctx) },
		func() error { return install.Weir(ctx, top) },
	} {
		if err := step(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if code != 0 {
		if err := install.Logs(ctx, filepath.Join(top, "bin", "e2e")); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		fmt.Fprintln(os.Stderr, "the logs of Weir are in bin/e2e")
	}
	return code
}

// world is a namespace of one test. Tests that leave the controller and the API server alone run side by side, when all others have ended.
type world struct {
	*testing.T
	namespace string
}

func newWorld(t *testing.T) *world {
	return newWorldNamed(t, strings.ToLower("e2e-"+strings.TrimPrefix(t.Name(), "Test")))
}

func newWorldNamed(t *testing.T, namespace string) *world {
	w := &world{t, namespace}
	w.kubectl("", "create", "namespace", w.namespace)
	t.Cleanup(func() {
		if t.Failed() {
			return // what is in it is in the logs
		}
		if _, err := install.Kubectl(context.Background(), "", "delete", "namespace", w.namespace, "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	return w
}

// newShop is a world with toys, of which v1 is served by the Gateway "edge" at the URL.
func newShop(t *testing.T, toys ...string) (w *world, url string) {
	t.Helper()
	w = newWorld(t)
	w.toys(toys...)
	url = w.gateway("edge")
	w.apply(fmt.Sprintf(shop, "v1"))
	w.answers(url, http.StatusOK, "v1")
	return w, url
}

// kubectl returns what kubectl says about the namespace, and fails the test when kubectl does.
func (w *world) kubectl(input string, args ...string) string {
	w.Helper()
	text, err := install.Kubectl(w.Context(), input, append([]string{"--namespace", w.namespace}, args...)...)
	if err != nil {
		w.Fatal(err)
	}
	return text
}

// established waits until the API server serves a definition.
func (w *world) established(definition string) {
	w.Helper()
	if err := install.Established(w.Context(), definition); err != nil {
		w.Fatal(err)
	}
}

// cluster runs a command of the program that the cluster was started by.
func (w *world) cluster(command string, args ...string) {
	w.Helper()
	if err := w.tryCluster(command, args...); err != nil {
		w.Fatal(err)
	}
}

func (w *world) tryCluster(command string, args ...string) error {
	args = append([]string{command, "-name", os.Getenv("WEIR_CLUSTER_NAME")}, args...)
	if out, err := exec.CommandContext(w.Context(), os.Getenv("WEIR_CLUSTER_PROGRAM"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("cluster %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (w *world) apply(manifests ...string) {
	w.Helper()
	w.kubectl(strings.Join(manifests, "\n---\n"), "apply", "-f", "-")
}

// toys starts services that say their names, each with one pod, and waits for them. Once one is ready it stays so on a machine that is busy: a probe that
// comes too late is no endpoint less.
func (w *world) toys(names ...string) {
	w.Helper()
	var manifests []string
	for _, name := range names {
		manifests = append(manifests, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      containers:
      - name: toy
        image: %[2]s
        args: [echo, "%[1]s=0.0.0.0:8080"]
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 12}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec:
  selector: {app: %[1]s}
  ports: [{port: 80, targetPort: 8080}]
`, name, install.Image))
	}
	w.apply(manifests...)
	for _, name := range names {
		w.kubectl("", "rollout", "status", "deployment/"+name, fmt.Sprintf("--timeout=%s", patience))
	}
}

// gateway makes a Gateway with one listener and returns its URL when it is programmed.
func (w *world) gateway(name string) string {
	w.Helper()
	w.apply(fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %s}
spec:
  gatewayClassName: %s
  listeners:
  - {name: http, port: 80, protocol: HTTP}
`, name, install.Class))
	return w.programmed(name)
}

// programmed waits for a Gateway and returns the URL of its first address.
func (w *world) programmed(name string) string {
	w.Helper()
	w.kubectl("", "wait", "--for=condition=Programmed", "gateway/"+name, fmt.Sprintf("--timeout=%s", patience))
	address := w.kubectl("", "get", "gateway", name, "--output=jsonpath={.status.addresses[0].value}")
	if net.ParseIP(address) == nil {
		w.Fatalf("Gateway %s has the address %q", name, address)
	}
	return "http://" + address
}

// answer is what a toy says of a request.
type answer struct {
	Status  int
	Service string `json:"service"`
}

// get sends one request over a connection of its own.
func get(ctx context.Context, url string) (answer, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	return ask(ctx, &client, url)
}

func ask(ctx context.Context, client *http.Client, url string) (a answer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return a, err
	}
	response, err := client.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	a.Status = response.StatusCode
	if a.Status == http.StatusOK {
		err = json.NewDecoder(response.Body).Decode(&a)
	}
	return a, err
}

// eventually repeats the check until it gives no error.
func (w *world) eventually(check func() error) {
	w.Helper()
	limit := time.Now().Add(patience)
	for pause := 100 * time.Millisecond; ; pause = min(pause*5/4, 500*time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			w.Fatalf("after %s still: %v", patience, err)
		}
		time.Sleep(pause)
	}
}

// watched waits until an object passes the check. One kubectl tells of all changes: one for each look would use up the processor on
// which everything else runs.
func (w *world) watched(object string, check func(text []byte) error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	err := errors.New("it is not known")
	for ctx.Err() == nil {
		said := install.Watch(ctx, func(text []byte) (done bool) {
			err = check(text)
			return err == nil
		}, "--namespace", w.namespace, "get", object)
		if said == nil {
			return
		}
		err = errors.Join(err, said)
		time.Sleep(100 * time.Millisecond) // the API server may be away
	}
	w.Fatalf("after %s still: %v", patience, err)
}

// answers waits for an answer from a service to a request; the name is empty for a status without one.
func (w *world) answers(url string, status int, service string) {
	w.Helper()
	w.eventually(func() error {
		got, err := get(w.Context(), url)
		if want := (answer{status, service}); err == nil && got != want {
			err = fmt.Errorf("%s: %+v, want %+v", url, got, want)
		}
		return err
	})
}

// condition waits for one in a status, at a path in which "*" is every parent or listener.
func (w *world) condition(object, path, kind, status string) {
	w.Helper()
	w.eventually(func() error {
		query := fmt.Sprintf(`jsonpath={%s.conditions[?(@.type=="%s")].status}`, path, kind)
		got := w.kubectl("", "get", object, "--output="+query)
		if got != status {
			return fmt.Errorf("%s: condition %s is %q, want %q", object, kind, got, status)
		}
		return nil
	})
}
