// Package install puts the Gateway API's definitions and Weir into the cluster of KUBECONFIG, the way the documentation tells users
// to. Its callers are tests, which "cluster run" starts in the network of a cluster of their own (test/cluster), with kubectl in
// the path.
package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// Namespace of the controller.
	Namespace = "weir-system"
	// Class is the name of the GatewayClass.
	Class = "weir"
	// Image and ProxyImage are those of this tree, which "cluster run -image weir" makes known to the node.
	Image      = "weir:dev"
	ProxyImage = "weir-proxy:dev"

	// readyTimeout bounds how long the controller may take to be available.
	readyTimeout = 2 * time.Minute
)

// InCluster is true for processes that were started in the network of a test cluster.
func InCluster() bool { return os.Getenv("WEIR_CLUSTER_DIR") != "" }

// Definitions installs the experimental channel of the Gateway API, which has everything the standard one has, from the very release
// that the conformance suite is of.
func Definitions(ctx context.Context) error {
	module, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api"))
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(module), "config/crd/experimental/gateway.networking*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no definitions in %q: %w", module, err)
	}
	args := []string{"apply", "--server-side"}
	for _, f := range files {
		args = append(args, "-f", f)
	}
	if _, err := Kubectl(ctx, "", args...); err != nil {
		return err
	}
	return Established(ctx, "--all")
}

// Established waits until the API server serves definitions, which are named, or "--all". A definition that has no status yet is
// waited for, too: kubectl ends with an error then.
func Established(ctx context.Context, definitions ...string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		_, err := Kubectl(ctx, "", append([]string{"wait", "--for=condition=Established", "--timeout=60s", "crd"}, definitions...)...)
		if err == nil || !strings.Contains(err.Error(), "conditions accessor error") {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Weir installs the manifests of the tree that top is the folder of, and waits until the controller is available.
func Weir(ctx context.Context, top string) error {
	text, err := Manifests(top)
	if err != nil {
		return err
	}
	if _, err := Kubectl(ctx, text, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	_, err = Kubectl(ctx, "", "--namespace", Namespace, "wait", "--for=condition=Available", "deployment", "--all", fmt.Sprintf("--timeout=%s", readyTimeout))
	if err != nil {
		state, _ := Kubectl(ctx, "", "--namespace", Namespace, "describe", "pods")
		logs, _ := Kubectl(ctx, "", "--namespace", Namespace, "logs", "--all-containers", "--prefix", "--selector", "app.kubernetes.io/name=weir")
		return fmt.Errorf("the controller does not become available: %w\n%s\n%s", err, state, logs)
	}
	return nil
}

// Kubectl runs kubectl with the given input and returns what it says.
func Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdin = strings.NewReader(input)
	return output(cmd)
}

// Watch has "kubectl get" tell of an object as it is and of each change of it, until done is true. It returns an error if kubectl
// ends before.
func Watch(ctx context.Context, done func(text []byte) bool, get ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kubectl", append(get, "--watch", "--output=json")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	objects := json.NewDecoder(stdout)
	for {
		var object json.RawMessage
		if err = objects.Decode(&object); err != nil {
			break
		}
		if done(object) {
			cancel()
			_ = cmd.Wait() // it was killed
			return nil
		}
	}
	cancel()
	return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), errors.Join(err, cmd.Wait()), bytes.TrimSpace(stderr.Bytes()))
}

func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(slices.Compact(cmd.Args), " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// Logs writes what the controller and the proxies have logged, and what became of the objects, to files of a folder.
func Logs(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pods, err := Kubectl(ctx, "", "get", "pods", "--all-namespaces", "--selector", "app.kubernetes.io/name=weir",
		"--output", `jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{"\n"}{end}`)
	errs := []error{err}
	for line := range strings.Lines(pods) {
		namespace, pod, _ := strings.Cut(strings.TrimSpace(line), " ")
		text, err := Kubectl(ctx, "", "--namespace", namespace, "logs", pod)
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, namespace+"."+pod+".log"), []byte(text), 0o644))
	}
	state, err := Kubectl(ctx, "", "get", "--all-namespaces", "--output", "yaml",
		"gatewayclasses,gateways,httproutes,grpcroutes,listenersets,backendtlspolicies,referencegrants,services,endpointslices,deployments,pods")
	errs = append(errs, err, os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(state), 0o644))
	events, err := Kubectl(ctx, "", "events", "--all-namespaces")
	errs = append(errs, err, os.WriteFile(filepath.Join(dir, "events.txt"), []byte(events), 0o644))
	return errors.Join(errs...)
}

// Version that the controller says it is of; the commit of the tree if it was built without knowing.
func Version(ctx context.Context, top string) (string, error) {
	said, err := Kubectl(ctx, "", "--namespace", Namespace, "exec", "deployment/weir-controller", "--", "/weir", "version")
	if err != nil {
		return "", err
	}
	fields := strings.Fields(said)
	if len(fields) < 2 {
		return "", fmt.Errorf("the controller calls its version %q", said)
	}
	if fields[1] != "devel" {
		return fields[1], nil
	}
	commit, err := output(exec.CommandContext(ctx, "git", "-C", top, "describe", "--tags", "--always"))
	if err != nil {
		return "", err
	}
	// A report that has just been written changes nothing of what is tested.
	changed, err := output(exec.CommandContext(ctx, "git", "-C", top, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/conformance"))
	if changed != "" {
		commit = strings.TrimSpace(commit) + "-dirty"
	}
	return strings.TrimSpace(commit), err
}
