//go:build linux

package main

import (
	"bufio"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mirrorTarget is a kind of mirror backend.
type mirrorTarget struct {
	name  string
	title string
	role  role // empty: no mirror
}

var mirrorTargets = []mirrorTarget{
	{"none", "no mirror", ""},
	{"healthy", "healthy", roleMirror},
	{"refusing", "refuses connections", roleRefuse},
	{"blackhole", "accepts and never reads", roleBlackhole},
	{"slow", "answers after 200 ms", roleSlow},
	{"garbage", "answers garbage", roleGarbage},
}

// mirrorSeries is what the primary's clients saw with a mirror target, and what became of the copies.
type mirrorSeries struct {
	target   mirrorTarget
	proxy    *proxy
	rounds   []loadResult
	before   map[string]uint64 // outcomes of the requests that checked the proxy
	outcomes map[string]uint64
}

// runMirror measures the primary at a fixed rate with every request mirrored to each target in turn. It fails when a
// request failed.
func (b *bench) runMirror() error {
	var all []*mirrorSeries
	for _, t := range mirrorTargets {
		if t.role != "" && !slices.Contains(b.only, t.name) {
			continue // no mirror at all is what the others are compared with
		}
		s := setting{Backend: roleFast, Mirror: t.role, MirrorPercent: 100}
		p, err := b.startProxy(contender{label: "weir, " + t.title, peer: "weir", setting: s})
		if err != nil {
			return err
		}
		before, err := mirrorOutcomes(p.admin)
		if err != nil {
			return err
		}
		all = append(all, &mirrorSeries{target: t, proxy: p, before: before})
	}
	request := bodyRequest(b.body)
	for round := range b.rounds {
		for i := range all {
			s := all[(i+round)%len(all)]
			r, err := b.generate(s.proxy.port, b.rate, b.duration, b.warmup, request)
			if err != nil {
				return err
			}
			s.rounds = append(s.rounds, r)
			fmt.Fprintf(b.log, "%-10s round %d  %d of %d succeeded  p50 %v  p99 %v  max %v\n", s.target.name, round+1, r.OK, r.Requests,
				time.Duration(r.P50), time.Duration(r.P99), time.Duration(r.Max))
		}
	}
	failed := 0
	for _, s := range all {
		outcomes, err := mirrorOutcomes(s.proxy.admin)
		if err != nil {
			return err
		}
		s.outcomes = outcomes
		for _, r := range s.rounds {
			failed += r.Requests - r.OK
		}
	}
	if err := b.report("bench-mirror", func(string) string { return b.mirrorReport(all) }); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d requests failed: a mirror must not hurt the primary", failed)
	}
	return nil
}

// bodyRequest is a POST with a body, or a GET.
func bodyRequest(size int) string {
	if size == 0 {
		return plainRequest()
	}
	head, _ := strings.CutSuffix(plainRequest(), "\r\n")
	head = "POST" + strings.TrimPrefix(head, "GET")
	return fmt.Sprintf("%sContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", head, size, strings.Repeat("x", size))
}

func (b *bench) mirrorReport(all []*mirrorSeries) string {
	var out strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	what := "GET requests"
	if b.body > 0 {
		what = fmt.Sprintf("POST requests with bodies of %d bytes", b.body)
	}
	b.preamble(&out, fmt.Sprintf("%d %s a second on %d connections, 100 %% mirrored, medians of %d interleaved rounds of %v", b.rate, what, b.conns, b.rounds, b.duration))
	p("Latency is the primary's, counted from when a request was due. Ratios are the median over the rounds.")
	p("")
	p("| mirror | primary's success | p50 us | p99 us | p50 / no mirror | p99 / no mirror | copies sent | dropped | failed |")
	p("|---|---|---|---|---|---|---|---|---|")
	mean := func(a, b float64) float64 { return (a + b) / 2 }
	for _, s := range all {
		requests, ok := 0, 0
		var p50, p99, p50Ratio, p99Ratio []float64
		for i, r := range s.rounds {
			requests, ok = requests+r.Requests, ok+r.OK
			none := all[0].rounds[i]
			p50, p99 = append(p50, float64(r.P50)/1e3), append(p99, float64(r.P99)/1e3)
			p50Ratio, p99Ratio = append(p50Ratio, float64(r.P50)/float64(none.P50)), append(p99Ratio, float64(r.P99)/float64(none.P99))
		}
		copies := "- | - | -"
		if s.target.role != "" {
			copies = fmt.Sprintf("%d | %d | %d", s.count("sent"), s.count("dropped_"), s.count("failed_"))
		}
		p("| %s | %s | %.0f | %.0f | %.2f | %.2f | %s |", s.target.title, percent(ok, requests), median(p50, mean), median(p99, mean),
			median(p50Ratio, mean), median(p99Ratio, mean), copies)
	}
	return out.String()
}

// percent never rounds a failure away.
func percent(ok, of int) string {
	if ok == of {
		return "100 %"
	}
	return fmt.Sprintf("%.4f %% (%d failed)", 100*float64(ok)/float64(of), of-ok)
}

// count sums the outcomes that begin with a prefix.
func (s *mirrorSeries) count(prefix string) (n uint64) {
	for outcome, v := range s.outcomes {
		if strings.HasPrefix(outcome, prefix) {
			n += v - s.before[outcome]
		}
	}
	return n
}

var outcomeLine = regexp.MustCompile(`^weir_mirror_requests_total\{.*outcome="([a-z_]+)".*\} ([0-9.e+]+)$`)

// mirrorOutcomes reads weir's own account of the copies from its metrics.
func mirrorOutcomes(admin int) (map[string]uint64, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address(admin) + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	outcomes := map[string]uint64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if m := outcomeLine.FindStringSubmatch(lines.Text()); m != nil {
			n, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				return nil, err
			}
			outcomes[m[1]] += uint64(n)
		}
	}
	return outcomes, lines.Err()
}
