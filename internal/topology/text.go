package topology

import (
	"fmt"
	"strings"
)

// Options are what a drawing keeps to. The zero value has no bound.
type Options struct {
	// Width in columns; 0 is no bound. Names and labels of a part that is wider are shortened until it fits, at the least to 8 columns. Text lists the arrows
	// of a part that is too wide even so, as a terminal would break its lines; SVG draws it as wide as it is.
	Width int
}

const leastText = 8

// drawings lays out all parts. Labels are shortened by label.
func drawings(n normal, width int, label func(s string, most int) string) []drawing {
	as := arrows(n)
	nodes, own := parts(len(n.Nodes), as)
	var out []drawing
	for i := range nodes {
		l := arrange(nodes[i], as, own[i])
		draw := func(forName, forLabel int) drawing {
			lines := n.boxLines(forName)
			return l.draw(texts{func(v int) []string { return lines[v] }, func(a int) string { return label(as[a].label, forLabel) }})
		}
		fits := func(d drawing) bool { return width <= 0 || d.w <= width }
		d := draw(MaxName, MaxLabel)
		if !fits(d) {
			least := draw(leastText, leastText)
			for name, label := MaxName, MaxLabel; fits(least) && !fits(d); d = draw(name, label) {
				// A name that is cut is still known, half a number is not: labels come last.
				if name <= MaxName/2 {
					label = max(label*3/4, leastText)
				}
				name = max(name*3/4, leastText)
			}
			if !fits(d) {
				d = least
			}
		}
		d.arrows = own[i]
		out = append(out, d)
	}
	return out
}

// boxLines are what stands in the boxes of nodes. Names that differ stay different: of those that look alike when they are shortened, all but the first one
// end in a number.
func (n normal) boxLines(most int) [][]string {
	if out := n.boxes[most]; out != nil {
		return out
	}
	out := make([][]string, len(n.Nodes))
	n.boxes[most] = out
	of := map[string]string{} // what is shown to the whole name
	alike := map[string]int{}
	for i, v := range n.Nodes {
		whole := v.title()
		first := shorten(whole, most)
		name := first
		for of[name] != "" && of[name] != whole {
			alike[first]++
			number := fmt.Sprintf("~%d", alike[first]+1)
			name = shorten(whole, most-len(number)) + number
		}
		of[name] = whole
		if columns(strings.TrimSpace(name)) == 0 {
			name = `"` + name + `"`
		}
		out[i] = append(out[i], name)
		for k, s := range v.Lines {
			if k == MaxLines {
				out[i] = append(out[i], "…")
				break
			}
			out[i] = append(out[i], shorten(s, most))
		}
	}
	return out
}

// Text draws a graph with "+", "-", "|" and heads of arrows. Lines end without spaces; an empty graph is no text.
func Text(g Graph, o Options) string {
	n := normalise(g, true)
	var b strings.Builder
	for i, d := range drawings(n, o.Width, labelText) {
		if i > 0 {
			b.WriteByte('\n')
		}
		if o.Width > 0 && d.w > o.Width {
			d.list(&b, n, o.Width)
		} else {
			d.text(&b)
		}
	}
	for i, s := range n.note() {
		if i == 0 {
			b.WriteByte('\n')
		}
		b.WriteString(s + "\n")
	}
	return b.String()
}

// note says what is left out, in lines.
func (n normal) note() []string {
	var out []string
	if n.leftNodes > 0 {
		out = append(out, fmt.Sprintf("%d of %d nodes", n.leftNodes, n.leftNodes+len(n.Nodes)))
	}
	if n.leftEdges > 0 {
		out = append(out, fmt.Sprintf("%d of %d edges", n.leftEdges, n.leftEdges+len(n.Edges)))
	}
	if len(out) == 0 {
		return nil
	}
	return []string{"Left out: " + strings.Join(out, " and ") + ".", fmt.Sprintf("At most %d nodes and %d edges are drawn.", MaxNodes, MaxEdges)}
}

// canvas has a text for each cell; the second cell of a wide character has none.
type canvas [][]string

func (c canvas) write(x, y int, s string) {
	for _, r := range s {
		n := runeColumns(r)
		if n == 0 {
			if x > 0 {
				c[y][x-1] += string(r)
			}
			continue
		}
		c[y][x] = string(r)
		if n == 2 {
			c[y][x+1] = ""
		}
		x += n
	}
}

// head is that of an arrow from a point to another one.
func head(from, to point) string {
	switch {
	case to.x > from.x:
		return ">"
	case to.x < from.x:
		return "<"
	}
	return "v"
}

func (d drawing) text(b *strings.Builder) {
	c := make(canvas, d.h)
	for y := range c {
		c[y] = make([]string, d.w)
		for x := range c[y] {
			c[y][x] = " "
		}
	}
	// Vertical pieces after horizontal ones: they are seen where two cross.
	for _, ln := range d.lines {
		for i := 0; i+1 < len(ln.points); i++ {
			p, q := ln.points[i], ln.points[i+1]
			for x := min(p.x, q.x); p.y == q.y && x <= max(p.x, q.x); x++ {
				c[p.y][x] = "-"
			}
		}
	}
	for _, ln := range d.lines {
		for i := 0; i+1 < len(ln.points); i++ {
			p, q := ln.points[i], ln.points[i+1]
			for y := min(p.y, q.y); p.x == q.x && p.y != q.y && y <= max(p.y, q.y); y++ {
				c[y][p.x] = "|"
			}
		}
	}
	for _, ln := range d.lines {
		for _, p := range ln.points[1 : len(ln.points)-1] {
			c[p.y][p.x] = "+"
		}
		if first := ln.points[0]; ln.headA {
			c[first.y][first.x] = head(ln.points[1], first)
		}
		if last := ln.points[len(ln.points)-1]; ln.headB {
			c[last.y][last.x] = head(ln.points[len(ln.points)-2], last)
		}
		if ln.label != "" {
			c.write(ln.labelAt.x-1, ln.labelAt.y, " "+ln.label+" ")
		}
	}
	for _, bx := range d.boxes {
		edge := "+" + strings.Repeat("-", bx.w-2) + "+"
		c.write(bx.x, bx.y, edge)
		c.write(bx.x, bx.y+bx.h-1, edge)
		for y := bx.y + 1; y < bx.y+bx.h-1; y++ {
			c[y][bx.x], c[y][bx.x+bx.w-1] = "|", "|"
		}
		for i, s := range bx.lines {
			c.write(bx.x+2, bx.y+1+i, s)
		}
	}
	for _, row := range c {
		b.WriteString(strings.TrimRight(strings.Join(row, ""), " ") + "\n")
	}
}
