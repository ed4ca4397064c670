package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// parsed is what a reader sees in a drawing: the names of boxes, and arrows as "from -> to: label" or "a <-> b: label".
type parsed struct{ nodes, arrows []string }

// grid has a cell for each column.
func grid(text string) [][]rune {
	var g [][]rune
	for row := range strings.Lines(text) {
		var cells []rune
		for _, r := range strings.TrimRight(row, "\n") {
			n := runeColumns(r)
			if n > 0 {
				cells = append(cells, r)
			}
			if n == 2 {
				cells = append(cells, 0)
			}
		}
		g = append(g, cells)
	}
	return g
}

func parse(text string) (parsed, error) {
	g := grid(text)
	at := func(x, y int) rune {
		if y < 0 || y >= len(g) || x < 0 || x >= len(g[y]) {
			return ' '
		}
		return g[y][x]
	}
	var out parsed
	owner := map[point]string{}
	// Boxes: four corners and unbroken sides.
	for y := range g {
		for x := range g[y] {
			if at(x, y) != '+' || owner[point{x, y}] != "" {
				continue
			}
			r := x + 1
			for at(r, y) == '-' {
				r++
			}
			b := y + 1
			for at(x, b) == '|' && at(r, b) == '|' {
				b++
			}
			if r == x+1 || b == y+1 || at(r, y) != '+' || at(x, b) != '+' || at(r, b) != '+' || strings.Trim(string(g[b][x:r+1]), "-+") != "" {
				continue
			}
			name := strings.TrimSpace(strings.ReplaceAll(string(g[y+1][x+1:r]), "\x00", ""))
			out.nodes = append(out.nodes, name)
			for j := y; j <= b; j++ {
				for i := x; i <= r; i++ {
					owner[point{i, j}] = name
				}
			}
		}
	}
	seen := map[point]bool{}
	vertical := map[point]bool{}
	mark := func(p point, up bool) error {
		if owner[p] != "" {
			return fmt.Errorf("a line runs through the box of %q at %v", owner[p], p)
		}
		m := seen
		if up {
			m = vertical
		}
		if m[p] {
			return fmt.Errorf("two lines share the cell %v", p)
		}
		m[p] = true
		return nil
	}
	for y := range g {
		for x := 0; x < len(g[y]); x++ {
			p := point{x, y}
			// A line begins one column right of a box.
			if owner[point{x - 2, y}] == "" || owner[point{x - 1, y}] != "" || owner[p] != "" || at(x-2, y) != '|' || at(x-1, y) != ' ' || seen[p] || vertical[p] {
				continue
			}
			if at(x, y) != '-' && at(x, y) != '<' {
				continue
			}
			from, headA, label := owner[point{x - 2, y}], at(x, y) == '<', ""
			if err := mark(p, false); err != nil {
				return out, err
			}
			dx, dy := 1, 0
			for done := false; !done; {
				p = point{p.x + dx, p.y + dy}
				c := at(p.x, p.y)
				if dx > 0 && c == ' ' && label == "" && at(p.x-1, p.y) == '-' && owner[point{p.x + 1, p.y}] == "" {
					end := p.x + 1
					for quoted := at(p.x+1, p.y) == '"'; end < len(g[p.y]); end++ {
						if at(end, p.y) == ' ' && at(end+1, p.y) == '-' && (!quoted || at(end-1, p.y) == '"' && at(end-2, p.y) != '\\') {
							break
						}
					}
					label = strings.ReplaceAll(string(g[p.y][p.x+1:min(end, len(g[p.y]))]), "\x00", "")
					for ; p.x < end; p.x++ {
						if err := mark(p, false); err != nil {
							return out, err
						}
					}
					c = '-'
				}
				switch {
				case c == '+':
					if err := mark(p, true); err != nil {
						return out, err
					}
					if err := mark(p, false); err != nil {
						return out, err
					}
					if dx != 0 {
						// A line turns away from the bends of others: up and down are told apart by what goes on there.
						up := at(p.x, p.y-1) == '|' || at(p.x, p.y-1) == '+'
						down := at(p.x, p.y+1) == '|' || at(p.x, p.y+1) == '+'
						if up == down {
							return out, fmt.Errorf("the bend at %v goes on nowhere or to two sides", p)
						}
						dx, dy = 0, 1
						if up {
							dy = -1
						}
					} else {
						right := at(p.x+1, p.y) == '-'
						left := at(p.x-1, p.y) == '-'
						if right == left {
							return out, fmt.Errorf("the bend at %v goes on nowhere or to two sides", p)
						}
						dx, dy = 1, 0
						if left {
							dx = -1
						}
					}
				case dy != 0 && c == '|':
					if err := mark(p, true); err != nil {
						return out, err
					}
				case dx != 0 && (c == '-' || c == '|'):
					if err := mark(p, false); err != nil {
						return out, err
					}
				case c == '>' && dx > 0 || c == '<' && dx < 0:
					if err := mark(p, false); err != nil {
						return out, err
					}
					to := owner[point{p.x + 2*dx, p.y}]
					if to == "" {
						return out, fmt.Errorf("the head at %v shows to no box", p)
					}
					if headA {
						a, b := min(from, to), max(from, to)
						out.arrows = append(out.arrows, fmt.Sprintf("%s <-> %s: %s", a, b, label))
					} else {
						out.arrows = append(out.arrows, fmt.Sprintf("%s -> %s: %s", from, to, label))
					}
					done = true
				case c == ' ' && dx > 0 && headA && owner[point{p.x + 1, p.y}] != "" || c == ' ' && dx > 0 && headA && owner[point{p.x, p.y}] != "":
					out.arrows = append(out.arrows, fmt.Sprintf("%s -> %s: %s", owner[point{p.x + 1, p.y}], from, label))
					done = true
				default:
					return out, fmt.Errorf("the line from %q breaks at %v with %q", from, p, c)
				}
			}
		}
	}
	// Whatever is drawn belongs to a box or to a line.
	for y := range g {
		for x, c := range g[y] {
			p := point{x, y}
			if c != ' ' && c != 0 && owner[p] == "" && !seen[p] && !vertical[p] {
				return out, fmt.Errorf("%q at %v belongs to nothing", c, p)
			}
		}
	}
	slices.Sort(out.nodes)
	slices.Sort(out.arrows)
	return out, nil
}

// expected is what a reader should see.
func expected(g Graph) (out parsed) {
	edges := map[Edge]bool{}
	for _, e := range g.Edges {
		edges[e] = true
	}
	for _, v := range g.Nodes {
		out.nodes = append(out.nodes, v.ID)
	}
	for e := range edges {
		switch {
		case e.From == e.To || !edges[Edge{e.To, e.From, e.Label}]:
			out.arrows = append(out.arrows, fmt.Sprintf("%s -> %s: %s", e.From, e.To, e.Label))
		case e.From < e.To:
			out.arrows = append(out.arrows, fmt.Sprintf("%s <-> %s: %s", e.From, e.To, e.Label))
		}
	}
	slices.Sort(out.nodes)
	slices.Sort(out.arrows)
	return out
}

// randomGraph has 1 to 12 nodes, few or many edges, loops and both directions, and labels in every other graph.
func randomGraph(seed uint64) Graph {
	random := rand.New(rand.NewPCG(seed, 7))
	var g Graph
	n := 1 + random.IntN(12)
	for i := range n {
		g.Nodes = append(g.Nodes, Node{ID: fmt.Sprintf("n%d", i)})
	}
	random.Shuffle(n, func(i, j int) { g.Nodes[i], g.Nodes[j] = g.Nodes[j], g.Nodes[i] })
	labels := []string{""}
	if seed%2 == 1 {
		labels = []string{"", "12rps 99.8%", "1 rps", "日本", "5%"}
	}
	for range random.IntN(1 + n*(1+random.IntN(4))) {
		a, b := g.Nodes[random.IntN(n)].ID, g.Nodes[random.IntN(n)].ID
		g.Edges = append(g.Edges, Edge{a, b, labels[random.IntN(len(labels))]})
	}
	return g
}

func TestDrawingsReadAsTheGraphsThatTheyAreOf(t *testing.T) {
	failed := 0
	for seed := range uint64(1000) {
		g := randomGraph(seed)
		text := Text(g, Options{})
		got, err := parse(text)
		want := expected(g)
		if err != nil || !slices.Equal(got.nodes, want.nodes) || !slices.Equal(got.arrows, want.arrows) {
			failed++
			if failed < 3 {
				t.Errorf("graph %d: %v\n got %v\nwant %v\n%s", seed, err, got, want, text)
			}
		}
	}
	if failed > 0 {
		t.Errorf("%d of 1000 graphs read differently", failed)
	}
}

func TestTheOrderOfTheInputDoesNotMatter(t *testing.T) {
	for seed := range uint64(50) {
		g := randomGraph(seed)
		want := Text(g, Options{})
		slices.Reverse(g.Nodes)
		slices.Reverse(g.Edges)
		if got := Text(g, Options{}); got != want {
			t.Fatalf("graph %d: got\n%s\nwant\n%s", seed, got, want)
		}
	}
}

func TestHostileNamesStayInTheirBoxes(t *testing.T) {
	g := Graph{
		Nodes: []Node{{ID: "a", Name: "\x1b[31mred\nnew line\u202e", Lines: []string{"::warning::x", strings.Repeat("界", 100)}}, {ID: "b", Name: "+--+"}},
		Edges: []Edge{{"a", "b", "-->\x1b[2J| b |"}},
	}
	text := Text(g, Options{})
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Fatalf("not harmless: %q", text)
	}
	got, err := parse(text)
	if err != nil || len(got.nodes) != 2 || len(got.arrows) != 1 {
		t.Fatalf("%v %q\n%s", err, got, text)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a b\nb a\nb c", 80)
	f.Add("界 \x1b[m\n\xff a", 20)
	f.Fuzz(func(t *testing.T, edges string, width int) {
		var g Graph
		for line := range strings.Lines(edges) {
			from, to, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			to, label, _ := strings.Cut(to, " ")
			g.Edges = append(g.Edges, Edge{from, to, label})
		}
		text := Text(g, Options{Width: width})
		if strings.ContainsAny(text, "\x1b\r\u202e") {
			t.Fatalf("not harmless: %q", text)
		}
		boxes := map[string]bool{}
		for _, e := range g.Edges {
			boxes[e.From], boxes[e.To] = true, true
		}
		if got, err := parse(text); len(boxes) <= MaxNodes && len(g.Edges) <= MaxEdges && (err != nil || len(got.nodes) != len(boxes)) {
			t.Fatalf("%v: %q\n%s", err, got, text)
		}
	})
}

func BenchmarkText100Nodes200Edges(b *testing.B) {
	random := rand.New(rand.NewPCG(3, 4))
	var g Graph
	for range 200 {
		g.Edges = append(g.Edges, Edge{fmt.Sprint(random.IntN(100)), fmt.Sprint(random.IntN(100)), ""})
	}
	for b.Loop() {
		Text(g, Options{})
	}
}
