package cli

import (
	"fmt"
	"strings"

	"github.com/weirmesh/weir/internal/diff"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/screen"
)

// access writes the calls that are allowed or denied now.
func (p *diffPrinter) access() {
	for i := range p.report.Access {
		c := &p.report.Access[i]
		for j := range c.Examples {
			line := callLine(&c.Examples[j])
			if more := c.Calls - len(c.Examples); j == len(c.Examples)-1 && more > 0 {
				line += fmt.Sprintf("   and %d more of those asked", more)
			}
			p.WriteString(p.Fold(line, 4) + "\n")
		}
		p.lines("before", []string{accessWords(&c.Before, p.sides[0].set)})
		p.lines("after", []string{accessWords(&c.After, p.sides[1].set)})
		p.WriteString(p.Fold("  from    "+names(c.Clients, c.MoreClients), 8) + "\n")
		p.WriteString(p.Fold("  to      "+names(c.Workloads, c.MoreWorkloads), 8) + "\n\n")
	}
	if n := p.report.AccessOmitted; n > 0 {
		p.WriteString(p.Fold(fmt.Sprintf("and %s more that differ in other ways", screen.Count(n, "call")), 2) + "\n\n")
	}
}

// accessMarkdown is access as a table.
func (p *diffPrinter) accessMarkdown() {
	if len(p.report.Access) > 0 {
		if len(p.report.Changes) > 0 {
			p.WriteByte('\n')
		}
		p.WriteString("| calls | from | to | before | after |\n|---|---|---|---|---|\n")
	}
	for i := range p.report.Access {
		c := &p.report.Access[i]
		var examples []string
		for j := range c.Examples {
			examples = append(examples, codeCell(what(&c.Examples[j])))
		}
		if more := c.Calls - len(c.Examples); more > 0 {
			examples = append(examples, fmt.Sprintf("and %d more", more))
		}
		fmt.Fprintf(p, "| %s | %s | %s | %s | %s |\n", strings.Join(examples, "<br>"), codeCell(names(c.Clients, c.MoreClients)), codeCell(names(c.Workloads, c.MoreWorkloads)),
			codeCell(accessWords(&c.Before, p.sides[0].set)), codeCell(accessWords(&c.After, p.sides[1].set)))
	}
	if n := p.report.AccessOmitted; n > 0 {
		fmt.Fprintf(p, "\nand %s more that differ in other ways\n", screen.Count(n, "call"))
	}
}

// callLine is a call in one line.
func callLine(c *diff.Call) string {
	return fmt.Sprintf("%s -> %s  %s", c.Client, c.Workload, what(c))
}

// what is asked for by a call.
func what(c *diff.Call) string {
	if c.Method == "" {
		return fmt.Sprintf("%s :%d", strings.ToUpper(c.Protocol), c.Port)
	}
	text := fmt.Sprintf("%s :%d%s", c.Method, c.Port, c.Path)
	for _, h := range c.Headers {
		text += " -H " + inQuotes(h.Name+": "+h.Value)
	}
	return text
}

func accessWords(a *diff.AccessAnswer, set *resource.Set) string {
	switch {
	case a.Verdict == "audited":
		return "passes, and is logged as one that would be denied"
	case a.Rule == (model.Ref{}) && a.Verdict == "allowed":
		return "allowed, as no rule names the workload"
	case a.Rule == (model.Ref{}):
		return a.Verdict
	}
	text := a.Verdict + " by " + a.Rule.String()
	if a.Match != (model.Ref{}) {
		text += ", " + a.Match.String()
	}
	if a.Binding != (model.Ref{}) {
		text += ", given by " + a.Binding.String()
	}
	if at := set.Origin(a.Rule).String(); at != "" {
		text += "  (" + at + ")"
	}
	return text
}

func names(first []string, more int) string {
	if more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(first, ", "), more)
	}
	return strings.Join(first, ", ")
}
