package topology

import "slices"

// point is a cell: column and row.
type point struct{ x, y int }

// box is a drawn node with its outer size.
type box struct {
	node       int
	x, y, w, h int
	lines      []string
}

// line is a drawn arrow: horizontal and vertical pieces in turn.
type line struct {
	points       []point
	headA, headB bool // at the first point, at the last point
	label        string
	labelAt      point
}

// drawing is one part of a graph with its place for everything.
type drawing struct {
	boxes  []box
	lines  []line
	w, h   int
	arrows []int // which are drawn
}

// texts are what stands in boxes and in lines.
type texts struct {
	node  func(node int) []string
	label func(arrow int) string
}

// drafting is a drawing in the making.
type drafting struct {
	*layered
	texts
	drawing
	open map[int]int // arrow to its line, which goes on in the next layer
}

// draw gives everything its place.
func (l *layered) draw(t texts) drawing {
	widths := l.widths(t)
	l, arches := l.arches(widths)
	l.ports(func(v int) int { return len(t.node(v)) })
	l.rows()
	d := drafting{layered: l, texts: t, open: map[int]int{}}
	x := 0
	for k, layer := range l.layers {
		for _, i := range layer {
			if it := l.items[i]; it.node >= 0 {
				d.boxes = append(d.boxes, box{it.node, x, it.y, widths[k], it.h, t.node(it.node)})
			}
		}
		for i := range arches {
			if a := &arches[i]; l.items[a.left].layer == k {
				a.x1 += x
			}
		}
		d.w = max(d.w, x+widths[k])
		x = d.channel(k, x+widths[k]+1, func(next int) int {
			// Room for the labels of what comes down there.
			for _, a := range arches {
				if s := t.label(a.arrow); l.items[a.right].layer == k+1 && s != "" {
					next = max(next, a.x1+columns(s)+5-a.x2)
				}
			}
			return next
		})
		for i := range arches {
			if a := &arches[i]; l.items[a.right].layer == k+1 {
				a.x2 += x
			}
		}
	}
	for _, a := range slices.Backward(arches) {
		d.lines = append(d.lines, d.over(a))
	}
	d.toTop()
	return d.drawing
}

// widths are the outer widths of layers.
func (l *layered) widths(t texts) []int {
	out := make([]int, len(l.layers))
	for _, it := range l.items {
		w := 1
		if it.node >= 0 {
			for _, s := range t.node(it.node) {
				w = max(w, columns(s)+4)
			}
		}
		out[it.layer] = max(out[it.layer], w)
	}
	return out
}

// channel draws the lines right of a layer, from a column on. It returns the first column of the next layer, which room may move to the right.
func (d *drafting) channel(k, start int, room func(next int) int) int {
	var wires []*wire
	used := map[int]bool{}
	var links []int
	labels, lead := 0, 1
	for _, i := range d.layers[k] {
		it := &d.items[i]
		for _, n := range it.right {
			ln := &d.links[n]
			links = append(links, n)
			y1, y2 := it.y+ln.yl, d.items[ln.b].y+ln.yr
			used[y1], used[y2] = true, true
			if ln.headA {
				lead = 2
			}
			if ln.first {
				labels = max(labels, columns(d.label(ln.arrow)))
			}
			if y1 != y2 {
				wires = append(wires, &wire{link: n, loop: -1, left: []int{y1}, right: y2, top: min(y1, y2), end: max(y1, y2), down: y2 > y1})
			}
		}
		base := it.y + 1 + (it.h-2-len(it.right)-2*len(it.loops))/2 + len(it.right)
		for n, a := range it.loops {
			y := base + 2*n
			used[y], used[y+1] = true, true
			lead = 2
			labels = max(labels, columns(d.label(a)))
			wires = append(wires, &wire{link: -1, loop: a, left: []int{y, y + 1}, right: none, top: y, end: y + 1})
		}
	}
	ordered, tracks := channel(wires, used)
	first := start + lead // the first track
	if labels > 0 {
		first += labels + 3
	}
	next := room(first + max(2*tracks+1, 2) + 1) // "->" and a space
	column := map[int][]*wire{}
	for _, wi := range ordered {
		if wi.loop >= 0 {
			x := first + 2*wi.track
			d.lines = append(d.lines, line{points: []point{{start, wi.top}, {x, wi.top}, {x, wi.end}, {start, wi.end}}, headB: true, label: d.label(wi.loop),
				labelAt: point{start + lead + 1, wi.top}})
			d.w = max(d.w, x+1)
			continue
		}
		column[wi.link] = append(column[wi.link], wi)
	}
	for _, n := range links {
		ln := d.links[n]
		y1, y2 := d.items[ln.a].y+ln.yl, d.items[ln.b].y+ln.yr
		if ln.first {
			d.open[ln.arrow] = len(d.lines)
			d.lines = append(d.lines, line{points: []point{{start, y1}}, headA: ln.headA, label: d.label(ln.arrow), labelAt: point{start + lead + 1, y1}})
		}
		o := &d.lines[d.open[ln.arrow]]
		for _, wi := range column[n] {
			x := first + 2*wi.track
			o.points = append(o.points, point{x, wi.left[0]}, point{x, wi.right})
		}
		if d.items[ln.b].node >= 0 {
			o.points = append(o.points, point{next - 2, y2})
			o.headB = ln.headB
		}
	}
	return next
}

// toTop moves everything down to row 0: a line may lie above all boxes.
func (d *drawing) toTop() {
	top := 0
	for _, ln := range d.lines {
		for _, p := range ln.points {
			top = min(top, p.y)
		}
	}
	for i := range d.boxes {
		d.boxes[i].y -= top
		d.h = max(d.h, d.boxes[i].y+d.boxes[i].h)
	}
	for i := range d.lines {
		d.lines[i].labelAt.y -= top
		for j := range d.lines[i].points {
			d.lines[i].points[j].y -= top
			d.h = max(d.h, d.lines[i].points[j].y+1)
		}
	}
}
