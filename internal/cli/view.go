package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/weirmesh/weir/internal/telemetry"
)

// view shows observations: on a terminal a table that is redrawn in place, else a line each.
type view struct {
	out      io.Writer
	terminal bool
	drawn    int // lines of the table on the screen
}

func newView(out io.Writer) *view {
	v := &view{out: out}
	if f, ok := out.(*os.File); ok {
		v.terminal = term.IsTerminal(int(f.Fd()))
	}
	return v
}

func (v *view) intro(d *demo) {
	fmt.Fprintf(v.out, `weir demo: a gateway, three toy services and %d requests a second, all in this process
  try it   curl %s
           curl -H 'x-beta: yes' %s
  metrics  curl %smetrics
  change   edit %s/demo.yaml: new weights and fractions apply at once
  end      Ctrl-C
`, d.rate, d.url(), d.url(), d.gateway.Admin.URL(), d.dir)
	if !v.terminal {
		fmt.Fprintln(v.out)
	}
}

func (v *view) show(o observation) {
	if !v.terminal {
		fmt.Fprintln(v.out, line(o)) // nothing to draw over
		return
	}
	o.problem = v.fit(o.problem)
	table := tables(o)
	up := v.back()
	v.drawn = strings.Count(table, "\n")
	fmt.Fprint(v.out, up+table)
}

// back takes the cursor to the first line of the table on the screen and clears from there.
func (v *view) back() string {
	if v.drawn == 0 {
		return "\n"
	}
	return fmt.Sprintf("\x1b[%dA\x1b[J", v.drawn)
}

// fit cuts a text to the screen's width, as a line that wraps would upset the drawing.
func (v *view) fit(text string) string {
	f, ok := v.out.(*os.File)
	if !ok {
		return text
	}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 3 && len(text) > width {
		return text[:width-3] + "..."
	}
	return text
}

// line is an observation in one line.
func line(o observation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%3.0fs  %4.0f rps  success %s", o.elapsed.Seconds(), rps(o.total, o.interval), share(o.total.Success()))
	for _, r := range o.backends {
		if r.wanted < 1 {
			fmt.Fprintf(&b, "  %s %s of %s", short(r.backend), share(r.share), share(r.wanted))
		}
	}
	for _, r := range o.mirrors {
		fmt.Fprintf(&b, "  mirror %s %s of %s (sent %d, dropped %d, failed %d)",
			short(r.mirror), share(r.selected()), share(r.wanted()), r.Sent, r.Dropped, r.Failed)
	}
	fmt.Fprintf(&b, "  p50 %s  p99 %s", latency(o.total.Latency.Quantile(0.5)), latency(o.total.Latency.Quantile(0.99)))
	if o.problem != "" {
		b.WriteString("  " + o.problem)
	}
	return b.String()
}

func (r mirrorRow) wanted() float64 { return float64(r.numerator) / float64(max(r.denominator, 1)) }

func (r mirrorRow) selected() float64 { return float64(r.Selected) / float64(max(r.Considered, 1)) }

// tables is an observation as tables.
func tables(o observation) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "RULE\tBACKEND\tWANTED\tSHARE\tREQUESTS\tSUCCESS\tRPS\tP50\tP99\t")
	for _, r := range o.backends {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%.0f\t%s\t%s\t\n", r.rule, short(r.backend), share(r.wanted), share(r.share),
			r.Requests, share(r.Success()), rps(r.ExchangeSnapshot, o.interval),
			latency(r.Latency.Quantile(0.5)), latency(r.Latency.Quantile(0.99)))
	}
	w.Flush()
	b.WriteByte('\n')
	w = tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "RULE\tMIRROR\tWANTED\tSHARE\tMIRRORED\tOF\tSENT\tDROPPED\tFAILED\t")
	for _, r := range o.mirrors {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t\n", r.rule, short(r.mirror), share(r.wanted()), share(r.selected()),
			r.Selected, r.Considered, r.Sent, r.Dropped, r.Failed)
	}
	w.Flush()
	fmt.Fprintf(&b, "\n%.0f s, configuration %d, clients: %d requests, %d failed\n",
		o.elapsed.Seconds(), o.generation, o.sent, o.failed)
	if o.problem != "" {
		b.WriteString(o.problem + "\n")
	}
	return b.String()
}

// summary is the last word: all that happened, and what the toy services saw of it.
func (v *view) summary(o observation, d *demo) error {
	var received []string
	for _, t := range o.received {
		received = append(received, fmt.Sprintf("%s %d", t.name, t.requests))
	}
	drops := ""
	for _, m := range o.mirrors {
		for _, c := range m.Outcomes {
			drops += fmt.Sprintf("  %s %d", c.Outcome, c.Count)
		}
	}
	_, err := fmt.Fprintf(v.out, "%s%s\nservices received: %s\nmirror outcomes:%s\nclients: %d requests, %d failed\n",
		v.back(), tables(o), strings.Join(received, ", "), drops, o.sent, o.failed)
	return err
}

func rps(x telemetry.ExchangeSnapshot, interval time.Duration) float64 {
	if interval <= 0 {
		return 0
	}
	return float64(x.Requests) / interval.Seconds()
}

func share(p float64) string { return fmt.Sprintf("%.2f%%", p*100) }

// short drops the namespace and port of a service's name.
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
