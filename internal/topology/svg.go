package topology

import (
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/weirmesh/weir/internal/visible"
)

// The size of a cell in pixels, which is that of a character of 15 pixels in most fonts of one width. Texts are fitted to their cells in the other ones.
const (
	cellWidth  = 9
	cellHeight = 18
)

// svgStart has colours as attributes, for readers without styles, and a style for dark pages. Contrasts are those of WCAG 2.2, level AA.
const svgStart = `<svg xmlns="http://www.w3.org/2000/svg" class="weir-topology" role="img" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="15">
<title>Nodes: %[3]d, edges: %[4]d</title>
<style>@media (prefers-color-scheme: dark) { .weir-topology .ground { fill: #0d1117 } .weir-topology .box { fill: #151b23; stroke: #9198a1 } .weir-topology .line { stroke: #9198a1 } .weir-topology .head { fill: #9198a1 } .weir-topology text { fill: #f0f6fc } }</style>
<rect class="ground" fill="#ffffff" width="%[1]d" height="%[2]d"/>
`

// maxTitle is the width of a title in columns.
const maxTitle = 256

// SVG draws a graph as Text does, as a picture by itself: no scripts, no fonts or files of elsewhere, for light and dark pages. A name that is shortened is
// whole in its title, at most maxTitle columns of it.
func SVG(g Graph, o Options) string {
	n := normalise(g, true)
	ds := drawings(n, o.Width, shorten)
	w, h := 1, 1
	for _, d := range ds {
		w, h = max(w, d.w), h+d.h+1
	}
	note := n.note()
	for _, s := range note {
		w, h = max(w, columns(s)), h+1
	}
	var b strings.Builder
	fmt.Fprintf(&b, svgStart, (w+2)*cellWidth, h*cellHeight, len(n.Nodes), len(n.Edges))
	top := 1
	for _, d := range ds {
		fmt.Fprintf(&b, "<g transform=\"translate(%d,%d)\">\n", cellWidth, top*cellHeight)
		d.svg(&b, n.Nodes)
		b.WriteString("</g>\n")
		top += d.h + 1
	}
	for i, s := range note {
		svgText(&b, 1, top+i, s)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (d drawing) svg(b *strings.Builder, nodes []Node) {
	for _, ln := range d.lines {
		b.WriteString(`<path class="line" fill="none" stroke="#59636e" d="`)
		for i, p := range ln.points {
			if i == 0 || i == len(ln.points)-1 {
				p = beyond(ln.points[max(i-1, 1-i)], p)
			}
			x, y := center(p)
			fmt.Fprintf(b, "%c%d %d", "ML"[min(i, 1)], x, y)
		}
		b.WriteString("\"/>\n")
		if ln.headA {
			svgArrowHead(b, ln.points[1], ln.points[0])
		}
		if ln.headB {
			svgArrowHead(b, ln.points[len(ln.points)-2], ln.points[len(ln.points)-1])
		}
	}
	// Labels after all lines: each hides the piece of its own line behind it.
	for _, ln := range d.lines {
		if ln.label != "" {
			fmt.Fprintf(b, "<rect class=\"ground\" fill=\"#ffffff\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
				ln.labelAt.x*cellWidth-3, ln.labelAt.y*cellHeight+1, columns(ln.label)*cellWidth+6, cellHeight-2)
			svgText(b, ln.labelAt.x, ln.labelAt.y, ln.label)
		}
	}
	for _, bx := range d.boxes {
		b.WriteString("<g>")
		if whole := visible.Text(nodes[bx.node].title()); whole != bx.lines[0] {
			b.WriteString("<title>" + svgEscape(shorten(whole, maxTitle)) + "</title>")
		}
		x, y := center(point{bx.x, bx.y})
		fmt.Fprintf(b, "<rect class=\"box\" fill=\"#f6f8fa\" stroke=\"#59636e\" rx=\"4\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
			x, y, (bx.w-1)*cellWidth, (bx.h-1)*cellHeight)
		for i, s := range bx.lines {
			svgText(b, bx.x+2, bx.y+1+i, s)
		}
		b.WriteString("</g>\n")
	}
}

// center is the middle of a cell in pixels.
func center(p point) (x, y int) { return p.x*cellWidth + cellWidth/2, p.y*cellHeight + cellHeight/2 }

// beyond is where a line that comes from a point meets the side of a box behind its last cell: two columns or one row further.
func beyond(from, to point) point {
	switch {
	case to.x > from.x:
		to.x += 2
	case to.x < from.x:
		to.x -= 2
	default:
		to.y++
	}
	return to
}

// svgArrowHead draws the head of a line from a point to another one, its last cell: the tip touches the box.
func svgArrowHead(b *strings.Builder, from, to point) {
	tip := beyond(from, to)
	x, y := center(tip)
	const long, half = 9, 5
	shape := fmt.Sprintf("l%d %dv%dz", -long, -half, 2*half)
	switch {
	case to.x < from.x:
		shape = fmt.Sprintf("l%d %dv%dz", long, -half, 2*half)
	case to.x == from.x:
		shape = fmt.Sprintf("l%d %dh%dz", -half, -long, 2*half)
	}
	fmt.Fprintf(b, "<path class=\"head\" fill=\"#59636e\" d=\"M%d %d%s\"/>\n", x, y, shape)
}

// svgText writes a text that takes as many cells as it has columns.
func svgText(b *strings.Builder, x, y int, s string) {
	if s == "" {
		return
	}
	fmt.Fprintf(b, "<text fill=\"#1f2328\" xml:space=\"preserve\" x=\"%d\" y=\"%d\" textLength=\"%d\" lengthAdjust=\"spacingAndGlyphs\">%s</text>\n",
		x*cellWidth, y*cellHeight+cellHeight-4, columns(s)*cellWidth, svgEscape(s))
}

func svgEscape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder does not fail
	return b.String()
}
