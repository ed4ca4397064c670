//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"
)

func mkdir(dir string) error { return os.MkdirAll(dir, 0o755) }

// sample is one measurement of a proxy.
type sample struct {
	measured
	cost     float64 // microseconds of processor time a request, or KiB of memory a connection
	total    float64 // MiB of memory of the proxy, where that is measured
	mirrored float64 // copies a request
}

// rate is requests a second.
func (s sample) rate() float64 { return float64(s.requests) / s.elapsed.Seconds() }

// series are the samples of a proxy in a scenario, one a round.
type series struct {
	contender
	samples []sample
	err     error
}

// runScenarios measures and reports.
func (b *bench) runScenarios() error {
	var results []result
	for _, s := range scenarios {
		if !slices.Contains(b.only, s.name) {
			continue
		}
		results = append(results, result{s, b.compare(s)})
		if b.ctx.Err() != nil {
			return b.ctx.Err()
		}
	}
	var err error
	for _, r := range results {
		for _, s := range r.series {
			if s.err != nil {
				err = errors.Join(err, fmt.Errorf("%s, %s: %w", r.scenario.name, s.label, s.err))
			}
		}
	}
	return errors.Join(err, b.report("bench", func(old string) string { return b.comparison(results, old) }))
}

// compare measures the contenders of a scenario in interleaved rounds, beginning each round with another one.
func (b *bench) compare(s scenario) []*series {
	if s.tool == toolIdle {
		return b.compareIdle(s)
	}
	var all []*series
	var running []*proxy
	defer func() {
		for _, p := range running {
			b.stop(p.processes...)
		}
	}()
	proxies := map[*series]*proxy{}
	for _, c := range b.contenders(s) {
		one := &series{contender: c}
		all = append(all, one)
		p, err := b.startProxy(c)
		if err != nil {
			one.err = err
			continue
		}
		proxies[one], running = p, append(running, p)
		if _, err := b.load(s, p, b.warmup); err != nil {
			one.err = err
		}
	}
	for round := range b.rounds {
		for i := range all {
			one := all[(i+round)%len(all)]
			if one.err != nil || b.ctx.Err() != nil {
				continue
			}
			sample, err := b.measure(s, proxies[one])
			if err != nil {
				one.err = err
				continue
			}
			one.samples = append(one.samples, sample)
			fmt.Fprintf(b.log, "%-12s round %d  %-18s %7.2f us/request %8.0f requests/s  p50 %v  p99 %v  failed %d\n", s.name, round+1, one.label,
				sample.cost, sample.rate(), sample.p50, sample.p99, sample.failed)
		}
	}
	return all
}

// measure puts load on a proxy and divides the processor time it used by the requests it answered.
func (b *bench) measure(s scenario, p *proxy) (sample, error) {
	copiesBefore, err := b.copies(p.setting)
	if err != nil {
		return sample{}, err
	}
	before, err := p.cpu()
	if err != nil {
		return sample{}, err
	}
	m, err := b.load(s, p, b.duration)
	if err != nil {
		return sample{}, err
	}
	after, err := p.cpu()
	if err != nil {
		return sample{}, err
	}
	if m.requests == 0 {
		return sample{}, errors.New("no request was answered")
	}
	copiesAfter, err := b.copies(p.setting)
	if err != nil {
		return sample{}, err
	}
	if p.setting.Mirror == roleSlow {
		time.Sleep(2 * slowDelay) // the copies in flight belong to this measurement
	}
	n := float64(m.requests)
	return sample{measured: m, cost: float64((after - before).Nanoseconds()) / 1e3 / n, mirrored: float64(copiesAfter-copiesBefore) / n}, nil
}

// copies is how many requests have reached the setting's mirror target.
func (b *bench) copies(s setting) (uint64, error) {
	if s.Mirror == "" {
		return 0, nil
	}
	counts, err := b.counts()
	return counts[s.Mirror][0], err
}

// counts asks the backend for the requests and connections of each role.
func (b *bench) counts() (counts map[role][2]uint64, err error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address(b.backends[roleFast]) + "/_count")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return counts, json.NewDecoder(resp.Body).Decode(&counts)
}
