// Package demo is a small gateway with traffic. It has toy services, a gateway that reads manifests from a temporary
// folder, a bounded load, and a table of arriving requests. "weir demo" runs it, and weir-demo, which has nothing else.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/examples"
	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dataplane"
	"github.com/weirmesh/weir/internal/demo/mesh"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/mirror"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/reach"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout/local"
	"github.com/weirmesh/weir/internal/rollout/provider"
	rollout "github.com/weirmesh/weir/internal/rollout/view"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/standalone"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/toy"
	"github.com/weirmesh/weir/internal/traffic"
	"github.com/weirmesh/weir/internal/upstream"
)

// About is a one-sentence description of the demo, for help.
const About = `starts three toy services (shop-v1, shop-v2 and the mirror target shadow),
a gateway configured by manifests that it writes to a temporary folder, and a
bounded load, and shows what arrives where: the share of each backend against
its weight, the copies against the mirror's fraction, success, rate and
latency. Edit the manifests while it runs and watch the shares move. Everything
stays on this machine; ports that are taken are no problem.`

// Options of a demo.
type Options struct {
	// Length is how long the demo runs; 0 means until its context ends.
	Length time.Duration
	// Rate is the load in requests per second: 1 to 5000.
	Rate int
	// Break selects what is broken: "nothing" or "mirror".
	Break flags.Choice
	// Rollout shows a release that goes through its steps, and ends with it.
	Rollout bool
	// Mesh shows calls between workloads that are allowed and denied.
	Mesh bool
	// Print prints the manifests and does not run anything.
	Print bool
}

// NewOptions returns Options with their defaults.
func NewOptions() *Options { return &Options{Rate: 300, Break: flags.NewChoice("nothing", "mirror")} }

// Flags adds the options to a command.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.DurationVar(&o.Length, "for", o.Length, "end after this time; 0 is with Ctrl-C")
	f.IntVar(&o.Rate, "rate", o.Rate, "requests per second, at most 5000")
	f.Var(&o.Break, "break", "what to break")
	f.BoolVar(&o.Rollout, "rollout", false, "release a version step by step, and end with it")
	f.BoolVar(&o.Mesh, "mesh", false, "calls between three workloads with sidecars, allowed or denied by a role")
	f.BoolVar(&o.Print, "print", false, "print the manifests and end")
}

// Run runs the demo until its length is over or ctx ends, and prints a summary. It fails if a request failed. A
// *flags.Fault is an invalid option.
func (o *Options) Run(ctx context.Context, stdout, stderr io.Writer) error {
	if o.Rate < 1 || o.Rate > 5000 {
		return flags.Errorf("--rate %d: want 1 to 5000", o.Rate)
	}
	if o.Mesh && (o.Rollout || o.Break.Value != "nothing") {
		return flags.Errorf("--mesh is a demo of its own: leave out --rollout and --break")
	}
	if o.Print {
		return o.print(stdout)
	}
	if o.Mesh {
		return mesh.Run(ctx, stdout, stderr, o.Length)
	}
	return o.run(ctx, stdout, stderr)
}

// gatewayPort is a port in the manifests. The demo replaces these ports with those it was given.
const gatewayPort = 8080

var toys = []struct {
	name string
	port int
}{{"shop-v1", 9001}, {"shop-v2", 9002}, {"shadow", 9003}}

const shadow = "shadow"

// stableFile has the endpoints of the version that serves, in a demo of a release.
const stableFile = "stable.yaml"

// manifests returns the manifests by file name.
func (o *Options) manifests() (map[string]string, error) {
	files, folder := map[string]string{}, "demo"
	switch {
	case o.Mesh:
		folder = mesh.Folder
	case o.Rollout:
		folder = "demo-rollout"
	}
	err := fs.WalkDir(examples.Demo, folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(examples.Demo, path)
		files[d.Name()] = string(data)
		return err
	})
	return files, err
}

func (o *Options) print(w io.Writer) error {
	files, err := o.manifests()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, err := fmt.Fprintf(w, "---\n# %s\n%s", name, files[name]); err != nil {
			return err
		}
	}
	return nil
}

// demo is a running demo.
type demo struct {
	*Options
	stderr  io.Writer
	dir     string // of the manifests
	port    int    // of the gateway
	toys    []*toy.Service
	gateway *standalone.Gateway
	traffic *standalone.Traffic
	load    *loadGenerator
	view    *view
	ports   *strings.Replacer // of the manifests to those that were free
	stable  string            // the manifest with the endpoints of the version that serves
	// rollouts carries out the Rollout; nil without one.
	rollouts *local.Source

	mu sync.Mutex
	// listener is the gateway's port, until the gateway takes it.
	listener net.Listener
	// config is the latest report. base is the counters at the time when its configuration came into force.
	config control.Report
	base   telemetry.Snapshot
	served chan struct{} // closed when the first configuration is served
}

func (o *Options) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	d := &demo{Options: o, stderr: stderr, view: newView(stdout), served: make(chan struct{})}
	if d.dir, err = os.MkdirTemp("", "weir-demo-"); err != nil {
		return err
	}
	defer os.RemoveAll(d.dir)

	var background sync.WaitGroup
	defer background.Wait()
	defer func() {
		for _, t := range d.toys {
			t.Close()
		}
	}()
	defer d.release()
	if err := d.start(&background); err != nil {
		return err
	}
	return d.serve(ctx)
}

// start starts the toy services and writes the manifests with their ports.
func (d *demo) start(background *sync.WaitGroup) error {
	ports := []string{}
	for _, want := range toys {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		t := toy.New(want.name)
		t.Hang = d.Break.Value == "mirror" && want.name == shadow
		d.toys = append(d.toys, t)
		ports = append(ports, strconv.Itoa(want.port), strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
		background.Go(func() { _ = t.Serve(l, nil) })
	}
	var err error
	if d.listener, err = freeListener(gatewayPort); err != nil {
		return err
	}
	d.port = d.listener.Addr().(*net.TCPAddr).Port
	ports = append(ports, strconv.Itoa(gatewayPort), strconv.Itoa(d.port))
	files, err := d.manifests()
	if err != nil {
		return err
	}
	d.ports = strings.NewReplacer(ports...)
	d.stable = files[stableFile]
	for name, content := range files {
		if err := d.write(name, content); err != nil {
			return err
		}
	}
	return nil
}

// write writes a manifest, with the ports that were free, in one step.
func (d *demo) write(name, content string) error {
	fresh := filepath.Join(d.dir, "."+name)
	if err := os.WriteFile(fresh, []byte(d.ports.Replace(content)), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(d.dir, name))
}

// freeListener listens on the preferred port if it is free, else on another one. The gateway gets the socket, so that
// no other process can take the port in between.
func freeListener(preferred int) (net.Listener, error) {
	l, err := socket.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(preferred)))
	if err != nil {
		l, err = socket.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("no free port on 127.0.0.1: %w", err)
	}
	return l, nil
}

// listen opens a port for the gateway. The first one is already open.
func (d *demo) listen(network, address string) (socket.Bound, error) {
	d.mu.Lock()
	l := d.listener
	if l != nil && l.Addr().String() == address {
		d.listener = nil
		d.mu.Unlock()
		return socket.Bound{Stream: l}, nil
	}
	d.mu.Unlock()
	return socket.Open(network, address)
}

// release closes the first port if the gateway has not taken it.
func (d *demo) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listener != nil {
		d.listener.Close()
	}
}

// serve runs gateway, load and display until ctx ends or the gateway fails, then sums up.
func (d *demo) serve(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(d.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if d.view.terminal {
		log = slog.New(slog.DiscardHandler) // the table shows the errors
	}
	metrics := telemetry.NewRegistry(telemetry.Options{Version: process.Build().Version})
	move, err := standalone.Relocate("127.0.0.1", 0)
	if err != nil {
		return err
	}
	guard := &reach.Guard{}
	plane := &dataplane.Plane{Metrics: metrics, Log: log, Adjust: move, AdminAddress: "127.0.0.1:0", Guard: guard}
	plane.Server = proxy.New(proxy.Options{
		Options: exchange.Options{Logger: log, Metrics: metrics}, DrainTimeout: time.Second, DrainGrace: -1, Upstream: upstream.Options{Refuse: guard.Refuse}, PortsChanged: plane.Changed, Listen: d.listen,
		// The bounds are tight, so that a broken mirror shows within a second.
		Mirror: mirror.Options{MaxInFlight: 32, Timeout: time.Second},
	})
	var source resource.Source = resource.NewDir(dialect.Kinds(), []string{d.dir}, log)
	if d.Rollout {
		d.rollouts = local.New(source, provider.All(), nil, log)
		d.rollouts.Requests = metrics.RequestsTo
		plane.Pages, source = d.rollouts.Pages(), d.rollouts
	}
	d.traffic = standalone.NewTraffic(metrics, nil, log)
	d.gateway = &standalone.Gateway{Source: source, Reported: d.reported, Plane: plane, Traffic: d.traffic}
	if d.rollouts != nil {
		d.gateway.Own = d.rollouts.Statuses
	}
	gatewayCtx, stopGateway := context.WithCancel(context.Background()) // outlives the load
	defer stopGateway()
	ended := make(chan error, 1)
	go func() { ended <- d.gateway.Run(gatewayCtx) }()
	select {
	case <-d.served:
	case err := <-ended:
		return err
	case <-ctx.Done():
		stopGateway()
		return <-ended
	}

	if d.Length > 0 { // the length counts from the first table
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Length)
		defer cancel()
	}
	d.load = &loadGenerator{url: d.url(), rate: d.Rate}
	loadCtx, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	loaded := make(chan struct{})
	go func() { d.load.run(loadCtx); close(loaded) }()

	failure := d.watch(ctx, ended)
	stopLoad()
	<-loaded
	measured, err := traffic.Overview(context.WithoutCancel(ctx), d.traffic, "services", d.view.screen())
	stopGateway()
	if failure == nil {
		failure = err
	}
	if failure == nil {
		failure = <-ended
	}
	if failure != nil {
		return failure
	}
	return d.summary(measured)
}

func (d *demo) url() string { return fmt.Sprintf("http://127.0.0.1:%d/", d.port) }

// reported follows the control loop: a new configuration restarts the counts.
func (d *demo) reported(r control.Report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config = r
	if d.rollouts != nil && r.Err == nil {
		d.rollouts.Applied(r.Set)
	}
	if r.Changed {
		d.base = d.gateway.Metrics.Snapshot()
	}
	if r.Changed && r.Generation == 1 {
		close(d.served)
	}
}

// watch shows the table until ctx ends, which is not an error, or the gateway ends.
func (d *demo) watch(ctx context.Context, ended <-chan error) error {
	d.view.intro(d)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	started := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			if err == nil {
				err = errors.New("the gateway ended")
			}
			return err
		case <-tick.C:
			o := d.observe(time.Since(started))
			d.view.show(o)
			if over, err := d.goOn(o.rollout); over || err != nil {
				return err
			}
		}
	}
}

// goOn plays the user's part in a release: when all requests go to the new version, the stable Service gets it. It reports
// whether the release is over.
func (d *demo) goOn(r *rollout.Rollout) (over bool, err error) {
	switch {
	case r == nil:
	case r.State == rollout.Waiting:
		return false, d.write(stableFile, strings.ReplaceAll(d.stable, strconv.Itoa(toys[0].port), strconv.Itoa(toys[1].port)))
	case r.State == rollout.Healthy && len(r.Releases) > 0:
		return true, nil
	}
	return false, nil
}

// summary prints the summary when everything has stopped, with what the commands of traffic showed before. A failed request fails the demo.
func (d *demo) summary(measured string) error {
	d.mu.Lock()
	base, changed := d.base, d.config.Generation > 1
	if !changed {
		d.base = telemetry.Snapshot{} // everything since the start
	}
	d.mu.Unlock()
	o := d.observe(d.load.elapsed())
	if changed {
		o.interval = d.load.stopped().Sub(base.Time)
	}
	if err := d.view.summary(o, measured); err != nil {
		return err
	}
	if o.failed > 0 {
		return fmt.Errorf("%d of %d requests failed, the first with: %s", o.failed, o.sent, d.load.firstError())
	}
	return nil
}
