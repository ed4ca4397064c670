package components

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/modfile"
)

const kubernetesModule = "k8s.io/kubernetes"

// build writes the component to path, whole or not at all.
func (c Cache) build(ctx context.Context, module string, component Component, path string) error {
	start := time.Now()
	if err := c.writeModule(ctx, module); err != nil {
		return err
	}
	c.logf("building %s of Kubernetes %s, once for this machine ...", component.Name, Kubernetes)
	partial := path + ".partial"
	defer os.Remove(partial)
	if _, err := c.run(ctx, module, "build", "-trimpath", "-ldflags", ldflags(), "-o", partial, component.Package); err != nil {
		return err
	}
	if err := os.Rename(partial, path); err != nil {
		return err
	}
	c.logf("built %s in %s", path, time.Since(start).Round(time.Second))
	return nil
}

// ldflags stamp the version, without which the API server calls itself v0.0.0 and clients take it for too old.
func ldflags() string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(Kubernetes, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	flags := "-s -w"
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(" -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", p, Kubernetes, p, major, p, minor)
	}
	return flags
}

// writeModule writes the go.mod of a module that has nothing but the components as its tools, unless it is there. The
// module of Kubernetes cannot be built by "go install path@version", as it replaces its staging modules by folders: here
// they are replaced by the versions that are published of those folders.
func (c Cache) writeModule(ctx context.Context, dir string) error {
	path := filepath.Join(dir, "go.mod")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	c.logf("fetching the sources of Kubernetes %s ...", Kubernetes)
	out, err := c.run(ctx, dir, "mod", "download", "-json", kubernetesModule+"@"+Kubernetes)
	if err != nil {
		return err
	}
	var downloaded struct{ GoMod string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return fmt.Errorf("go mod download: %w", err)
	}
	upstream, err := os.ReadFile(downloaded.GoMod)
	if err != nil {
		return err
	}
	text, err := toolModule(upstream)
	if err != nil {
		return err
	}
	partial := path + ".partial"
	if err := os.WriteFile(partial, text, 0o644); err != nil {
		return err
	}
	return os.Rename(partial, path)
}

// toolModule makes the go.mod from that of Kubernetes.
func toolModule(upstream []byte) ([]byte, error) {
	kubernetes, err := modfile.Parse(kubernetesModule+"/go.mod", upstream, nil)
	if err != nil {
		return nil, err
	}
	f := new(modfile.File)
	steps := []error{
		f.AddModuleStmt("weir.invalid/kubernetes"),
		f.AddGoStmt(kubernetes.Go.Version),
		f.AddRequire(kubernetesModule, Kubernetes),
	}
	for _, g := range kubernetes.Godebug {
		steps = append(steps, f.AddGodebug(g.Key, g.Value))
	}
	for _, component := range All() {
		steps = append(steps, f.AddTool(component.Package))
	}
	staging := "v0." + strings.TrimPrefix(Kubernetes, "v1.")
	for _, r := range kubernetes.Replace {
		version := r.New.Version
		replacement := r.New.Path
		if strings.HasPrefix(replacement, "./staging/") {
			replacement, version = r.Old.Path, staging
		}
		steps = append(steps, f.AddReplace(r.Old.Path, r.Old.Version, replacement, version))
	}
	if err := errors.Join(steps...); err != nil {
		return nil, err
	}
	f.Cleanup()
	return f.Format()
}

// run runs the go command in dir and returns its output.
func (c Cache) run(ctx context.Context, dir string, args ...string) ([]byte, error) {
	command := append([]string{"go"}, args...)
	if c.Nice != 0 {
		command = append([]string{"nice", "-n", strconv.Itoa(c.Nice)}, command...)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	// The versions follow from the one requirement, so the module fills itself in while it is built: unlike "go mod
	// tidy", that fetches nothing but what the components consist of.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=mod", "GOOS=", "GOARCH=")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // go ends its children then
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		c.logf("%s", stderr.Bytes())
		return nil, fmt.Errorf("go %s: %w", args[0], errors.Join(err, context.Cause(ctx)))
	}
	return stdout.Bytes(), nil
}
