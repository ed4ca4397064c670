//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
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

func costOf(s sample) float64 { return s.cost }

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

// entry is what the report says of one scenario: its row of the overview, and its own section.
type entry struct{ row, section string }

const (
	overview = "| scenario | nginx | HAProxy | ReverseProxy | weir | weir / nginx | weir / HAProxy |\n|---|---|---|---|---|---|---|\n"
	units    = "CPU is user and system time of the proxy's processes in microseconds a request; a ratio is the median over the rounds. " +
		"HAProxy and ReverseProxy are shown as ratios to nginx.\n" +
		"Busy is how much of its processor the proxy used; one that is not saturated wakes up more often and pays for it.\n"
)

// comparison is the report of the scenarios as Markdown. What old, an earlier report, says of others is kept.
func (b *bench) comparison(results []result, old string) string {
	kept, intro := readReport(old)
	var out strings.Builder
	how := ""
	if len(kept) > len(results) {
		out.WriteString(intro)
		how = fmt.Sprintf("\nMeasured apart: `go run ./test/bench %s`\n", strings.Join(withoutOutput(os.Args[1:]), " "))
	} else {
		b.preamble(&out, fmt.Sprintf("%d connections, median of %d interleaved rounds of %v", b.conns, b.rounds, b.duration))
		out.WriteString(units + "\n" + overview)
	}
	for _, r := range results {
		kept[r.scenario.name] = entry{r.row(), r.section() + how}
	}
	for _, s := range scenarios {
		out.WriteString(kept[s.name].row)
	}
	for _, s := range scenarios {
		out.WriteString(kept[s.name].section)
	}
	return out.String()
}

var sectionHead = regexp.MustCompile("(?m)^\n\\*\\*(.+)\\*\\* \\(`(.+)`\\)\n")

// readReport takes a report apart.
func readReport(text string) (entries map[string]entry, intro string) {
	entries = map[string]entry{}
	heads := sectionHead.FindAllStringSubmatchIndex(text, -1)
	if len(heads) == 0 {
		return entries, ""
	}
	begin, _, ok := strings.Cut(text[:heads[0][0]], overview)
	if !ok {
		return entries, ""
	}
	rows := text[len(begin)+len(overview) : heads[0][0]]
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		e := entry{section: text[h[0]:end]}
		for row := range strings.Lines(rows) {
			if strings.HasPrefix(row, "| "+text[h[2]:h[3]]+" |") {
				e.row = row
			}
		}
		entries[text[h[4]:h[5]]] = e
	}
	return entries, begin + overview
}

// row is a scenario's line of the overview.
func (r result) row() string {
	nginx, weir, haproxy := r.find("nginx"), r.find("weir"), r.find("haproxy")
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |\n", r.scenario.title, cost(nginx), ratioText(haproxy, nginx),
		ratioText(r.find("reverseproxy"), nginx), cost(weir), ratioText(weir, nginx), ratioText(weir, haproxy))
}

// column is one of a section's table.
type column struct {
	title string
	cell  func(*series) string
}

// columns are those of a scenario's section.
func (r result) columns() []column {
	median := func(format string, of func(sample) float64) func(*series) string {
		return func(s *series) string { return fmt.Sprintf(format, medianOf(s.samples, of)) }
	}
	toNginx := column{"ratio to nginx", func(s *series) string { return ratioText(s, r.find("nginx")) }}
	if r.scenario.tool == toolIdle {
		return []column{{"KiB a connection", cost}, toNginx, {"MiB in all", median("%.0f", func(s sample) float64 { return s.total })}}
	}
	all := []column{
		{"CPU us/request", cost}, toNginx, {"requests/s", median("%.0f", sample.rate)},
		{"busy", median("%.0f %%", func(s sample) float64 { return s.cost * s.rate() / 1e4 })},
		{"p50 us", median("%.0f", func(s sample) float64 { return micros(s.p50) })},
		{"p99 us", median("%.0f", func(s sample) float64 { return micros(s.p99) })},
		{"failed", func(s *series) string {
			failed := 0
			for _, one := range s.samples {
				failed += one.failed
			}
			return strconv.Itoa(failed)
		}},
	}
	if r.scenario.setting.Mirror != "" {
		all = append(all, column{"mirrored", median("%.1f %%", func(s sample) float64 { return 100 * s.mirrored })})
	}
	return all
}

// section is the table of all contenders in a scenario.
func (r result) section() string {
	var out strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	p("\n**%s** (`%s`)\n", r.scenario.title, r.scenario.name)
	columns := r.columns()
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	p("| proxy | %s |", strings.Join(titles, " | "))
	p("|---|%s", strings.Repeat("---|", len(columns)))
	for _, s := range r.series {
		if len(s.samples) == 0 {
			p("| %s | did not serve |", s.label)
			continue
		}
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = c.cell(s)
		}
		p("| %s | %s |", s.label, strings.Join(cells, " | "))
	}
	if less := r.scenario.less; less != nil {
		if v, ok := ratio(r.find("weir").samples, r.find(less.label()).samples, costOf); ok {
			p("\nweir with %s costs %.2f of weir with %s.", less.much, v, less.little)
		}
	}
	if r.scenario.note != "" {
		p("\n%s", r.scenario.note)
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

// cost is the median of a series.
func cost(s *series) string {
	if len(s.samples) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", medianOf(s.samples, costOf))
}

func ratioText(s, to *series) string {
	v, ok := ratio(s.samples, to.samples, costOf)
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
// "<!-- name:end -->" where the file has them, else as the whole file. text gets the report that is there.
func (b *bench) report(name string, text func(old string) string) error {
	if b.output == "" {
		fmt.Println(text(""))
		return nil
	}
	page, err := os.ReadFile(b.output)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	begin, end := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->"
	if len(page) == 0 {
		page = []byte(begin + end + "\n")
	}
	head, rest, ok1 := strings.Cut(string(page), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		fmt.Println(text(""))
		return fmt.Errorf("%s exists and has no line %q: the table was not written", b.output, begin)
	}
	report := text(strings.TrimPrefix(strings.TrimSuffix(old, "\n"), "\n"))
	fmt.Println(report)
	return os.WriteFile(b.output, []byte(head+begin+"\n"+report+"\n"+end+tail), 0o644)
}
