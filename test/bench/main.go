//go:build linux

// Command bench compares Weir with nginx, HAProxy and Go's httputil.ReverseProxy: processor time for each request,
// throughput and latency, one core for the proxy, the same backend, load and headers for all, in interleaved rounds.
// With -latency it compares latencies at fixed rates instead, and with -mirror it shows what a broken mirror backend does to the primary. See
// docs/performance.md.
//
// It runs the real weir binary and imports nothing of its data plane.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// bench is one run of the harness.
type bench struct {
	ctx      context.Context
	dir      string // scratch
	weir     string // the binary
	proxyCPU int
	loadCPU  int
	shared   bool // both processors are everybody's
	realtime bool // load and backend have real-time priority
	favoured bool // the proxies too
	conns    int
	rounds   int
	duration time.Duration
	warmup   time.Duration
	rate     int
	body     int
	peers    []string
	only     []string
	output   string
	log      io.Writer

	certificate certificate
	trust       trust
	backends    map[role]int
	versions    []string

	mu        sync.Mutex
	processes []*process
}

func main() {
	// Children are killed when the thread that started them ends (PR_SET_PDEATHSIG): keep that thread.
	runtime.LockOSThread()
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command runs a subcommand, which the harness starts as processes of their own, or the harness.
func command(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "backend":
			return serveBackend(args[1:], os.Stdout)
		case "load":
			return generateLoad(args[1:], os.Stdin, os.Stdout)
		case "grpcload":
			return generateGRPC(args[1:], os.Stdout)
		case "handshakes":
			return generateHandshakes(args[1:], os.Stdin, os.Stdout)
		case "idle":
			return holdIdle(args[1:], os.Stdin, os.Stdout)
		case "reverseproxy":
			return serveReverseProxy(args[1:])
		}
	}
	return harness(args)
}

func harness(args []string) (err error) {
	b := &bench{log: os.Stderr}
	f := flag.NewFlagSet("bench", flag.ExitOnError)
	f.IntVar(&b.rounds, "rounds", 5, "interleaved rounds, of which the medians are shown")
	f.DurationVar(&b.duration, "duration", 3*time.Second, "measured time of each round")
	f.DurationVar(&b.warmup, "warmup", 500*time.Millisecond, "load before it")
	f.IntVar(&b.conns, "conns", 64, "connections of the load")
	f.IntVar(&b.rate, "rate", 5000, "requests a second, with -mirror")
	f.IntVar(&b.body, "body", 4096, "bytes of the requests' bodies, with -mirror; 0 sends GET requests")
	f.IntVar(&b.proxyCPU, "proxy-cpu", 1, "processor of the proxy")
	f.IntVar(&b.loadCPU, "load-cpu", 0, "processor of the load and the backend")
	f.StringVar(&b.weir, "weir", "", "the weir binary (default: built from ./cmd/weir)")
	f.StringVar(&b.output, "o", "", "also write the table to a file; see docs/performance.md")
	mirror := f.Bool("mirror", false, "compare mirror backends that are healthy, refuse, stall or answer garbage with none")
	latency := f.Bool("latency", false, "compare latencies at fixed rates, of undisturbed rounds")
	f.BoolVar(&b.favoured, "realtime", false, "with -latency: give the proxies real-time priority too, on a machine that others use")
	readLatency := latencyFlags(f)
	peers := f.String("peers", strings.Join(allPeers, ","), "proxies to compare")
	only := f.String("scenarios", "", "scenarios to run (default all; with -latency one, and default "+plainScenario+"): "+strings.Join(scenarioNames(*mirror), ", "))
	_ = f.Parse(args)
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if *latency && *mirror {
		return errors.New("-latency and -mirror are two comparisons")
	}
	if *latency {
		setUnlessGiven(f, "rounds", &b.rounds, latencyRounds)
		setUnlessGiven(f, "duration", &b.duration, latencyDuration)
	}
	options, err := readLatency()
	if err != nil {
		return err
	}
	if *latency {
		if options.scenario, err = latencyScenario(*only, options.reload); err != nil {
			return err
		}
	}
	if b.rounds < 1 || b.duration < 100*time.Millisecond || b.conns < 1 || b.rate < 1 || b.body < 0 {
		return errors.New("-rounds, -conns and -rate must be 1 at least, -duration 100ms, -body 0")
	}
	if b.peers, err = choose("-peers", *peers, allPeers); err != nil {
		return err
	}
	if b.only, err = choose("-scenarios", *only, scenarioNames(*mirror)); err != nil {
		return err
	}
	if n := runtime.NumCPU(); n < 2 || b.proxyCPU == b.loadCPU {
		return fmt.Errorf("need two processors, one for the proxy and one for the load; there are %d", n)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b.ctx = ctx
	switch {
	case *mirror:
		b.peers = []string{"weir"}
	case *latency:
		b.peers = slices.DeleteFunc(slices.Clone(b.peers), func(p string) bool { return !slices.Contains(daemons, p) })
	}
	if err := b.setup(!*mirror && !*latency); err != nil {
		return errors.Join(err, b.close())
	}
	switch {
	case *mirror:
		err = b.runMirror()
	case *latency:
		if b.realtime = mayRealtime(); b.favoured && !b.realtime {
			err = errors.New("-realtime: real-time priority is not permitted")
			break
		}
		err = b.runLatency(options)
	default:
		err = b.runScenarios()
	}
	return errors.Join(err, b.close())
}

// setUnlessGiven sets the value of a flag that was not on the command line.
func setUnlessGiven[T any](f *flag.FlagSet, name string, value *T, to T) {
	given := false
	f.Visit(func(one *flag.Flag) { given = given || one.Name == name })
	if !given {
		*value = to
	}
}

// choose splits a list of names; an empty one means all.
func choose(what, list string, all []string) ([]string, error) {
	if list == "" {
		return all, nil
	}
	names := strings.Split(list, ",")
	for _, n := range names {
		if !slices.Contains(all, n) {
			return nil, fmt.Errorf("%s: there is no %q; choose from %s", what, n, strings.Join(all, ", "))
		}
	}
	return names, nil
}

// setup installs the peers, and the tools of others if they are wanted, builds weir and starts the backend.
func (b *bench) setup(tools bool) (err error) {
	if err := b.install(tools); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "weir-bench-"); err != nil {
		return err
	}
	if b.certificate, err = newCertificate(b.dir); err != nil {
		return err
	}
	if b.trust, err = newTrust(b.dir); err != nil {
		return err
	}
	if slices.Contains(b.peers, "weir") && b.weir == "" {
		if b.weir, err = b.build(); err != nil {
			return err
		}
	}
	b.readVersions(tools)
	b.versions = append(b.versions, runtime.Version())
	if err := pinSelf(b.loadCPU); err != nil {
		return err
	}
	b.backends, err = b.startBackend()
	return err
}

// close ends everything that was started and removes the scratch folder.
func (b *bench) close() error {
	b.stopAll()
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}

func (b *bench) stopAll() {
	b.mu.Lock()
	all := b.processes
	b.processes = nil
	b.mu.Unlock()
	for _, p := range all {
		p.stop()
	}
}

// stop ends some processes and forgets them.
func (b *bench) stop(some ...*process) {
	for _, p := range some {
		p.stop()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.processes = slices.DeleteFunc(b.processes, func(p *process) bool { return slices.Contains(some, p) })
}
