package components

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

func TestNothingIsBuiltThatTheCacheHas(t *testing.T) {
	cache := Cache{Dir: t.TempDir()}
	home, err := cache.home()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(home, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "bin", "etcd"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "") // no go command
	programs, err := cache.Ensure(t.Context(), Etcd)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := programs.Path(Etcd), filepath.Join(home, "bin", "etcd"); got != want {
		t.Errorf("path %s, want %s", got, want)
	}
}

func TestAFailedBuildNamesTheComponentAndLeavesNoProgram(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\necho no such thing >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	var log bytes.Buffer
	cache := Cache{Dir: t.TempDir(), Log: &log}
	_, err := cache.Ensure(t.Context(), Etcd, APIServer)
	if err == nil || !strings.Contains(err.Error(), "build etcd: go mod: exit status 1") {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(log.String(), "no such thing") {
		t.Errorf("the log lacks what the go command said:\n%s", &log)
	}
	left, err := filepath.Glob(filepath.Join(cache.Dir, "*", "bin", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestOnlyOneBuildsAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	silent := func(string, ...any) {}
	unlock, err := Lock(t.Context(), path, silent)
	if err != nil {
		t.Fatal(err)
	}
	waiting, locked := make(chan struct{}), make(chan error, 1)
	go func() {
		second, err := Lock(t.Context(), path, func(string, ...any) { close(waiting) })
		if err == nil {
			second()
		}
		locked <- err
	}()
	<-waiting
	select {
	case err := <-locked:
		t.Fatalf("locked twice: %v", err)
	default:
	}
	unlock()
	if err := <-locked; err != nil {
		t.Error(err)
	}
}

func TestWaitingForABuildEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Lock(ctx, path, func(string, ...any) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestStagingModulesAreReplacedByTheirPublishedVersions(t *testing.T) {
	text, err := toolModule([]byte(`module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require example.com/other v1.0.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	example.com/other => example.com/fork v1.0.1
)
`))
	if err != nil {
		t.Fatal(err)
	}
	f, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range f.Require {
		got = append(got, r.Mod.String())
	}
	for _, r := range f.Replace {
		got = append(got, fmt.Sprint(r.Old, " => ", r.New))
	}
	for _, tool := range f.Tool {
		got = append(got, tool.Path)
	}
	got = append(got, f.Go.Version, f.Godebug[0].Key+"="+f.Godebug[0].Value)
	want := []string{
		"k8s.io/kubernetes@" + Kubernetes,
		"k8s.io/api => k8s.io/api@v0." + strings.TrimPrefix(Kubernetes, "v1."), "example.com/other => example.com/fork@v1.0.1",
	}
	var tools []string
	for _, c := range All() {
		tools = append(tools, c.Package)
	}
	slices.Sort(tools)
	want = append(want, tools...)
	want = append(want, "1.26.0", "default=go1.26")
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nfrom\n%s", strings.Join(got, "\n"), text)
	}
}

func TestProgramsKnowTheirVersion(t *testing.T) {
	flags := ldflags()
	for _, want := range []string{"gitVersion=" + Kubernetes, "gitMajor=1", "gitMinor=36"} {
		if !strings.Contains(flags, "k8s.io/component-base/version."+want) {
			t.Errorf("%q lacks %s", flags, want)
		}
	}
}
