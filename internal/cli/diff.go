package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/diff"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
)

func newDiff(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Say which requests two versions of files would answer differently",
		Long: `Diff translates two files or folders, matches the same requests against both,
and shows the requests that would be answered differently: by which backends, in
which shares, with which copies, filters, timeouts and retries, with examples;
and the calls between workloads that access control would allow or deny now.
Requests to Services with routes of their own are asked at these.
Nothing is sent. The requests are made from the matches of both versions. Parts
that only move or change their name are not a difference.

The exit code is 0 if there is no difference, 1 if there are some, 2 if one of
the two could not be read. Diff guesses from NEW whether both are for "weir run"
or a cluster; --target sets it.`,
		Example: `  weir diff old/ new/
  git worktree add /tmp/base origin/main && weir diff /tmp/base/routes routes/
  weir diff -o markdown old/ new/ >> "$GITHUB_STEP_SUMMARY"
  weir diff -o json old/ new/`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return flags.Errorf("give two paths: weir diff OLD NEW")
			}
			return nil
		},
	}
	output := outputFlag(cmd, "text", "json", "markdown")
	options, target := translation(s, cmd), targetFlag(cmd)
	options.Calls = true
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		var sides [2]diffSide
		for i, path := range args {
			set, err := resource.Load(options.Kinds(), []string{path}, s.in)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			sides[i] = diffSide{path: path, set: set}
		}
		meant := choose(target, sides[1].set)
		if len(sides[1].set.Origins) == 0 {
			meant = choose(target, sides[0].set)
		}
		for i, path := range args {
			set := sides[i].set
			result, err := options.For(meant.Target).Translate(set)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			sides[i].config, sides[i].calls = result.Config, result.Calls
			if r := newCheckReport(set, result.Findings); r.Errors > 0 {
				fmt.Fprintln(s.err, visible.Text(fmt.Sprintf("weir: %s: %s; what is left out is missing in the comparison; \"weir check %s\" shows it", path, r.summary(), path)))
			}
		}
		report := diff.Compare(sides[0].config, sides[1].config, options.TrustDomain)
		compareCalls(report, sides[0].calls, sides[1].calls)
		p := &diffPrinter{Screen: screen.Of(s.out), sides: sides, report: report}
		var err error
		switch output.Value {
		case "json":
			err = process.WriteJSON(s.out, report)
		case "markdown":
			err = screen.Screen{}.Print(s.out, p.markdown())
		default:
			err = p.Print(s.out, p.text())
		}
		if err == nil && !report.Same() {
			return &exitError{code: exitFailed}
		}
		return err
	}
	return cmd
}

// compareCalls compares what pods send to Services for which routes are written on either side.
func compareCalls(r *diff.Report, before, after *control.Calls) {
	all := append(before.Written(), after.Written()...)
	slices.SortFunc(all, func(a, b control.Call) int { return strings.Compare(a.String(), b.String()) })
	for _, c := range slices.Compact(all) {
		x, xs := before.Of(c)
		y, ys := after.Of(c)
		r.Call("Service "+c.String(), x, y)
		r.Call("Service "+c.String(), xs, ys)
	}
}

type diffSide struct {
	path   string
	set    *resource.Set
	config *model.Config
	calls  *control.Calls
}

type diffPrinter struct {
	strings.Builder
	screen.Screen
	sides  [2]diffSide
	report *diff.Report
}

func (p *diffPrinter) summary() string {
	r := p.report
	if r.Same() {
		return fmt.Sprintf("no difference in %s asked%s\n", p.asked(), p.thinned())
	}
	text := fmt.Sprintf("%s in %s asked%s", screen.Count(len(r.Changes)+len(r.Access), "difference"), p.asked(), p.thinned())
	if n := len(r.Services); n > 0 {
		text += fmt.Sprintf(", %s changed", screen.Count(n, "service"))
	}
	if n := len(r.Listeners); n > 0 {
		text += fmt.Sprintf(", %s changed", screen.Count(n, "listener"))
	}
	return text + "\n"
}

// asked is what was compared: requests to listeners, and calls between workloads where there is access control.
func (p *diffPrinter) asked() string {
	requests := screen.Count(p.report.Asked, "request")
	calls := screen.Count(p.report.AccessAsked, "call")
	switch {
	case p.report.AccessAsked == 0:
		return requests
	case p.report.Asked == 0:
		return calls
	}
	return requests + " and " + calls
}

func (p *diffPrinter) thinned() string {
	if p.report.Thinned {
		return " (too many combinations to ask all)"
	}
	return ""
}

// text is the report for a terminal.
func (p *diffPrinter) text() string {
	for i := range p.report.Changes {
		c := &p.report.Changes[i]
		for j, e := range c.Examples {
			line := requestLine(&e)
			if more := c.Requests - len(c.Examples); j == len(c.Examples)-1 && more > 0 {
				line += fmt.Sprintf("   and %d more of those asked", more)
			}
			p.WriteString(p.Fold(line, 4) + "\n")
		}
		p.lines("before", outcomeLines(&c.Before, p.sides[0].set, c.Differ))
		p.lines("after", outcomeLines(&c.After, p.sides[1].set, c.Differ))
		p.WriteString(p.Fold("  differ  "+strings.Join(c.Differ, ", "), 8) + "\n\n")
	}
	p.access()
	for _, part := range p.report.Services {
		p.WriteString(p.Fold(fmt.Sprintf("service   %s: %s", part.Name, strings.Join(part.Differ, ", ")), 10) + "\n")
	}
	for _, part := range p.report.Listeners {
		p.WriteString(p.Fold(fmt.Sprintf("listener  %s: %s", part.Name, strings.Join(part.Differ, ", ")), 10) + "\n")
	}
	if len(p.report.Services)+len(p.report.Listeners) > 0 {
		p.WriteString("\n")
	}
	p.WriteString(p.summary())
	return p.String()
}

func (p *diffPrinter) lines(label string, lines []string) {
	for _, l := range lines {
		colour := map[string]string{"before": screen.Red, "after": screen.Green}[label]
		head := "  " + fmt.Sprintf("%-7s", label)
		if label != "" {
			head = "  " + p.In(colour, fmt.Sprintf("%-7s", label))
		}
		p.WriteString(head + p.Fold(strings.Repeat(" ", 10)+l, 2)[9:] + "\n")
		label = ""
	}
}

// markdown is the report for a pull request.
func (p *diffPrinter) markdown() string {
	p.WriteString("### What requests would meet: " + p.summary() + "\n")
	if len(p.report.Changes) > 0 {
		p.WriteString("| requests | before | after |\n|---|---|---|\n")
	}
	for i := range p.report.Changes {
		c := &p.report.Changes[i]
		var examples []string
		for _, e := range c.Examples {
			examples = append(examples, codeCell(requestLine(&e)))
		}
		if more := c.Requests - len(c.Examples); more > 0 {
			examples = append(examples, fmt.Sprintf("and %d more", more))
		}
		cells := func(o *diff.Outcome, set *resource.Set) string {
			var out []string
			for _, l := range outcomeLines(o, set, c.Differ) {
				out = append(out, codeCell(l))
			}
			return strings.Join(out, "<br>")
		}
		fmt.Fprintf(p, "| %s | %s | %s |\n", strings.Join(examples, "<br>"), cells(&c.Before, p.sides[0].set), cells(&c.After, p.sides[1].set))
	}
	p.accessMarkdown()
	for _, part := range p.report.Services {
		fmt.Fprintf(p, "\nService %s: %s\n", codeCell(part.Name), strings.Join(part.Differ, ", "))
	}
	for _, part := range p.report.Listeners {
		fmt.Fprintf(p, "\nListener %s: %s\n", codeCell(part.Name), strings.Join(part.Differ, ", "))
	}
	return p.String()
}

// codeCell is text as code in a cell of a table, whatever it contains.
func codeCell(text string) string {
	text = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", "&#124;", "\n", " ", "`", "&#96;").Replace(visible.Text(text))
	return "<code>" + text + "</code>"
}

// requestLine is a request as "weir explain" takes it.
func requestLine(r *diff.Request) string {
	host := r.Host
	if host == "" {
		host = cmp.Or(r.Address, "localhost")
	}
	at := ""
	if r.Gateway != "" {
		at = "  at " + r.Gateway
	}
	if !r.Scheme.Requests() {
		return fmt.Sprintf("%s://%s:%d%s", r.Scheme, host, r.Port, at)
	}
	line := fmt.Sprintf("%s://%s", r.Scheme, host)
	if standard := map[model.Protocol]int32{model.HTTP: 80, model.HTTPS: 443}[r.Scheme]; standard != r.Port {
		line += fmt.Sprintf(":%d", r.Port)
	}
	line += r.Path
	if r.Query != "" {
		line += "?" + r.Query
	}
	line = r.Method + " " + quoted(line)
	for _, h := range r.Headers {
		line += " -H " + inQuotes(h.Name+": "+h.Value)
	}
	return line + at
}

// quoted is a word for pasting into a shell: quoted if it has characters with a meaning for some shell.
func quoted(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:@_") == "" {
		return word
	}
	return inQuotes(word)
}

func inQuotes(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// outcomeLines describe who answers, and the differing rest.
func outcomeLines(o *diff.Outcome, set *resource.Set, differ []string) (lines []string) {
	if o.Answer != "" {
		lines = append(lines, o.Answer)
	}
	for _, s := range o.Backends {
		lines = append(lines, fmt.Sprintf("%s  %s", screen.Percent(s.Of), cmp.Or(s.Service, s.Answer)))
	}
	for _, s := range o.Mirrors {
		lines = append(lines, fmt.Sprintf("%s  copied to %s", screen.Percent(s.Of), cmp.Or(s.Service, s.Answer)))
	}
	for _, part := range []struct {
		name  string
		value any
	}{{"filters", o.Filters}, {"timeouts", o.Timeouts}, {"retry", o.Retry}, {"session", o.Session}} {
		if slices.Contains(differ, part.name) {
			// Plain data: it always marshals.
			text, _ := json.Marshal(part.value)
			lines = append(lines, part.name+" "+string(text))
		}
	}
	if o.Rule != nil {
		where := ""
		if at := set.Origin(*o.Rule).String(); at != "" {
			where = "  (" + at + ")"
		}
		lines = append(lines, "by "+o.Rule.String()+where)
	}
	return lines
}
