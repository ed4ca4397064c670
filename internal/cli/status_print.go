package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirmesh/weir/internal/resource"
)

// statusPrinter writes tables with lines of text under their rows.
type statusPrinter struct {
	strings.Builder
	screen
	wide bool
}

func (r *statusReport) print(w io.Writer, wide bool, screen screen) error {
	p := &statusPrinter{wide: wide, screen: screen}
	if r.Cluster != nil {
		for _, l := range strings.Split(r.Cluster.String(), "\n") {
			p.WriteString(p.fold(l, 13) + "\n")
		}
	}
	of := func(kinds ...string) (out []*objectStatus) {
		for _, o := range r.Objects {
			for _, k := range kinds {
				if o.Kind == k {
					out = append(out, o)
				}
			}
		}
		return out
	}
	p.table([]string{"GATEWAYCLASS", "ACCEPTED"}, of("GatewayClass"), func(o *objectStatus) []string {
		return []string{o.Name, yes(o.Accepted)}
	})
	header := []string{"GATEWAY", "CLASS", "ADDRESSES", "LISTENERS", "ROUTES", "ACCEPTED", "PROGRAMMED"}
	if r.Cluster != nil {
		header = append(header, "PROXIES")
	}
	p.table(header, of("Gateway"), func(o *objectStatus) []string {
		row := []string{o.name(), o.Class, p.list(o.Addresses), p.listeners(o.Listeners), strconv.Itoa(*o.Routes), yes(o.Accepted), yes(o.Programmed)}
		if r.Cluster != nil {
			row = append(row, o.Proxies.String())
		}
		return row
	})
	p.table([]string{"LISTENERSET", "GATEWAY", "LISTENERS", "ACCEPTED", "PROGRAMMED"}, of("ListenerSet"), func(o *objectStatus) []string {
		return []string{o.name(), p.list(o.Parents), p.listeners(o.Listeners), yes(o.Accepted), yes(o.Programmed)}
	})
	p.table([]string{"ROUTE", "KIND", "HOSTNAMES", "PARENTS", "ACCEPTED", "RESOLVED"}, of("HTTPRoute", "GRPCRoute", "TCPRoute"), func(o *objectStatus) []string {
		hosts := p.list(o.Hostnames)
		if len(o.Hostnames) == 0 && o.Kind != "TCPRoute" {
			hosts = "any"
		}
		return []string{o.name(), o.Kind, hosts, p.list(o.Parents), yes(o.Accepted), yes(o.Resolved)}
	})
	p.table([]string{"TRAFFICSPLIT", "ROOT", "LEAVES", "MATCHES", "ACCEPTED", "RESOLVED"}, of(splitKind), func(o *objectStatus) []string {
		matches := "any"
		if len(o.Split.Matches) > 0 {
			matches = p.list(o.Split.Matches)
		}
		return []string{o.name(), o.Split.Root, p.list(o.Split.shares()), matches, yes(o.Accepted), yes(o.Resolved)}
	})
	p.table([]string{"BACKENDTLSPOLICY", "FOR", "ACCEPTED", "RESOLVED"}, of("BackendTLSPolicy"), func(o *objectStatus) []string {
		return []string{o.name(), p.list(o.Parents), yes(o.Accepted), yes(o.Resolved)}
	})
	p.others(r)
	p.WriteString(r.summary() + "\n")
	_, err := io.WriteString(w, p.String())
	return err
}

// others prints the problems without a row.
func (p *statusPrinter) others(r *statusReport) {
	if len(r.Problems) == 0 {
		return
	}
	p.WriteString("OTHERS\n")
	last := ""
	for _, f := range r.Problems {
		head := findingHead(f)
		if head == "" && r.Cluster != nil {
			head = "(cluster)"
		}
		if head != last {
			p.WriteString(head + "\n")
		}
		last = head
		p.problem(objectProblem{Severity: f.Severity, Code: f.Code, Field: f.Ref.Field, Message: f.Message, Fix: f.Fix})
	}
	p.WriteByte('\n')
}

func (r *statusReport) summary() string {
	n := map[resource.Severity]int{}
	for _, f := range r.Problems {
		n[f.Severity]++
	}
	gateways, routes, splits := 0, 0, 0
	for _, o := range r.Objects {
		switch {
		case o.Kind == "Gateway":
			gateways++
		case strings.HasSuffix(o.Kind, "Route"):
			routes++
		case o.Kind == splitKind:
			splits++
		}
		for _, p := range o.Problems {
			n[p.Severity]++
		}
	}
	objects := count(gateways, "Gateway") + ", " + count(routes, "route")
	if splits > 0 {
		objects += ", " + count(splits, "split")
	}
	if len(n) == 0 {
		return objects + ": nothing is wrong"
	}
	text := objects + ": " + count(n[resource.Error], "error") + ", " + count(n[resource.Warning], "warning")
	if n[resource.Info] > 0 {
		text += ", " + count(n[resource.Info], "note")
	}
	return text
}

func (o *objectStatus) name() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// yes is a condition's status in a table.
func yes(status string) string {
	switch status {
	case "True":
		return "yes"
	case "False":
		return "no"
	case "":
		return "-"
	}
	return "unknown"
}

func (s *proxiesStatus) String() string {
	if s == nil {
		return "-"
	}
	text := fmt.Sprintf("%d/%d ready", s.Ready, s.Wanted)
	if s.Current != nil && s.Ready > 0 {
		text += fmt.Sprintf(", %d current", *s.Current)
	}
	return text
}

// most is how many of several things a narrow table shows.
const most = 3

// list joins the entries, and cuts long lists.
func (p *statusPrinter) list(all []string) string {
	if len(all) == 0 {
		return "-"
	}
	if p.wide || len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s, +%d", strings.Join(all[:most], ", "), len(all)-most)
}

func (p *statusPrinter) listeners(all []listenerRow) string {
	var out []string
	seen := map[string]bool{}
	for _, l := range all {
		text := fmt.Sprintf("%s:%d", l.Protocol, l.Port)
		if p.wide {
			text = fmt.Sprintf("%s %s:%d", l.Name, l.Protocol, l.Port)
			if l.Hostname != "" {
				text += " " + l.Hostname
			}
			text += fmt.Sprintf(" (%d)", l.Routes)
		}
		if !seen[text] {
			seen[text] = true
			out = append(out, text)
		}
	}
	return p.list(out)
}

// table prints a row for each object with its problems below; nothing without objects.
func (p *statusPrinter) table(header []string, objects []*objectStatus, cells func(*objectStatus) []string) {
	if len(objects) == 0 {
		return
	}
	widths := make([]int, len(header))
	rows := [][]string{header}
	for _, o := range objects {
		rows = append(rows, cells(o))
	}
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	least := make([]int, len(header))
	for i, h := range header {
		least[i] = max(leastColumn, len(h))
	}
	widths = p.columns(widths, least, 2)
	for i, row := range rows {
		p.row(row, widths)
		if i == 0 {
			continue
		}
		if o := objects[i-1]; p.wide && o.Origin != "" {
			p.WriteString("  from " + o.Origin + "\n")
		}
		for _, problem := range objects[i-1].Problems {
			p.problem(problem)
		}
	}
	p.WriteByte('\n')
}

// leastColumn is the width that a column keeps however narrow the screen is; its header's, if that is more.
const leastColumn = 8

// row writes a row, in as many lines as the cell with the most needs.
func (p *statusPrinter) row(cells []string, widths []int) {
	parts, lines := make([][]string, len(cells)), 1
	for i, cell := range cells {
		parts[i] = []string{cell}
		if utf8.RuneCountInString(cell) > widths[i] {
			parts[i] = cellLines(cell, widths[i])
		}
		lines = max(lines, len(parts[i]))
	}
	for n := range lines {
		var b strings.Builder
		gap := ""
		for i := range cells {
			cell := ""
			if n < len(parts[i]) {
				cell = parts[i][n]
			}
			next := strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(cell), 0)+2)
			switch cell {
			case "":
				gap += next
				continue
			case "yes":
				cell = p.in(green, cell)
			case "no":
				cell = p.in(red, cell)
			case "unknown":
				cell = p.in(yellow, cell)
			}
			b.WriteString(gap + cell)
			gap = next
		}
		p.WriteString(b.String() + "\n")
	}
}

func (p *statusPrinter) problem(o objectProblem) {
	colour := severityColour(o.Severity)
	head := o.Code
	if o.Condition != "" {
		head = o.Condition + " " + o.Reason
	}
	p.WriteString("  " + p.in(colour, fmt.Sprintf("%-7s", o.Severity)) + p.fold(strings.Repeat(" ", 10)+strings.TrimSpace(head+"  "+o.Field), 0)[9:] + "\n")
	p.WriteString(wrap(o.Message, 10, p.prose()))
	if o.Fix != "" {
		p.WriteString(wrap("fix: "+o.Fix, 10, p.prose()))
	}
}
