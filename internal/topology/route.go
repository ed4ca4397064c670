package topology

import (
	"cmp"
	"math"
	"slices"
)

// ports gives every link its rows in its items, relative to them.
func (l *layered) ports(inner func(node int) int) {
	for i := range l.items {
		it := &l.items[i]
		slices.SortFunc(it.left, func(a, b int) int {
			return cmp.Or(cmp.Compare(l.items[l.links[a].a].order, l.items[l.links[b].a].order), cmp.Compare(l.links[a].arrow, l.links[b].arrow))
		})
		slices.SortFunc(it.right, func(a, b int) int {
			return cmp.Or(cmp.Compare(l.items[l.links[a].b].order, l.items[l.links[b].b].order), cmp.Compare(l.links[a].arrow, l.links[b].arrow))
		})
		it.h = 1
		skip := 0
		if it.node >= 0 {
			it.h = max(inner(it.node), len(it.left), len(it.right)+2*len(it.loops)) + 2
			skip = 1
		}
		room := it.h - 2*skip
		for k, ln := range it.left {
			l.links[ln].yr = skip + (room-len(it.left))/2 + k
		}
		for k, ln := range it.right {
			l.links[ln].yl = skip + (room-len(it.right)-2*len(it.loops))/2 + k
		}
	}
}

// rows gives items their rows: near those they are linked to, in the order of their layer.
func (l *layered) rows() {
	gap := func(a, b int) int {
		if l.items[a].node < 0 && l.items[b].node < 0 {
			return 0
		}
		return 1
	}
	for _, layer := range l.layers {
		y := 0
		for p, i := range layer {
			if p > 0 {
				y += gap(layer[p-1], i)
			}
			l.items[i].y = y
			y += l.items[i].h
		}
	}
	for sweep := range 8 {
		for s := range l.layers {
			k, right := s, false
			if sweep%2 == 1 {
				k, right = len(l.layers)-1-s, true
			}
			l.settle(l.layers[k], right, sweep >= 6, gap)
		}
	}
	least := math.MaxInt
	for _, layer := range l.layers {
		for _, i := range layer {
			least = min(least, l.items[i].y)
		}
	}
	for i := range l.items {
		l.items[i].y -= least
	}
}

// settle moves a layer's items to the rows that suit their neighbours on one side, or on both, as far as those above and below allow.
func (l *layered) settle(layer []int, right, all bool, gap func(a, b int) int) {
	type block struct{ sum, weight, n float64 }
	var blocks []block
	offset := make([]int, len(layer))
	for p, i := range layer {
		it := &l.items[i]
		if p > 0 {
			offset[p] = offset[p-1] + l.items[layer[p-1]].h + gap(layer[p-1], i)
		}
		var want []float64
		weight := 0.01
		look := func(ln link, onRight bool) {
			other, mine := l.items[ln.a].y+ln.yl, ln.yr
			far := l.items[ln.a].node
			if onRight {
				other, mine, far = l.items[ln.b].y+ln.yr, ln.yl, l.items[ln.b].node
			}
			want = append(want, float64(other-mine))
			weight++
			if it.node < 0 && far < 0 {
				weight += 8
			}
		}
		if !right || all {
			for _, k := range it.left {
				look(l.links[k], false)
			}
		}
		if right || all {
			for _, k := range it.right {
				look(l.links[k], true)
			}
		}
		at := float64(it.y)
		if len(want) > 0 {
			slices.Sort(want)
			at = want[(len(want)-1)/2]
		}
		blocks = append(blocks, block{(at - float64(offset[p])) * weight, weight, 1})
		for n := len(blocks); n > 1 && blocks[n-2].sum/blocks[n-2].weight > blocks[n-1].sum/blocks[n-1].weight; n = len(blocks) {
			a, b := blocks[n-2], blocks[n-1]
			blocks = append(blocks[:n-2], block{a.sum + b.sum, a.weight + b.weight, a.n + b.n})
		}
	}
	p := 0
	for _, b := range blocks {
		at := int(math.Floor(b.sum/b.weight + 0.5))
		for range int(b.n) {
			l.items[layer[p]].y = at + offset[p]
			p++
		}
	}
}

// wire is one vertical piece in a channel, or the two of a line that had to go by a row of its own.
type wire struct {
	link, loop int // loop is an arrow, or -1
	left       []int
	right      int // a row, or none
	top, end   int
	down       bool
	after      *wire
	track      int
	half       bool
}

const none = math.MinInt

// channel orders the wires of a channel such that no two horizontal pieces share a row where they are, and gives them tracks.
func channel(wires []*wire, used map[int]bool) (ordered []*wire, tracks int) {
	hard := func(a, b *wire) bool { // a must be left of b
		return a.after != b && b.right != none && slices.Contains(a.left, b.right) || b.after == a
	}
	soft := func(a, b *wire) bool {
		if a.loop >= 0 && b.loop < 0 {
			return true
		}
		if a.right == none || b.right == none || a.down != b.down || len(a.left) != 1 || len(b.left) != 1 || a.half || b.half {
			return false
		}
		if a.down {
			return b.left[0] < a.left[0] && b.right < a.right && b.end >= a.top
		}
		return a.left[0] < b.left[0] && a.right < b.right && a.end >= b.top
	}
	left := slices.Clone(wires)
	slices.SortStableFunc(left, func(a, b *wire) int {
		return cmp.Or(cmp.Compare(a.end-a.top, b.end-b.top), cmp.Compare(a.top, b.top), cmp.Compare(a.link, b.link))
	})
	for len(left) > 0 {
		pick := -1
		for _, strict := range []bool{true, false} {
			for i, w := range left {
				free := true
				for _, v := range left {
					if v != w && (hard(v, w) || strict && soft(v, w)) {
						free = false
						break
					}
				}
				if free {
					pick = i
					break
				}
			}
			if pick >= 0 {
				break
			}
		}
		if pick < 0 {
			w := left[0]
			for _, v := range left {
				if !v.half {
					w = v
					break
				}
			}
			row := w.end + 1
			for d := 0; used[row]; d++ {
				if row = w.end + 1 + d; !used[row] {
					break
				}
				row = w.top - 1 - d
			}
			used[row] = true
			second := &wire{link: w.link, loop: -1, left: []int{row}, right: w.right, after: w, half: true}
			second.top, second.end = min(row, w.right), max(row, w.right)
			w.right, w.half = row, true
			w.top, w.end = min(row, w.left[0]), max(row, w.left[0])
			left = append(left, second)
			continue
		}
		ordered = append(ordered, left[pick])
		left = slices.Delete(left, pick, pick+1)
	}
	// A wire takes the leftmost track that is right of all it must follow, and in which it touches no other one.
	for i, w := range ordered {
		for _, v := range ordered[:i] {
			meets := v.top <= w.end+1 && w.top <= v.end+1
			if hard(v, w) || soft(v, w) || meets {
				w.track = max(w.track, v.track+1)
			}
		}
		tracks = max(tracks, w.track+1)
	}
	return ordered, tracks
}
