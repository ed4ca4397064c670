// Package scale measures the control plane at size: the real "weir controller" against a real API server that holds
// thousands of routes and endpoints, and a real "weir proxy" that it feeds and that is asked, by requests, what it serves.
// No cluster is needed: this program plays the pods. For "make bench-control" and for a small test of its own.
package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weirmesh/weir/test/cluster/components"
)

// Options of a run.
type Options struct {
	// Routes and Services are how many there are, with EndpointsOf endpoints for each Service.
	Routes, Services int
	// Sidecars is how many are simulated. If there are some, the mesh is measured: Services with two pods each, no routes.
	Sidecars int
	// Changes is how many routes, and then how many endpoints, are changed one after the other, with Pause between them.
	Changes int
	Pause   time.Duration
	// Rest is how long there is nothing to do before memory is looked at.
	Rest time.Duration
	// Limit bounds the run: fewer changes are made when they would take longer. None if zero.
	Limit time.Duration
	// Weir is the program to measure, Source the folder of its sources.
	Weir, Source string
	// Cache has the API server.
	Cache components.Cache `json:"-"`
	// CacheDir is Cache.Dir, for the process that measures.
	CacheDir string
	// Profiles, if not empty, is a folder for profiles of controller and proxy.
	Profiles string
}

// EndpointsOf is how many endpoints a Service has.
const EndpointsOf = 10

// runCommand is what this program is started with again, in a network of its own.
const runCommand = "scale-run"

// Main does not return in a process that Run has started; in others it does nothing.
func Main() {
	if len(os.Args) != 3 || os.Args[1] != runCommand {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	result, err := inside(ctx, os.Args[2])
	stop()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Run measures, in a process of its own whose network is its own, too: there, the addresses of all endpoints are this
// machine's, and the traffic reaches nothing else. It needs root, or the right to make user namespaces.
func Run(ctx context.Context, o Options) (*Result, error) {
	if _, err := o.Cache.Ensure(ctx, components.Etcd, components.APIServer); err != nil {
		return nil, err // building it takes a while, and the network of this process
	}
	var err error
	if o.Weir, err = filepath.Abs(o.Weir); err != nil {
		return nil, err
	}
	if o.Source, err = filepath.Abs(o.Source); err != nil {
		return nil, err
	}
	o.CacheDir = o.Cache.Dir
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", runCommand, string(text))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	cmd.SysProcAttr = namespaces()
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("the measuring process: %w", err)
	}
	result := &Result{}
	return result, json.Unmarshal(out.Bytes(), result)
}

// inside measures in the process that Run has started.
func inside(ctx context.Context, text string) (*Result, error) {
	var o Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return nil, err
	}
	o.Cache = components.Cache{Dir: o.CacheDir, Log: os.Stderr}
	if err := ownAddresses(); err != nil {
		return nil, fmt.Errorf("addresses of endpoints: %w", err)
	}
	dir, err := os.MkdirTemp("", "weir-scale-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &run{Options: o, dir: dir, began: time.Now(), result: &Result{Routes: o.Routes, Services: o.Services}}
	defer r.stop()
	if err := r.all(ctx); err != nil {
		return nil, err
	}
	return r.result, nil
}
