package demo

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/visible"
)

// view shows observations: as a table that is redrawn in place on a terminal, else as a line each.
type view struct {
	out      io.Writer
	screen   func() screen.Screen // its size may change
	terminal bool
	drawn    int // lines of the table on the screen
}

func newView(out io.Writer) *view {
	v := &view{out: out, screen: func() screen.Screen { return screen.Of(out) }}
	if f, ok := out.(*os.File); ok {
		v.terminal = term.IsTerminal(int(f.Fd()))
	}
	return v
}

func (v *view) intro(d *demo) {
	admin := d.gateway.Admin.URL()
	change, end := fmt.Sprintf("  change   edit %s/demo.yaml: new weights and fractions apply at once\n", d.dir), "Ctrl-C"
	if d.Rollout {
		change = fmt.Sprintf("  control  weir rollout get shop -w --admin %s\n           weir rollout pause shop --admin %s\n", admin, admin)
		end = "with the release, or Ctrl-C"
	}
	text := fmt.Sprintf(`weir demo: a gateway, three toy services and %d requests a second, all in this process
  try it   curl %s
           curl -H 'x-beta: yes' %s
  metrics  curl %smetrics
           weir traffic top services --admin %s
%s  end      %s
`, d.Rate, d.url(), d.url(), admin, d.gateway.Admin.Socket(), change, end)
	if !resource.ChecksRules() {
		text += "  note     this small program does not check rules that compare fields (CEL): \"weir demo\" and \"weir check\" do\n"
	}
	for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		fmt.Fprintln(v.out, v.screen().Fold(l, 9))
	}
	if !v.terminal {
		fmt.Fprintln(v.out)
	}
}

func (v *view) show(o observation) {
	if !v.terminal {
		fmt.Fprintln(v.out, visible.Text(line(o))) // no table to redraw
		return
	}
	table := tables(v.screen(), o)
	up := v.back()
	v.drawn = strings.Count(table, "\n")
	fmt.Fprint(v.out, up+table)
}

// back moves the cursor to the first line of the table on the screen and clears the screen from there.
func (v *view) back() string {
	if v.drawn == 0 {
		return "\n"
	}
	return fmt.Sprintf("\x1b[%dA\x1b[J", v.drawn)
}

// line formats an observation as one line.
func line(o observation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%3.0fs  %4.0f rps  success %s", o.elapsed.Seconds(), rps(o.total, o.interval), success(o.total))
	for _, r := range o.backends {
		if r.wanted < 1 {
			fmt.Fprintf(&b, "  %s %s of %s", short(r.backend), share(r.share), share(r.wanted))
		}
	}
	for _, r := range o.mirrors {
		fmt.Fprintf(&b, "  mirror %s %s of %s (sent %d, dropped %d, failed %d)",
			short(r.mirror), share(r.selected()), share(r.wanted()), r.Sent, r.Dropped, r.Failed)
	}
	if o.rollout != nil {
		b.WriteString("  " + o.rollout.Short())
	}
	fmt.Fprintf(&b, "  p50 %s  p99 %s", latency(o.total.Latency.Quantile(0.5)), latency(o.total.Latency.Quantile(0.99)))
	if len(o.problems) > 0 {
		b.WriteString("  " + o.problems[0])
	}
	return b.String()
}

func (r mirrorRow) wanted() float64 { return float64(r.numerator) / float64(max(r.denominator, 1)) }

// selected is the share that was copied; below zero if there was nothing to copy.
func (r mirrorRow) selected() float64 { return partOf(float64(r.Selected), r.Considered) }

// tables returns an observation as tables. No line is wider than the screen.
func tables(s screen.Screen, o observation) string {
	rows := [][]string{{"RULE", "BACKEND", "WANTED", "SHARE", "REQUESTS", "SUCCESS", "RPS", "P50", "P99"}}
	for _, r := range o.backends {
		rows = append(rows, []string{
			r.rule, short(r.backend), share(r.wanted), share(r.share), strconv.FormatUint(r.Requests, 10), success(r.ExchangeSnapshot),
			fmt.Sprintf("%.0f", rps(r.ExchangeSnapshot, o.interval)), latency(r.Latency.Quantile(0.5)), latency(r.Latency.Quantile(0.99)),
		})
	}
	text := s.Table(rows, "RPS", "P50", "REQUESTS", "P99", "SUCCESS") + "\n"
	if o.rollout != nil {
		text += s.Fit(visible.Text("rollout: "+o.rollout.Short())) + "\n" + s.Fold("  "+visible.Text(o.rollout.Message), 2) + "\n\n"
	}
	if len(o.mirrors) > 0 {
		text += mirrors(s, o)
	}
	state := fmt.Sprintf("%.0f s, configuration %d, clients: %d requests, %d failed", o.elapsed.Seconds(), o.generation, o.sent, o.failed)
	if o.generation > 1 {
		state = fmt.Sprintf("%.0f s, clients: %d requests, %d failed; the tables show the %.0f s of configuration %d",
			o.elapsed.Seconds(), o.sent, o.failed, o.interval.Seconds(), o.generation)
	}
	text += s.Fit(state) + "\n"
	for _, p := range o.problems {
		text += s.Fold(p, 2) + "\n"
	}
	return text
}

func mirrors(s screen.Screen, o observation) string {
	rows := [][]string{{"RULE", "MIRROR", "WANTED", "SHARE", "MIRRORED", "OF", "SENT", "DROPPED", "FAILED"}}
	for _, r := range o.mirrors {
		row := []string{r.rule, short(r.mirror), share(r.wanted()), share(r.selected())}
		for _, n := range []uint64{r.Selected, r.Considered, r.Sent, r.Dropped, r.Failed} {
			row = append(row, strconv.FormatUint(n, 10))
		}
		rows = append(rows, row)
	}
	return s.Table(rows, "OF", "MIRRORED", "SENT", "FAILED") + "\n"
}

// summary shows the final tables, and the counts since the start, as clients, mirrors and toy services saw them.
func (v *view) summary(o observation, measured string) error {
	var received []string
	for _, t := range o.received {
		received = append(received, fmt.Sprintf("%s %d", t.name, t.requests))
	}
	outcomes := ""
	for _, c := range o.outcomes {
		outcomes += fmt.Sprintf("  %s %d", c.Outcome, c.Count)
	}
	since := ""
	if o.generation > 1 {
		since = "since the start:\n"
	}
	if outcomes != "" {
		outcomes = "mirror outcomes:" + outcomes + "\n"
	}
	_, err := fmt.Fprintf(v.out, "%s%s\n%s\n%sservices received: %s\n%sclients: %d requests, %d failed\n",
		v.back(), tables(v.screen(), o), measured, since, strings.Join(received, ", "), outcomes, o.sent, o.failed)
	return err
}

func rps(x telemetry.ExchangeSnapshot, interval time.Duration) float64 {
	if interval <= 0 {
		return 0
	}
	return float64(x.Requests) / interval.Seconds()
}

// share formats a part of 1 as a percentage; "-" for a part of nothing, which is below zero.
func share(p float64) string {
	if p < 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f%%", p*100)
}

// success is the share of successful requests.
func success(x telemetry.ExchangeSnapshot) string {
	if x.Requests == 0 {
		return "-"
	}
	return share(x.Success())
}

// short drops the namespace and port from a service's name.
func short(service string) string {
	if i := strings.IndexByte(service, '/'); i >= 0 {
		service = service[i+1:]
	}
	if i := strings.LastIndexByte(service, ':'); i >= 0 {
		service = service[:i]
	}
	return service
}

func latency(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Millisecond:
		return fmt.Sprintf("%dus", d.Microseconds())
	default:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	}
}
