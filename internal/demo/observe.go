package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	rollout "github.com/weirmesh/weir/internal/rollout/view"
	"github.com/weirmesh/weir/internal/telemetry"
)

// observation is what the demo shows: the wanted shares beside the counts since the configuration was applied.
type observation struct {
	elapsed time.Duration
	// generation counts the configurations: above 1 means that the manifests were changed.
	generation uint64
	// problems are why the newest manifests are not in force, or what is wrong with them, the worst first.
	problems []string
	backends []backendRow
	mirrors  []mirrorRow
	total    telemetry.ExchangeSnapshot
	// interval is the time that the counts cover: since the configuration was applied, or the whole run.
	interval time.Duration
	// sent and failed are the load generator's own count.
	sent, failed int64
	// received counts the requests of each toy service since the start. outcomes counts the copies by outcome.
	received []toyCount
	// rollout is nil without one.
	rollout  *rollout.Rollout
	outcomes []telemetry.OutcomeCount
}

type toyCount struct {
	name     string
	requests int64
}

type backendRow struct {
	rule, backend string
	// wanted is below zero if the weights of all backends are zero, share if there was no request.
	share, wanted float64
	telemetry.ExchangeSnapshot
}

type mirrorRow struct {
	rule, mirror string
	numerator    uint32
	denominator  uint32
	telemetry.MirrorSnapshot
}

// observe reads the counters and lays them beside the configuration.
func (d *demo) observe(elapsed time.Duration) observation {
	d.mu.Lock()
	report, base := d.config, d.base
	d.mu.Unlock()
	now := d.gateway.Metrics.Snapshot()
	counted, interval := now, elapsed
	if !base.Time.IsZero() {
		counted = now.Since(base)
		interval = counted.Interval
	}
	o := observation{
		elapsed: elapsed, interval: interval, generation: report.Generation, total: counted.Total(),
		sent: d.load.sent.Load(), failed: d.load.failed.Load(),
	}
	o.problems = problemsOf(report)
	for _, t := range d.toys {
		o.received = append(o.received, toyCount{t.Name, t.Requests()})
	}
	if d.rollouts != nil {
		if all := d.rollouts.Views(); len(all) == 1 {
			o.rollout = &all[0]
		}
	}
	for _, m := range now.Mirrors {
		o.count(m.Outcomes)
	}
	o.rows(report.Config, counted)
	return o
}

// mostProblems bounds how many problems of a report the demo shows.
const mostProblems = 3

// problemsOf returns what is wrong, the worst first. A finding that an object's last good version is served follows the
// error about the newest version.
func problemsOf(report control.Report) (problems []string) {
	if report.Err != nil {
		problems = append(problems, report.Err.Error())
	}
	findings := slices.SortedStableFunc(slices.Values(report.Findings), func(a, b resource.Finding) int { return cmp.Compare(a.Severity, b.Severity) })
	for _, f := range findings {
		problems = append(problems, f.String())
	}
	if n := len(problems); n > mostProblems {
		problems = append(problems[:mostProblems], fmt.Sprintf("and %d more", n-mostProblems))
	}
	return problems
}

// count adds the outcomes of one mirror's copies.
func (o *observation) count(outcomes []telemetry.OutcomeCount) {
	for _, c := range outcomes {
		i := slices.IndexFunc(o.outcomes, func(x telemetry.OutcomeCount) bool { return x.Outcome == c.Outcome })
		if i < 0 {
			i = len(o.outcomes)
			o.outcomes = append(o.outcomes, telemetry.OutcomeCount{Outcome: c.Outcome})
		}
		o.outcomes[i].Count += c.Count
	}
}

func (o *observation) rows(cfg *model.Config, counted telemetry.Snapshot) {
	exchanges := map[telemetry.ExchangeLabels]telemetry.ExchangeSnapshot{}
	for _, x := range counted.Exchanges {
		exchanges[x.ExchangeLabels] = x
	}
	mirrors := map[telemetry.MirrorLabels]telemetry.MirrorSnapshot{}
	for _, m := range counted.Mirrors {
		mirrors[m.MirrorLabels] = m
	}
	for _, route := range cfg.Routes {
		for i, rule := range route.Rules {
			name := rule.Name
			if name == "" {
				name = strconv.Itoa(i)
			}
			routeName := route.Ref.Namespace + "/" + route.Ref.Name
			first := len(o.backends)
			var weights, requests uint64
			for _, b := range rule.Backends {
				x := exchanges[telemetry.ExchangeLabels{Route: routeName, Rule: name, Backend: b.Service}]
				weights += uint64(b.Weight)
				requests += x.Requests
				o.backends = append(o.backends, backendRow{
					rule: name, backend: b.Service, wanted: float64(b.Weight), ExchangeSnapshot: x,
				})
			}
			for j := first; j < len(o.backends); j++ {
				row := &o.backends[j]
				row.wanted, row.share = partOf(row.wanted, weights), partOf(float64(row.Requests), requests)
			}
			for _, m := range rule.Filters.Mirrors {
				x := mirrors[telemetry.MirrorLabels{Route: routeName, Rule: name, Mirror: m.Service}]
				o.mirrors = append(o.mirrors, mirrorRow{
					rule: name, mirror: m.Service, numerator: m.Numerator, denominator: m.Denominator, MirrorSnapshot: x,
				})
			}
		}
	}
}

// partOf returns n as a part of all; below zero if all is zero.
func partOf(n float64, all uint64) float64 {
	if all == 0 {
		return -1
	}
	return n / float64(all)
}
