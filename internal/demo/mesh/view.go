package mesh

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/internal/screen"
)

// view shows the calls: as a table that is redrawn in place on a terminal, else as a line each second.
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
	s := screen.Of(v.out)
	web := d.sidecars[1]
	for _, line := range []string{
		"weir demo --mesh: web and report call cart, through sidecars with mutual TLS; only what a TrafficRole allows arrives",
		fmt.Sprintf("  try it   curl -x %s http://cart.shop/carts/1", web.outbound),
		fmt.Sprintf("  metrics  curl %smetrics", d.sidecars[0].gateway.Admin.URL()),
		fmt.Sprintf("           weir traffic topology deployments --admin %s", d.sidecars[0].gateway.Admin.Socket()),
		fmt.Sprintf("  change   edit %s/%s: it applies at once; after %v the demo gives the role to report, too", d.dir, roleFile, patience),
		"  end      Ctrl-C",
	} {
		fmt.Fprintln(v.out, s.Fold(line, 9))
	}
	fmt.Fprintln(v.out)
}

// words are what a verdict means for who calls.
var words = map[policy.Reason]string{
	policy.Ungoverned: "nothing governs cart", policy.NoIdentity: "no identity", policy.UnknownSource: "no rule is for this client",
	policy.NotPermitted: "no rule of this client is for the call", policy.AmbiguousPath: "servers read the path in several ways", policy.TooMuchWork: "too long",
}

func (r *row) result() string {
	if r.status == 403 {
		return "denied"
	}
	return fmt.Sprintf("allowed, %d", r.status)
}

func (r *row) why() string {
	if r.by != "" {
		return r.by
	}
	return words[r.verdict]
}

func (s *state) note() string {
	if s.edited == 0 {
		return ""
	}
	return fmt.Sprintf("role edited after %.0fs: report may read carts, too", s.edited.Seconds())
}

func (v *view) show(s *state) {
	if !v.terminal {
		fmt.Fprintln(v.out, line(s))
		return
	}
	text := table(screen.Of(v.out), s)
	up := ""
	if v.drawn > 0 {
		up = fmt.Sprintf("\x1b[%dA\x1b[J", v.drawn)
	}
	v.drawn = strings.Count(text, "\n")
	fmt.Fprint(v.out, up+text)
}

// line is the calls in one line: those of each client that are allowed.
func line(s *state) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%3.0fs", s.elapsed.Seconds())
	for i := range s.rows {
		r := &s.rows[i]
		fmt.Fprintf(&b, "  %s %s %s %s", r.from, r.method, r.path, strings.Split(r.result(), ",")[0])
	}
	return b.String()
}

func table(sc screen.Screen, s *state) string {
	rows := [][]string{{"CLIENT", "CALL", "RESULT", "ALLOWED", "DENIED", "WHY"}}
	for i := range s.rows {
		r := &s.rows[i]
		rows = append(rows, []string{r.from, r.method + " " + r.path, r.result(), fmt.Sprint(r.allowed), fmt.Sprint(r.denied), r.why()})
	}
	return sc.Table(rows, "WHY") + sc.Fit(s.note()) + "\n"
}

// summary is the last table.
func (v *view) summary(s *state) {
	if v.terminal {
		v.show(s)
	} else {
		fmt.Fprint(v.out, "\n"+table(screen.Of(v.out), s))
	}
	allowed, denied := 0, 0
	for i := range s.rows {
		allowed, denied = allowed+s.rows[i].allowed, denied+s.rows[i].denied
	}
	fmt.Fprintf(v.out, "%d calls allowed, %d denied, %d otherwise than the roles say\n", allowed, denied, s.wrong)
}
