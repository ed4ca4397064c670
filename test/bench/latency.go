//go:build linux

package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// latencyOptions are the flags of the comparison of latencies.
type latencyOptions struct {
	rates      []int
	processors []int   // of the proxy: 1 or 2
	stolen     float64 // more of the processors' time than this taken by the hypervisor, or
	others     float64 // by other processes, and a round is thrown away
	before     string  // another weir binary to measure beside
	reload     int     // so many routes are changed each second; 0: nothing is
	scenario   scenario
}

// Flags of the comparison of latencies, and its defaults of those that others have too.
const (
	latencyRounds   = 5
	latencyDuration = 10 * time.Second
)

// latencyFlags adds the flags that only this comparison has; the options are read once they are parsed.
func latencyFlags(f *flag.FlagSet) func() (latencyOptions, error) {
	rates := f.String("rates", "2000,5000,10000", "requests a second, with -latency; 0 is as many as are answered on -conns connections")
	processors := f.String("processors", "1,2", "processors of the proxy, with -latency")
	stolen := f.Float64("stolen", 5, "with -latency: throw rounds away in which the hypervisor took more than this percentage of a processor")
	others := f.Float64("others", 2, "with -latency: throw rounds away in which other processes took more than this percentage of the processors")
	before := f.String("before", "", "with -latency: also measure this weir binary")
	reload := f.Int("reload", 0, "with -latency: change so many routes each second, of weir and nginx")
	return func() (o latencyOptions, err error) {
		o.stolen, o.others, o.before, o.reload = *stolen/100, *others/100, *before, *reload
		if o.reload < 0 {
			return o, errors.New("-reload: is less than 0")
		}
		if o.rates, err = readNumbers(*rates, 0, 1e6); err != nil {
			return o, fmt.Errorf("-rates: %w", err)
		}
		if o.processors, err = readNumbers(*processors, 1, 2); err != nil {
			return o, fmt.Errorf("-processors: %w", err)
		}
		return o, nil
	}
}

// plainScenario is the one whose latencies are compared by default.
const plainScenario = "plain"

// latencyScenario is the scenario of a name, or the plain one, for a comparison of latencies. Its load must be one that the generator with a rate
// can make.
func latencyScenario(name string, reload int) (scenario, error) {
	name = cmp.Or(name, plainScenario)
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
	if i < 0 {
		return scenario{}, fmt.Errorf("-scenarios: %q is not one; with -latency it is one name", name)
	}
	s := scenarios[i]
	if s.tool != toolWrk && s.tool != toolOwn || s.setting.Backend != roleFast || s.setting.Routes > 0 || s.setting.Mirror != "" {
		return s, fmt.Errorf("-scenarios: %q has no load at a fixed rate", name)
	}
	if reload > 0 && name != plainScenario {
		return s, errors.New("-reload is for the plain scenario")
	}
	return s, nil
}

// readNumbers reads a list of numbers.
func readNumbers(list string, least, most int) (all []int, err error) {
	for _, s := range strings.Split(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("%q is no number from %d to %d", s, least, most)
		}
		all = append(all, n)
	}
	return all, nil
}

// latencySample is one round of one contender.
type latencySample struct {
	loadResult
	disturbance
	cpu, waited time.Duration // of the proxy
}

// latencySeries are the rounds of one contender at one rate.
type latencySeries struct {
	label      string
	processors int
	rate       int
	proxy      *proxy // nil: straight to the backend
	kept       []latencySample
	thrown     []disturbance // rounds that were thrown away
	err        error
}

// direct is the load without a proxy: the part of the harness and the kernel in all the others.
const direct = "direct"

// tries is how often a round is measured until it is undisturbed.
const tries = 4

// runLatency measures and reports.
func (b *bench) runLatency(o latencyOptions) error {
	var all []*latencySeries
	for _, n := range o.processors {
		some, err := b.compareLatency(o, n)
		if err != nil {
			return err
		}
		all = append(all, some...)
	}
	var err error
	for _, s := range all {
		if s.err != nil {
			err = errors.Join(err, fmt.Errorf("%s, %s requests/s, %d processors: %w", s.label, rateText(s.rate), s.processors, s.err))
		}
	}
	name := "bench-latency"
	switch {
	case o.reload > 0:
		name = "bench-reload"
	case o.scenario.name != plainScenario:
		name += "-" + o.scenario.name
	}
	return errors.Join(err, b.report(name, func(string) string { return b.latencyReport(o, all) }))
}

// compareLatency measures the contenders with so many processors in interleaved rounds, beginning each with another one.
func (b *bench) compareLatency(o latencyOptions, processors int) (all []*latencySeries, err error) {
	if err := b.share(processors > 1); err != nil {
		return nil, err
	}
	proxies := []*proxy{nil}
	defer func() {
		for _, p := range proxies[1:] {
			b.stop(p.processes...)
		}
	}()
	for _, c := range b.latencyContenders(o, processors) {
		p, err := b.startProxy(c)
		if err != nil {
			return nil, err
		}
		proxies = append(proxies, p)
	}
	byRate := make([][]*latencySeries, len(o.rates))
	for i, rate := range o.rates {
		for _, p := range proxies {
			s := &latencySeries{label: direct, processors: processors, rate: rate, proxy: p}
			if p != nil {
				s.label = p.label
			}
			byRate[i] = append(byRate[i], s)
			all = append(all, s)
		}
	}
	for round := range b.rounds {
		for _, some := range byRate {
			for i := range some {
				s := some[(i+round)%len(some)]
				if s.err == nil {
					s.err = b.latencyRound(o, s, round)
				}
				if err := b.ctx.Err(); err != nil {
					return nil, err
				}
			}
		}
	}
	return all, nil
}

// latencyContenders are the proxies to compare.
func (b *bench) latencyContenders(o latencyOptions, processors int) (all []contender) {
	s := o.scenario.setting
	s.Workers = processors
	if o.reload > 0 {
		s.Routes, s.Stride, s.Asked = o.reload, 1, o.reload
	}
	for _, peer := range daemons {
		if !slices.Contains(b.peers, peer) || o.reload > 0 && peer == "haproxy" { // which would need another process to watch over it
			continue
		}
		if peer == "weir" && o.before != "" {
			all = append(all, contender{label: "weir, before", peer: peer, setting: s, binary: o.before})
		}
		all = append(all, contender{label: peer, peer: peer, setting: s})
	}
	return all
}

// share lets all processes have both processors, or the proxy one and the load and the backend the other, and starts a new backend.
func (b *bench) share(both bool) (err error) {
	b.stopAll()
	b.shared = both
	if both {
		err = pinSelf(b.loadCPU, b.proxyCPU)
	} else {
		err = pinSelf(b.loadCPU)
	}
	if err == nil {
		b.backends, err = b.startBackend(fmt.Sprint("-realtime=", b.realtime))
	}
	return err
}

// latencyRound measures until a round is undisturbed, or the tries are used up.
func (b *bench) latencyRound(o latencyOptions, s *latencySeries, round int) error {
	for range tries {
		one, err := b.measureLatency(s)
		if err != nil {
			return err
		}
		verdict := ""
		keep := one.Stolen <= o.stolen && one.Others <= o.others
		if keep {
			s.kept = append(s.kept, one)
		} else {
			s.thrown = append(s.thrown, one.disturbance)
			verdict = "  thrown away"
		}
		fmt.Fprintf(b.log, "%d processors %6s/s round %d  %-14s p50 %v  p99 %v  p99.9 %v  max %v  late p99 %v  waited %v  failed %d  stolen %.1f %%  others %.1f %%%s\n",
			s.processors, rateText(s.rate), round+1, s.label, one.quantile(0.5), one.quantile(0.99), one.quantile(0.999), time.Duration(one.Max),
			one.Lateness.quantile(0.99), one.waited, one.Requests-one.OK, 100*one.Stolen, 100*one.Others, verdict)
		if keep || b.ctx.Err() != nil {
			break
		}
	}
	return b.ctx.Err()
}

// rateText is a rate as the report has it.
func rateText(rate int) string {
	if rate == 0 {
		return "all"
	}
	return strconv.Itoa(rate)
}

func (s latencySample) quantile(q float64) time.Duration { return s.Latencies.quantile(q) }

// measureLatency measures one contender once.
func (b *bench) measureLatency(s *latencySeries) (one latencySample, err error) {
	port, request, args := b.backends[roleFast], plainRequest(), []string{fmt.Sprint("-realtime=", b.realtime)}
	var used, waited time.Duration
	if s.proxy != nil {
		port = s.proxy.port
		args = append(args, b.security(s.proxy.setting)...)
		if s.proxy.setting.Routes > 0 {
			request, args = routesRequests(s.proxy.setting), append(args, "-many")
			end := b.reloading(s.proxy)
			defer func() { err = errors.Join(err, end()) }()
		}
		if used, waited, err = s.proxy.times(); err != nil {
			return one, err
		}
	}
	before, err := readAccount("/proc", os.Getpid())
	if err != nil {
		return one, err
	}
	one.loadResult, err = b.generate(port, s.rate, b.duration, b.warmup, request, args...)
	if err != nil {
		return one, err
	}
	after, err := readAccount("/proc", os.Getpid())
	if err != nil {
		return one, err
	}
	one.disturbance = after.since(before)
	if one.Requests == 0 {
		return one, errors.New("no request was sent")
	}
	if s.proxy != nil {
		if one.cpu, one.waited, err = s.proxy.times(); err != nil {
			return one, err
		}
		one.cpu, one.waited = one.cpu-used, one.waited-waited
	}
	return one, nil
}

// reloading changes all routes of a proxy each second, until end is called.
func (b *bench) reloading(p *proxy) (end func() error) {
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		each := time.NewTicker(time.Second)
		defer each.Stop()
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-each.C:
			}
			if err := b.reload(p); err != nil {
				done <- err
				return
			}
		}
	}()
	return func() error {
		close(stop)
		return <-done
	}
}

// reload changes all routes of a proxy.
func (b *bench) reload(p *proxy) error {
	p.setting.Version++
	if p.peer == "weir" {
		return b.manifests(filepath.Join(p.dir, "manifests"), p.setting, p.port) // it sees by itself that they have changed
	}
	return p.processes[0].cmd.Process.Signal(syscall.SIGHUP) // nginx: all is read anew, whether or not it has changed
}
