package screen

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirmesh/weir/internal/visible"
)

// Table writes rows in columns, right-aligned. On a screen that is too narrow first the names in the first two columns are cut, then columns are left
// out, those of the least importance first.
func (s Screen) Table(rows [][]string, least ...string) string { return s.table(rows, 0, least) }

// NamedTable is Table with the first columns, so many as named says, left-aligned.
func (s Screen) NamedTable(rows [][]string, named int, least ...string) string {
	return s.table(rows, named, least)
}

func (s Screen) table(rows [][]string, named int, least []string) string {
	const nameWidth = 10
	for _, row := range rows {
		for i := range row {
			row[i] = visible.Text(row[i])
		}
	}
	for {
		widths, total := columnWidths(rows)
		if s.Width == 0 || total <= s.Width {
			break
		}
		cut := false
		for i := range 2 {
			most := max(widths[i]-(total-s.Width), nameWidth)
			for _, row := range rows {
				if n := utf8.RuneCountInString(row[i]); n > most {
					row[i] = string([]rune(row[i])[:most-1]) + "…"
					cut = true
				}
			}
			widths, total = columnWidths(rows)
		}
		if cut {
			continue
		}
		if len(least) == 0 {
			break
		}
		if at := slices.Index(rows[0], least[0]); at >= 0 {
			for i, row := range rows {
				rows[i] = slices.Delete(row, at, at+1)
			}
		}
		least = least[1:]
	}
	widths, _ := columnWidths(rows)
	var b strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < named {
				pad, cell = cell, pad
			}
			line += strings.Repeat(" ", tableGap) + pad + cell
		}
		b.WriteString(s.Fit(line[tableGap:]) + "\n")
	}
	return b.String()
}

// tableGap is how many columns are between those of a table.
const tableGap = 2

// columnWidths are those of a table's columns, and of all of it.
func columnWidths(rows [][]string) (widths []int, total int) {
	widths = make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, w := range widths {
		total += w + tableGap
	}
	return widths, total - tableGap
}

// Fit cuts a line to the screen's width, as one that wraps would upset the drawing.
func (s Screen) Fit(text string) string {
	if s.Width == 0 || utf8.RuneCountInString(text) <= s.Width {
		return text
	}
	return string([]rune(text)[:s.Width-3]) + "..."
}
