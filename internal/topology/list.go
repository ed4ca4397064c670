package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// list writes what a drawing shows as a line for each node that has more than its name, or no arrow, and then a line for each arrow.
func (d drawing) list(b *strings.Builder, n normal, width int) {
	fmt.Fprintf(b, "Too wide to draw (%d columns):\n", d.w)
	as := arrows(n)
	for name := MaxName; ; name = max(name*3/4, leastText) {
		lines := d.listed(as, n.boxLines(name))
		if name > leastText && slices.ContainsFunc(lines, func(s string) bool { return columns(s) > width }) {
			continue
		}
		for _, s := range lines {
			b.WriteString(s + "\n")
		}
		return
	}
}

func (d drawing) listed(as []arrow, texts [][]string) (out []string) {
	linked := map[int]bool{}
	var last []string
	for _, i := range d.arrows {
		a := as[i]
		linked[a.from], linked[a.to] = true, true
		sign := " -> "
		if a.both {
			sign = " <-> "
		}
		s := listName(texts[a.from][0]) + sign + listName(texts[a.to][0])
		if a.label != "" {
			s += ": " + shorten(a.label, MaxLabel)
		}
		last = append(last, s)
	}
	nodes := slices.SortedFunc(slices.Values(d.boxes), func(a, b box) int { return cmp.Compare(a.node, b.node) })
	for _, bx := range nodes {
		if ls := texts[bx.node]; len(ls) > 1 {
			out = append(out, listName(ls[0])+": "+strings.Join(ls[1:], ", "))
		} else if !linked[bx.node] {
			out = append(out, listName(ls[0]))
		}
	}
	return append(out, last...)
}

// listName quotes a name in which a reader would look for an arrow or for the end of the name.
func listName(s string) string {
	if strings.ContainsAny(s, `<>:"`) || strings.TrimSpace(s) != s {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
	}
	return s
}
