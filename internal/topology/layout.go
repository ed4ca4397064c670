package topology

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// arrow is an edge, or two in both directions that are drawn as one line.
type arrow struct {
	from, to int
	label    string
	both     bool
}

// arrows pairs edges of both directions whose labels are equal.
func arrows(n normal) []arrow {
	has := map[Edge]bool{}
	for _, e := range n.Edges {
		has[e] = true
	}
	var out []arrow
	for _, e := range n.Edges {
		both := e.From != e.To && has[Edge{e.To, e.From, e.Label}]
		if both && e.From > e.To {
			continue
		}
		out = append(out, arrow{n.index[e.From], n.index[e.To], e.Label, both})
	}
	return out
}

// item is what stands in a layer: a box, or the place where a line passes.
type item struct {
	node        int // -1 for a line
	layer       int
	left, right []int // links
	loops       []int // arrows
	order       int
	y, h        int // outer rows
}

// link is the part of an arrow between two layers that follow each other.
type link struct {
	a, b         int // items, from left to right
	arrow        int
	headA, headB bool
	yl, yr       int
	first        bool // it has the label
}

// layered is one part of a graph in layers.
type layered struct {
	arrows []arrow
	items  []item
	links  []link
	layers [][]int
}

// place gives nodes layers by a permutation: what is earlier is left of what is later, as near as it may be.
func place(nodes []int, as []arrow, own []int, rank map[int]int) map[int]int {
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
	in, out := map[int][]int{}, map[int][]int{}
	for _, i := range own {
		a, b := as[i].from, as[i].to
		if a == b {
			continue
		}
		if rank[a] > rank[b] {
			a, b = b, a
		}
		in[b], out[a] = append(in[b], a), append(out[a], b)
	}
	layer := map[int]int{}
	for _, v := range sorted {
		for _, u := range in[v] {
			layer[v] = max(layer[v], layer[u]+1)
		}
	}
	// Nodes with more lines to the right than to the left move there: fewer lines pass layers.
	for range 4 {
		for _, v := range slices.Backward(sorted) {
			if len(out[v]) <= len(in[v]) {
				continue
			}
			to := math.MaxInt
			for _, u := range out[v] {
				to = min(to, layer[u]-1)
			}
			layer[v] = to
		}
	}
	least := math.MaxInt
	for _, v := range nodes {
		least = min(least, layer[v])
	}
	for _, v := range nodes {
		layer[v] -= least
	}
	return layer
}

// flow ranks nodes so that few edges go back: sinks to the end, sources to the front, then who sends more than it gets (Eades, Lin and Smyth).
func flow(nodes []int, as []arrow, own []int) map[int]int {
	rank, left := map[int]int{}, slices.Clone(nodes)
	front, back := 0, len(nodes)-1
	in, out := map[int]int{}, map[int]int{}
	succ, pred := map[int][]int{}, map[int][]int{}
	for _, i := range own {
		a := as[i]
		if a.from == a.to || a.both {
			continue
		}
		out[a.from]++
		in[a.to]++
		succ[a.from], pred[a.to] = append(succ[a.from], a.to), append(pred[a.to], a.from)
	}
	for len(left) > 0 {
		at, last := -1, false
		for i, v := range slices.Backward(left) {
			if out[v] == 0 && in[v] > 0 {
				at, last = i, true
				break
			}
		}
		if at < 0 {
			at = 0
			for i, v := range left {
				w := left[at]
				if (in[v] == 0) != (in[w] == 0) && in[v] == 0 || (in[v] == 0) == (in[w] == 0) && out[v]-in[v] > out[w]-in[w] {
					at = i
				}
			}
		}
		v := left[at]
		left = slices.Delete(left, at, at+1)
		if last {
			rank[v] = back
			back--
		} else {
			rank[v] = front
			front++
		}
		for _, u := range succ[v] {
			in[u]--
		}
		for _, u := range pred[v] {
			out[u]--
		}
	}
	return rank
}

// build makes items and links of layers.
func build(nodes []int, as []arrow, own []int, layer map[int]int) *layered {
	l := &layered{arrows: as}
	at := map[int]int{}
	add := func(it item) int {
		for len(l.layers) <= it.layer {
			l.layers = append(l.layers, nil)
		}
		it.order = len(l.layers[it.layer])
		l.items = append(l.items, it)
		l.layers[it.layer] = append(l.layers[it.layer], len(l.items)-1)
		return len(l.items) - 1
	}
	for _, v := range nodes {
		at[v] = add(item{node: v, layer: layer[v]})
	}
	for _, i := range own {
		a := as[i]
		if a.from == a.to {
			l.items[at[a.from]].loops = append(l.items[at[a.from]].loops, i)
			continue
		}
		low, high, back := a.from, a.to, false
		if layer[low] > layer[high] {
			low, high, back = high, low, true
		}
		prev := at[low]
		for k := layer[low] + 1; k <= layer[high]; k++ {
			next := at[high]
			if k < layer[high] {
				next = add(item{node: -1, layer: k})
			}
			ln := link{a: prev, b: next, arrow: i, first: prev == at[low]}
			ln.headA = ln.first && (back || a.both)
			ln.headB = k == layer[high] && (!back || a.both)
			l.links = append(l.links, ln)
			l.items[prev].right = append(l.items[prev].right, len(l.links)-1)
			l.items[next].left = append(l.items[next].left, len(l.links)-1)
			prev = next
		}
	}
	return l
}

// around appends the orders of an item's neighbours on one side to what it is given, and sorts them.
func (l *layered) around(out []int, i int, right bool) []int {
	side := l.items[i].left
	if right {
		side = l.items[i].right
	}
	for _, k := range side {
		n := l.links[k].a
		if right {
			n = l.links[k].b
		}
		o, p := l.items[n].order, len(out)
		out = append(out, o)
		for ; p > 0 && out[p-1] > o; p-- {
			out[p] = out[p-1]
		}
		out[p] = o
	}
	return out
}

func inversions(a, b []int) int {
	n, j := 0, 0
	for _, x := range a {
		for j < len(b) && b[j] < x {
			j++
		}
		n += j
	}
	return n
}

func (l *layered) renumber(layer []int) {
	for o, i := range layer {
		l.items[i].order = o
	}
}

// crossings counts pairs of links that cross.
func (l *layered) crossings() int {
	n := 0
	var ns, tree []int
	for k, layer := range l.layers {
		if k+1 == len(l.layers) {
			break
		}
		// A tree of counts by the order in the next layer.
		size := len(l.layers[k+1])
		tree = slices.Grow(tree[:0], size+1)[:size+1]
		clear(tree)
		total := 0
		for _, i := range layer {
			ns = l.around(ns[:0], i, true)
			for _, o := range ns {
				upTo := 0
				for p := o + 1; p > 0; p -= p & -p {
					upTo += tree[p]
				}
				n += total - upTo
			}
			for _, o := range ns {
				for p := o + 1; p <= size; p += p & -p {
					tree[p]++
				}
			}
			total += len(ns)
		}
	}
	return n
}

// sort orders the layers so that few links cross: barycentres and swaps of neighbours, several times to and fro; the best order stays.
func (l *layered) sort(rounds int) int {
	best, keep := l.crossings(), l.snapshot()
	value := make([]float64, len(l.items))
	var ns []int
	for r := 0; r < rounds && best > 0; r++ {
		for s := range l.layers {
			k, right := s, false
			if r%2 == 1 {
				k, right = len(l.layers)-1-s, true
			}
			layer := l.layers[k]
			for _, i := range layer {
				ns = l.around(ns[:0], i, right)
				value[i] = float64(l.items[i].order)
				if len(ns) > 0 {
					sum := 0
					for _, o := range ns {
						sum += o
					}
					value[i] = float64(sum) / float64(len(ns))
				}
			}
			back := r%4 >= 2
			if back {
				slices.Reverse(layer)
			}
			slices.SortStableFunc(layer, func(a, b int) int { return cmp.Compare(value[a], value[b]) })
			l.renumber(layer)
		}
		for range 4 {
			if !l.transpose() {
				break
			}
		}
		if n := l.crossings(); n < best {
			best, keep = n, l.snapshot()
		}
	}
	for k, layer := range keep {
		l.layers[k] = layer
		l.renumber(layer)
	}
	return best
}

func (l *layered) snapshot() [][]int {
	out := make([][]int, len(l.layers))
	for k, layer := range l.layers {
		out[k] = slices.Clone(layer)
	}
	return out
}

func (l *layered) transpose() bool {
	better := false
	var al, ar, bl, br []int
	for _, layer := range l.layers {
		for p := 0; p+1 < len(layer); p++ {
			a, b := layer[p], layer[p+1]
			al, ar = l.around(al[:0], a, false), l.around(ar[:0], a, true)
			bl, br = l.around(bl[:0], b, false), l.around(br[:0], b, true)
			if inversions(al, bl)+inversions(ar, br) > inversions(bl, al)+inversions(br, ar) {
				layer[p], layer[p+1] = b, a
				l.items[a].order, l.items[b].order = p+1, p
				better = true
			}
		}
	}
	return better
}

// A small part, of up to smallPart arrows, in which lines cross is tried in further layers, until as many links have been ordered as its share of the
// graph's arrows is of effort: all parts together take some 30 ms.
const (
	smallPart = 60
	effort    = 8_000
)

// arrange puts a part of a graph into layers. Where lines cross in the layers of its flow, it tries others, and takes those in which the fewest cross.
func arrange(nodes []int, as []arrow, own []int) *layered {
	rank := flow(nodes, as, own)
	best := build(nodes, as, own, place(nodes, as, own, rank))
	least := best.sort(12)
	if least == 0 || len(own) > smallPart {
		return best
	}
	random := rand.New(rand.NewPCG(1, 2))
	next := map[int][]int{}
	for _, i := range own {
		next[as[i].from] = append(next[as[i].from], as[i].to)
		next[as[i].to] = append(next[as[i].to], as[i].from)
	}
	left := effort * len(own) / len(as)
	for t := 0; left > 0 && least > 0; t++ {
		rank := search(nodes, next, random, t%3 == 0)
		l := build(nodes, as, own, place(nodes, as, own, rank))
		left -= len(l.links)
		if n := l.sort(8); n < least {
			best, least = l, n
		}
	}
	return best
}

// search ranks nodes as a search from a random one meets them, in depth or in breadth.
func search(nodes []int, next map[int][]int, random *rand.Rand, breadth bool) map[int]int {
	rank := map[int]int{}
	todo := []int{nodes[random.IntN(len(nodes))]}
	for len(todo) > 0 {
		at := len(todo) - 1
		if breadth {
			at = 0
		}
		v := todo[at]
		todo = slices.Delete(todo, at, at+1)
		if _, seen := rank[v]; seen {
			continue
		}
		rank[v] = len(rank)
		ns := slices.Clone(next[v])
		random.Shuffle(len(ns), func(i, j int) { ns[i], ns[j] = ns[j], ns[i] })
		todo = append(todo, ns...)
	}
	return rank
}

// parts are the connected parts by nodes and arrows; those of one node come last.
func parts(n int, as []arrow) (nodes, own [][]int) {
	root := make([]int, n)
	for i := range root {
		root[i] = i
	}
	find := func(i int) int {
		for root[i] != i {
			i = root[i]
		}
		return i
	}
	for _, a := range as {
		x, y := find(a.from), find(a.to)
		root[max(x, y)] = min(x, y)
	}
	byRoot, arrowsOf := map[int][]int{}, map[int][]int{}
	for i := range n {
		byRoot[find(i)] = append(byRoot[find(i)], i)
	}
	for i, a := range as {
		arrowsOf[find(a.from)] = append(arrowsOf[find(a.from)], i)
	}
	for _, single := range []bool{false, true} {
		for i := range n {
			if vs := byRoot[i]; find(i) == i && (len(vs) == 1) == single {
				nodes, own = append(nodes, vs), append(own, arrowsOf[i])
			}
		}
	}
	return nodes, own
}
