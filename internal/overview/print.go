package overview

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
)

// statusPrinter writes tables with lines of text under their rows.
type statusPrinter struct {
	strings.Builder
	screen.Screen
	wide bool
}

// Print writes the overview as tables. Wide tables omit nothing.
func (r *Report) Print(w io.Writer, wide bool, on screen.Screen) error {
	p := &statusPrinter{wide: wide, Screen: on}
	if r.Cluster != nil {
		for _, l := range strings.Split(r.Cluster.String(), "\n") {
			p.WriteString(p.Fold(l, 13) + "\n")
		}
	}
	for i, k := range r.kinds {
		if slices.ContainsFunc(r.kinds[:i], func(before *resource.Kind) bool { return before.Table == k.Table }) {
			continue // they share a table
		}
		var shown []*objectStatus
		for _, o := range r.Objects {
			if of := r.kinds.Of(model.Ref{Kind: o.Kind}); of != nil && of.Table == k.Table {
				shown = append(shown, o)
			}
		}
		header := []string{k.Table}
		for _, c := range k.Columns {
			if c.Header != proxiesColumn || r.Cluster != nil {
				header = append(header, c.Header)
			}
		}
		p.table(header, shown, func(o *objectStatus) []string {
			row := []string{o.name()}
			for _, h := range header[1:] {
				row = append(row, p.cell(o, h))
			}
			return row
		})
	}
	p.others(r)
	p.WriteString(r.summary() + "\n")
	return on.Print(w, p.String())
}

// proxiesColumn is only for clusters.
const proxiesColumn = "PROXIES"

// cell returns an object's value in a column: one that its kind describes, or one of the built-in columns.
func (p *statusPrinter) cell(o *objectStatus, header string) string {
	if own, ok := o.Columns[header]; ok {
		return p.list(own)
	}
	switch header {
	case "ACCEPTED":
		return yes(o.Accepted)
	case "PROGRAMMED":
		return yes(o.Programmed)
	case "RESOLVED":
		return yes(o.Resolved)
	case "EFFECTIVE":
		return yes(o.Effective)
	case "KIND":
		return o.Kind
	case "CLASS":
		return o.Class
	case "ADDRESSES":
		return p.list(o.Addresses)
	case "LISTENERS":
		return p.listeners(o.Listeners)
	case "GATEWAY", "PARENTS", "FOR":
		return p.list(o.Parents)
	case proxiesColumn:
		return o.Proxies.String()
	case "ROUTES":
		if o.Routes != nil {
			return strconv.Itoa(*o.Routes)
		}
	case "HOSTNAMES":
		if len(o.Hostnames) == 0 && o.Kind != "TCPRoute" {
			return "any"
		}
		return p.list(o.Hostnames)
	}
	if o.Split == nil {
		return "-"
	}
	switch header {
	case "ROOT":
		return o.Split.Root
	case "LEAVES":
		return p.list(o.Split.shares())
	case "MATCHES":
		if len(o.Split.Matches) > 0 {
			return p.list(o.Split.Matches)
		}
		return "any"
	}
	return "-"
}

// others prints problems of objects without a row.
func (p *statusPrinter) others(r *Report) {
	if len(r.Problems) == 0 {
		return
	}
	p.WriteString("OTHERS\n")
	last := ""
	for _, f := range r.Problems {
		head := f.About()
		if head == "" && r.Cluster != nil {
			head = "(cluster)"
		}
		if head != last {
			p.WriteString(visible.Text(head) + "\n")
		}
		last = head
		p.problem(objectProblem{Severity: f.Severity, Code: f.Code, Field: f.Ref.Field, Message: f.Message, Fix: f.Fix})
	}
	p.WriteByte('\n')
}

func (r *Report) summary() string {
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
	objects := screen.Count(gateways, "Gateway") + ", " + screen.Count(routes, "route")
	if splits > 0 {
		objects += ", " + screen.Count(splits, "split")
	}
	if len(n) == 0 {
		return objects + ": nothing is wrong"
	}
	text := objects + ": " + screen.Count(n[resource.Error], "error") + ", " + screen.Count(n[resource.Warning], "warning")
	if n[resource.Info] > 0 {
		text += ", " + screen.Count(n[resource.Info], "note")
	}
	return text
}

func (o *objectStatus) name() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// yes formats a condition's status for a table.
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

// most is how many of several entries a narrow table shows.
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

// table prints a row for each object, with its problems below. It prints nothing if there are no objects.
func (p *statusPrinter) table(header []string, objects []*objectStatus, cells func(*objectStatus) []string) {
	if len(objects) == 0 {
		return
	}
	widths := make([]int, len(header))
	rows := [][]string{header}
	for _, o := range objects {
		row := cells(o)
		for i := range row {
			row[i] = visible.Text(row[i])
		}
		rows = append(rows, row)
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
	widths = p.Columns(widths, least, 2)
	for i, row := range rows {
		p.row(row, widths)
		if i == 0 {
			continue
		}
		if o := objects[i-1]; p.wide && o.Origin != "" {
			p.WriteString("  from " + visible.Text(o.Origin) + "\n")
		}
		for _, problem := range objects[i-1].Problems {
			p.problem(problem)
		}
	}
	p.WriteByte('\n')
}

// leastColumn is the least width of a column on a narrow screen, unless its header is wider.
const leastColumn = 8

// row writes a row. The row has as many lines as its longest cell.
func (p *statusPrinter) row(cells []string, widths []int) {
	parts, lines := make([][]string, len(cells)), 1
	for i, cell := range cells {
		parts[i] = []string{cell}
		if utf8.RuneCountInString(cell) > widths[i] {
			parts[i] = screen.CellLines(cell, widths[i])
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
				cell = p.In(screen.Green, cell)
			case "no":
				cell = p.In(screen.Red, cell)
			case "unknown":
				cell = p.In(screen.Yellow, cell)
			}
			b.WriteString(gap + cell)
			gap = next
		}
		p.WriteString(b.String() + "\n")
	}
}

func (p *statusPrinter) problem(o objectProblem) {
	head := o.Code
	if o.Condition != "" {
		head = o.Condition + " " + o.Reason
	}
	p.WriteString(p.Problem(o.Severity.String(), strings.TrimSpace(head+"  "+o.Field), o.Message, o.Fix))
}
