//go:build linux

package main

import (
	"fmt"
	"strings"
	"time"
)

const latencyUnits = "Latency is in microseconds, from when a request was due to the last byte of its answer; the quantiles are those of all rounds together. " +
	"*direct* is the load without a proxy: the part of the harness and of the kernel in each of the others. " +
	"*Late* is how long after they were due requests were sent (p99), which is part of the latency. " +
	"*CPU* is the proxy's processor time for a request, *waited* how long its threads were ready for a request and had no processor, in microseconds. " +
	"*Stolen* is what the hypervisor took of a processor, *others* what other processes took of both, in the worst round that counts.\n"

// latencyReport is the report as Markdown.
func (b *bench) latencyReport(o latencyOptions, all []*latencySeries) string {
	var out strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	if o.scenario.name != plainScenario {
		p("%s (`%s`):\n", o.scenario.title, o.scenario.name)
	}
	b.preamble(&out, fmt.Sprintf("%d connections, %d interleaved rounds of %v each", b.conns, b.rounds, b.duration))
	out.WriteString(latencyUnits)
	p("Rounds with more than %.3g %% stolen or more than %.3g %% for others were thrown away, and measured again up to %d times. %s",
		100*o.stolen, 100*o.others, tries-1, realtimeNote(b.realtime, b.favoured))
	if o.reload > 0 {
		p("All %d routes are changed each second.", o.reload)
	}
	p("")
	p("| processors | requests/s | nginx p50, p99, p99.9 | HAProxy | weir | weir / nginx | weir / HAProxy |")
	p("|---|---|---|---|---|---|---|")
	groups := groupLatency(all)
	for _, g := range groups {
		nginx, haproxy, weir := g.find("nginx"), g.find("haproxy"), g.find("weir")
		p("| %d | %s | %s | %s | %s | %s | %s |", g[0].processors, rateText(g[0].rate), quantilesText(nginx), quantilesText(haproxy), quantilesText(weir),
			quantileRatios(weir, nginx), quantileRatios(weir, haproxy))
	}
	for i, g := range groups {
		if i == 0 || groups[i-1][0].processors != g[0].processors {
			p("\n%s\n", placement(g[0].processors))
			p("| requests/s | proxy | p50 | p99 | p99.9 | max | p99 of the rounds | late | CPU | waited | failed | stolen | others | rounds |")
			p("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
		}
		for _, s := range g {
			p("%s", s.row())
		}
	}
	return out.String()
}

func realtimeNote(realtime, favoured bool) string {
	if favoured {
		return "Load, backend and proxies have real-time priority, as others used the machine: what waits is none of their doing, but for the time that the kernel takes to let go."
	}
	if realtime {
		return "Load and backend have real-time priority: what waits for a processor is the proxy, as if they were other machines."
	}
	return "Load and backend have no real-time priority, which is not permitted here: some of the waiting is theirs."
}

func placement(processors int) string {
	if processors == 1 {
		return "**One processor for the proxy**, the other for the load and the backend:"
	}
	return "**Two processors**, which the proxy, the load and the backend share:"
}

// latencyGroup are the contenders with the same load.
type latencyGroup []*latencySeries

func groupLatency(all []*latencySeries) (groups []latencyGroup) {
	for _, s := range all {
		if n := len(groups); n > 0 && groups[n-1][0].rate == s.rate && groups[n-1][0].processors == s.processors {
			groups[n-1] = append(groups[n-1], s)
		} else {
			groups = append(groups, latencyGroup{s})
		}
	}
	return groups
}

func (g latencyGroup) find(label string) *latencySeries {
	for _, s := range g {
		if s.label == label {
			return s
		}
	}
	return &latencySeries{}
}

// shown are the quantiles that are.
var shown = []float64{0.5, 0.99, 0.999}

// quantiles are those shown of all rounds that count together, in microseconds.
func (s *latencySeries) quantiles() (all []float64) {
	together := histogram{}
	var longest int64
	for _, one := range s.kept {
		together.merge(one.Latencies)
		longest = max(longest, one.Max)
	}
	for _, q := range shown {
		all = append(all, micros(min(together.quantile(q), time.Duration(longest)))) // buckets are wider than what is in them
	}
	return all
}

func quantilesText(s *latencySeries) string {
	if len(s.kept) == 0 {
		return "-"
	}
	return join("%.0f", ", ", s.quantiles())
}

func quantileRatios(s, to *latencySeries) string {
	if len(s.kept) == 0 || len(to.kept) == 0 {
		return "-"
	}
	ratios, base := s.quantiles(), to.quantiles()
	for i := range ratios {
		ratios[i] /= base[i]
	}
	return join("%.2f", ", ", ratios)
}

func join(format, separator string, values []float64) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprintf(format, v)
	}
	return strings.Join(texts, separator)
}

// row is the line of a contender.
func (s *latencySeries) row() string {
	rounds := fmt.Sprint(len(s.kept))
	if n := len(s.thrown); n > 0 {
		rounds += fmt.Sprintf(", %d thrown away", n)
	}
	if len(s.kept) == 0 {
		return fmt.Sprintf("| %s | %s |%s %s |", rateText(s.rate), s.label, strings.Repeat(" - |", 11), rounds)
	}
	var most, least, longest time.Duration
	var cpu, waited time.Duration
	var stolen, others float64
	requests, failed := 0, 0
	late := histogram{}
	for i, one := range s.kept {
		p99 := one.quantile(0.99)
		if most = max(most, p99); i == 0 || p99 < least {
			least = p99
		}
		longest = max(longest, time.Duration(one.Max))
		cpu, waited = cpu+one.cpu, waited+one.waited
		stolen, others = max(stolen, one.Stolen), max(others, one.Others)
		requests, failed = requests+one.Requests, failed+one.Requests-one.OK
		late.merge(one.Lateness)
	}
	each := func(d time.Duration) string {
		if s.proxy == nil || d <= 0 { // what workers used that have ended is not known
			return "-"
		}
		return fmt.Sprintf("%.1f", micros(d)/float64(requests))
	}
	return fmt.Sprintf("| %s | %s | %s | %.0f | %.0f to %.0f | %.0f | %s | %s | %d | %.1f %% | %.1f %% | %s |", rateText(s.rate), s.label,
		join("%.0f", " | ", s.quantiles()), micros(longest), micros(least), micros(most), micros(late.quantile(0.99)), each(cpu), each(waited), failed, 100*stolen, 100*others, rounds)
}
