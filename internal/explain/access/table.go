package access

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
)

// Print writes the matrix as two tables: when workloads deny, and what is allowed.
func (m *Matrix) Print(w io.Writer, on screen.Screen) error {
	var b strings.Builder
	rows := [][]string{{"WORKLOAD", "ACCOUNT", "STATE", "RULES"}}
	open := 0
	for i := range m.Workloads {
		g := &m.Workloads[i]
		rows = append(rows, []string{finding.Object(g.Workload), g.Account, g.State.String(), fmt.Sprint(g.Rules)})
		if g.State.Deny == "never" {
			open++
		}
	}
	if len(rows) > 1 {
		table(&b, on, rows)
		b.WriteByte('\n')
	}
	rows = [][]string{{"SOURCE", "TARGET", "METHODS", "PATHS", "PORTS", "ALLOWED BY"}}
	for i := range m.Grants {
		g := &m.Grants[i]
		methods, paths, ports := g.words()
		rows = append(rows, []string{g.Source.Words(), finding.Object(g.Target), methods, paths, ports, g.by()})
	}
	if len(rows) > 1 {
		table(&b, on, rows)
		b.WriteByte('\n')
	}
	if m.Omitted > 0 {
		b.WriteString(on.Fold(fmt.Sprintf("and %d more that are not shown: limit them by --to, --from or --namespace", m.Omitted), 2) + "\n")
	}
	for _, n := range m.Notes {
		b.WriteString(on.Fold("note: "+n, 2) + "\n")
	}
	summary := fmt.Sprintf("%s, %d open to everybody; %s", screen.Count(len(m.Workloads), "workload"), open, screen.Count(len(m.Grants)+m.Omitted, "grant"))
	b.WriteString(on.Fold(summary, 2) + "\n")
	return on.Print(w, b.String())
}

const (
	gap = 2
	// leastWidth is that of a column on a narrow screen.
	leastWidth = 6
)

// table writes rows in columns; cells that are too long for the screen go on in lines below.
func table(b *strings.Builder, on screen.Screen, rows [][]string) {
	widths, least := make([]int, len(rows[0])), make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range row {
			row[i] = visible.Text(row[i])
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for i := range least {
		least[i] = min(widths[i], leastWidth)
	}
	widths = on.Columns(widths, least, gap)
	for _, row := range rows {
		cells, height := make([][]string, len(row)), 0
		for i := range row {
			cells[i] = screen.CellLines(row[i], widths[i])
			height = max(height, len(cells[i]))
		}
		for n := range height {
			line := ""
			for i := range row {
				cell := ""
				if n < len(cells[i]) {
					cell = cells[i][n]
				}
				line += cell + strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(cell), 0)+gap)
			}
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
}
