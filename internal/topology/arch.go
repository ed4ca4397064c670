package topology

import (
	"math"
	"slices"
)

// arch is an arrow that passes over what lies between its boxes: it leaves the top of one and comes down on the top of the other one.
type arch struct {
	arrow        int
	left, right  int  // items
	headA, headB bool // at the left one, at the right one
	x1, x2       int  // columns, at first from the left side of the box
}

// arches takes out of the layers what can pass over them, outer arches before inner ones, and leaves l as it is. An arrow can if all that it has, boxes and
// places between them, is the first in its layer: then nothing is in its way, whatever passed there before.
func (l *layered) arches(widths []int) (*layered, []arch) {
	up := l.clone()
	out := up.lift(widths)
	down := l.clone()
	for k := range down.layers {
		slices.Reverse(down.layers[k])
		down.renumber(down.layers[k])
	}
	if other := down.lift(widths); len(other) > len(out) {
		up, out = down, other
	}
	// Ports from the left: what comes from the left, inner before outer, then what goes to the right, outer before inner.
	ends := map[int][]*int{}
	for i := range slices.Backward(out) {
		ends[out[i].right] = append(ends[out[i].right], &out[i].x2)
	}
	for i := range out {
		ends[out[i].left] = append(ends[out[i].left], &out[i].x1)
	}
	for i, xs := range ends {
		first := 2 // below the first character
		if first+2*len(xs) > widths[up.items[i].layer]-1 {
			first = 1
		}
		for k, x := range xs {
			*x = first + 2*k
		}
	}
	return up, out
}

func (l *layered) clone() *layered {
	out := &layered{arrows: l.arrows, items: slices.Clone(l.items), links: slices.Clone(l.links), layers: l.snapshot()}
	for i := range out.items {
		it := &out.items[i]
		it.left, it.right = slices.Clone(it.left), slices.Clone(it.right)
	}
	return out
}

// lift takes arrows out of the layers while there is one that can pass over them.
func (l *layered) lift(widths []int) (out []arch) {
	chains := map[int][]int{}
	for n, ln := range l.links {
		chains[ln.arrow] = append(chains[ln.arrow], n)
	}
	ends := map[int]int{} // of an item
	first := func(i int) bool { return l.layers[l.items[i].layer][0] == i }
	room := func(i int) bool { return 2*ends[i]+1 < widths[l.items[i].layer]-1 }
	for again := true; again; {
		again = false
		for n := range l.arrows {
			chain := chains[n]
			if len(chain) < 2 {
				continue
			}
			a, b := l.links[chain[0]], l.links[chain[len(chain)-1]]
			can := first(a.a) && room(a.a) && room(b.b)
			for _, k := range chain {
				can = can && first(l.links[k].b)
			}
			if !can {
				continue
			}
			delete(chains, n)
			again = true
			ends[a.a]++
			ends[b.b]++
			out = append(out, arch{arrow: n, left: a.a, right: b.b, headA: a.headA, headB: b.headB})
			for _, k := range chain {
				l.items[l.links[k].a].right = slices.DeleteFunc(l.items[l.links[k].a].right, func(m int) bool { return m == k })
				l.items[l.links[k].b].left = slices.DeleteFunc(l.items[l.links[k].b].left, func(m int) bool { return m == k })
			}
			for _, k := range chain[1:] {
				layer := l.items[l.links[k].a].layer
				l.layers[layer] = l.layers[layer][1:]
				l.renumber(l.layers[layer])
			}
		}
	}
	return out
}

// over draws an arch above all that is drawn between its ends.
func (d *drafting) over(a arch) line {
	y := math.MaxInt
	for _, b := range d.boxes {
		if b.x <= a.x2 && b.x+b.w > a.x1 {
			y = min(y, b.y-2)
		}
	}
	for _, ln := range d.lines {
		for i, p := range ln.points[1:] {
			q := ln.points[i]
			if min(p.x, q.x) <= a.x2 && max(p.x, q.x) >= a.x1 {
				y = min(y, p.y-1, q.y-1)
			}
		}
	}
	y1, y2 := d.items[a.left].y-1, d.items[a.right].y-1
	return line{points: []point{{a.x1, y1}, {a.x1, y}, {a.x2, y}, {a.x2, y2}}, headA: a.headA, headB: a.headB, label: d.label(a.arrow), labelAt: point{a.x1 + 3, y}}
}
