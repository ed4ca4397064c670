//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// result is a scenario with what was measured.
type result struct {
	scenario scenario
	series   []*series
}

// median is the middle value, or the mean of the two in the middle.
func median[T cmp.Ordered](values []T, mean func(a, b T) T) T {
	v := slices.Sorted(slices.Values(values))
	if n := len(v); n%2 == 0 {
		return mean(v[n/2-1], v[n/2])
	}
	return v[len(v)/2]
}

func medianOf(samples []sample, of func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	return median(values, func(a, b float64) float64 { return (a + b) / 2 })
}

func cpuOfSample(s sample) float64 { return s.cpu }

// ratio is the median of the rounds' ratios: machines drift, and the rounds were interleaved.
func ratio(a, to []sample, of func(sample) float64) (float64, bool) {
	n := min(len(a), len(to))
	if n == 0 {
		return 0, false
	}
	values := make([]float64, n)
	for i := range n {
		values[i] = of(a[i]) / of(to[i])
	}
	return median(values, func(a, b float64) float64 { return (a + b) / 2 }), true
}

// find is the series of a peer with the scenario's own setting.
func (r result) find(label string) *series {
	for _, s := range r.series {
		if s.label == label {
			return s
		}
	}
	return &series{}
}

// comparison is the report of the scenarios as Markdown.
func (b *bench) comparison(results []result) string {
	var out strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	b.preamble(&out, fmt.Sprintf("%d connections, median of %d interleaved rounds of %v", b.conns, b.rounds, b.duration))
	p("CPU is user and system time of the proxy's processes divided by the requests it answered; a ratio is the median over the rounds.")
	p("Busy is how much of its processor the proxy used; one that is not saturated wakes up more often and pays for it.")
	p("")
	p("| scenario | nginx us | HAProxy | ReverseProxy | weir us | weir / nginx | weir / HAProxy |")
	p("|---|---|---|---|---|---|---|")
	for _, r := range results {
		nginx, weir, haproxy := r.find("nginx"), r.find("weir"), r.find("haproxy")
		p("| %s | %s | %s | %s | %s | %s | %s |", r.scenario.title, us(nginx), ratioText(haproxy, nginx), ratioText(r.find("reverseproxy"), nginx),
			us(weir), ratioText(weir, nginx), ratioText(weir, haproxy))
	}
	for _, r := range results {
		p("")
		p("**%s** (`%s`)", r.scenario.title, r.scenario.name)
		p("")
		p("| proxy | CPU us/request | ratio to nginx | requests/s | busy | p50 us | p99 us | failed |%s", onlyIf(r.scenario.setting.Mirror != "", " mirrored |"))
		p("|---|---|---|---|---|---|---|---|%s", onlyIf(r.scenario.setting.Mirror != "", "---|"))
		for _, s := range r.series {
			if len(s.samples) == 0 {
				p("| %s | did not serve |", s.label)
				continue
			}
			failed := 0
			for _, one := range s.samples {
				failed += one.failed
			}
			mirrored := medianOf(s.samples, func(s sample) float64 { return s.mirrored })
			p("| %s | %s | %s | %.0f | %.0f %% | %.0f | %.0f | %d |%s", s.label, us(s), ratioText(s, r.find("nginx")),
				medianOf(s.samples, sample.rate), medianOf(s.samples, func(s sample) float64 { return s.cpu * s.rate() / 1e4 }),
				medianOf(s.samples, func(s sample) float64 { return micros(s.p50) }), medianOf(s.samples, func(s sample) float64 { return micros(s.p99) }),
				failed, onlyIf(r.scenario.setting.Mirror != "", fmt.Sprintf(" %.1f %% |", 100*mirrored)))
		}
		if few := r.scenario.few; few != nil {
			if v, ok := ratio(r.find("weir").samples, r.find(fewLabel(r.scenario)).samples, cpuOfSample); ok {
				p("")
				p("weir with %d routes costs %.2f of weir with %d.", r.scenario.setting.Routes, v, few.Routes)
			}
		}
		if r.scenario.note != "" {
			p("")
			p("%s", r.scenario.note)
		}
	}
	return out.String()
}

// preamble says what was run where.
func (b *bench) preamble(out *strings.Builder, how string) {
	fmt.Fprintf(out, "Measured on %s with %s; %s. The command: `go run ./test/bench %s`\n\n", machine(), strings.Join(b.versions, ", "), how,
		strings.Join(withoutOutput(os.Args[1:]), " "))
}

// withoutOutput leaves out where the report goes.
func withoutOutput(args []string) []string {
	var kept []string
	for i := 0; i < len(args); i++ {
		name := strings.TrimLeft(args[i], "-")
		switch {
		case args[i] == "-o" || args[i] == "--o" || args[i] == "-weir" || args[i] == "--weir":
			i++
		case strings.HasPrefix(name, "o=") || strings.HasPrefix(name, "weir="):
		default:
			kept = append(kept, args[i])
		}
	}
	return kept
}

func us(s *series) string {
	if len(s.samples) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", medianOf(s.samples, cpuOfSample))
}

func ratioText(s, to *series) string {
	v, ok := ratio(s.samples, to.samples, cpuOfSample)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func onlyIf(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

// report prints a report, and writes it to the file of -o: between the lines "<!-- name:begin -->" and
// "<!-- name:end -->" where the file has them, else as the whole file.
func (b *bench) report(name, text string) error {
	fmt.Println(text)
	if b.output == "" {
		return nil
	}
	page := text
	old, err := os.ReadFile(b.output)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if replaced, ok := replaceBetween(string(old), "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->", "\n"+text+"\n"); ok {
		page = replaced
	} else if len(old) > 0 {
		return fmt.Errorf("%s exists and has no line %q: the table was not written", b.output, "<!-- "+name+":begin -->")
	}
	return os.WriteFile(b.output, []byte(page), 0o644)
}

func replaceBetween(page, begin, end, text string) (string, bool) {
	head, rest, ok := strings.Cut(page, begin)
	if !ok {
		return page, false
	}
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		return page, false
	}
	return head + begin + text + end + tail, true
}
