package topology

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestWhatIsBeyondTheBoundsIsLeftOutAndSaid(t *testing.T) {
	chain := func(nodes int) (g Graph) {
		for i := range nodes - 1 {
			g.Edges = append(g.Edges, Edge{fmt.Sprintf("n%03d", i), fmt.Sprintf("n%03d", i+1), ""})
		}
		return g
	}
	labels := func(edges int) (g Graph) {
		for i := range edges {
			g.Edges = append(g.Edges, Edge{"a", "b", fmt.Sprintf("l%03d", i)})
		}
		return g
	}
	for _, c := range []struct {
		graph        Graph
		nodes, edges int
		said         string
	}{
		{chain(MaxNodes), MaxNodes, MaxNodes - 1, ""},
		{chain(MaxNodes + 3), MaxNodes, MaxNodes - 1, "\nLeft out: 3 of 203 nodes and 3 of 202 edges.\nAt most 200 nodes and 500 edges are drawn.\n"},
		{labels(MaxEdges), 2, MaxEdges, ""},
		{labels(MaxEdges + 7), 2, MaxEdges, "\nLeft out: 7 of 507 edges.\nAt most 200 nodes and 500 edges are drawn.\n"},
		{Graph{Nodes: make([]Node, MaxNodes+1)}, 1, 0, ""}, // they have one ID
	} {
		text := Text(c.graph, Options{})
		drawn, cut := strings.CutSuffix(text, c.said)
		got, err := read(drawn, ours)
		if err != nil || !cut || len(got.nodes) != c.nodes || len(got.arrows) != c.edges {
			t.Errorf("%v: %d nodes, %d arrows; the drawing ends in %q", err, len(got.nodes), len(got.arrows), text[max(0, len(text)-100):])
		}
		if c.said == "" && strings.Contains(text, "Left out") {
			t.Error("left out what it has drawn")
		}
		if c.said != "" {
			picture := SVG(c.graph, Options{})
			for s := range strings.Lines(c.said[1:]) {
				if !strings.Contains(picture, ">"+strings.TrimSpace(s)+"</text>") {
					t.Errorf("the picture does not say %q", s)
				}
			}
		}
		// What programs read has all.
		if dot := DOT(c.graph); strings.Count(dot, " -> ") != len(c.graph.Edges) {
			t.Errorf("%d edges for Graphviz, want %d", strings.Count(dot, " -> "), len(c.graph.Edges))
		}
		document, err := JSON(c.graph)
		var g Graph
		if err != nil || json.Unmarshal(document, &g) != nil || len(g.Edges) != len(c.graph.Edges) {
			t.Errorf("%v: %d edges in JSON, want %d", err, len(g.Edges), len(c.graph.Edges))
		}
	}
}

func TestColumnsAreThoseOfTerminals(t *testing.T) {
	for s, want := range map[string]int{"": 0, "abc": 3, "é": 1, "e\u0301": 1, "界": 2, "ﾊﾝ": 2, "Ａ": 2, "한": 2, "\u1112\u1161\u11ab": 2, "🚀": 2, "…": 1, "א": 1, "ก็": 1, "\u20dd": 0} {
		if got := columns(s); got != want {
			t.Errorf("%q has %d columns, want %d", s, got, want)
		}
	}
}

func TestFurtherLinesOfANodeAreBounded(t *testing.T) {
	got, err := read(Text(Graph{Nodes: []Node{{ID: "a", Lines: []string{"1", "2", "3", "4", "5", "6"}}}}, Options{}), ours)
	if want := []string{"a", "1", "2", "3", "4", "…"}; err != nil || len(got.boxes) != 1 || !slices.Equal(got.boxes[0], want) {
		t.Errorf("%v: got %q, want %q", err, got.boxes, want)
	}
}

func TestNamesThatLookAlikeWhenShortenedStayDifferent(t *testing.T) {
	long := strings.Repeat("x", MaxName)
	got, err := read(Text(Graph{Edges: []Edge{{long + "1" + long, long + "2" + long, ""}, {long + "2" + long, long + "3" + long, ""}}}, Options{}), ours)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range got.nodes {
		if columns(s) != MaxName {
			t.Errorf("%q has %d columns", s, columns(s))
		}
	}
	if len(slices.Compact(got.nodes)) != 3 {
		t.Errorf("got %q", got.nodes)
	}
}

// cut means that a text is another one, or that with something in its middle in place of which there is an ellipsis.
func cut(short, whole string) bool {
	head, tail, found := strings.Cut(short, "…")
	return short == whole || found && strings.HasPrefix(whole, head) && strings.HasSuffix(whole, tail) && columns(short) < columns(whole)
}

// number is the beginning of a name of randomGraph, which is never cut away.
func number(name string) string {
	name = unquote(name)
	n := strings.IndexFunc(strings.TrimLeft(name, "n"), func(r rune) bool { return r < '0' || r > '9' })
	if n < 0 {
		return strings.TrimLeft(name, "n")
	}
	return strings.TrimLeft(name, "n")[:n]
}

// split reads an arrow of a picture, or of a list: its ends, in order if it has two heads, and its label.
func split(arrow string) (ends, label string) {
	ends, label, _ = strings.Cut(arrow, ": ")
	if from, to, both := strings.Cut(ends, " <-> "); both {
		from, to = number(from), number(to)
		return min(from, to) + " <-> " + max(from, to), label
	}
	from, to, _ := strings.Cut(ends, " -> ")
	return number(from) + " -> " + number(to), label
}

func TestDrawingsFitTheWidthAndShowTheSameArrows(t *testing.T) {
	graphs, listed, shortened := 300, 0, 0
	if testing.Short() {
		graphs = 30
	}
	for seed := range uint64(graphs) {
		g := randomGraph(seed)
		width := 60 + int(seed*7%100)
		text := Text(g, Options{Width: width})
		for line := range strings.Lines(text) {
			if n := columns(strings.TrimSuffix(line, "\n")); n > width {
				t.Fatalf("graph %d: a line of %d columns, want at most %d\n%s", seed, n, width, text)
			}
		}
		// Parts are drawn or listed, with an empty line between them.
		var arrows, nodes []string
		var drawn strings.Builder
		for part := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n\n") {
			first, list, _ := strings.Cut(part, "\n")
			if !strings.HasPrefix(first, "Too wide to draw (") {
				drawn.WriteString(part + "\n\n")
				continue
			}
			listed++
			for line := range strings.SplitSeq(list, "\n") {
				if strings.Contains(line, " -> ") || strings.Contains(line, " <-> ") {
					arrows = append(arrows, line)
				}
			}
		}
		got, err := read(drawn.String(), ours)
		if err != nil {
			t.Fatalf("graph %d: %v\n%s", seed, err, text)
		}
		want := shown(g)
		for _, s := range want.nodes {
			nodes = append(nodes, number(s))
		}
		for i, s := range got.nodes {
			if !slices.Contains(nodes, number(s)) || slices.Contains(got.nodes[:i], s) || !slices.ContainsFunc(want.nodes, func(whole string) bool { return cut(s, whole) }) {
				t.Fatalf("graph %d has no node %q\n%s", seed, s, text)
			}
			if strings.Contains(s, "…") {
				shortened++
			}
		}
		arrows = append(arrows, got.arrows...)
		if len(arrows) != len(want.arrows) {
			t.Fatalf("graph %d: %d arrows, want %d\n%s", seed, len(arrows), len(want.arrows), text)
		}
		// Each arrow that should be there takes one that is, with the same ends and its label, whole or cut.
		for _, w := range want.arrows {
			ends, label := split(w)
			at := slices.IndexFunc(arrows, func(s string) bool {
				e, l := split(s)
				return e == ends && cut(unquote(l), unquote(label))
			})
			if at < 0 {
				t.Fatalf("graph %d: there is no arrow %q of those left in %q\n%s", seed, w, arrows, text)
			}
			arrows = slices.Delete(arrows, at, at+1)
		}
	}
	if listed == 0 || shortened == 0 {
		t.Errorf("%d parts were listed, %d names shortened: too few for this test to mean something", listed, shortened)
	}
}

// unquote is a label without the quotes of those that have characters of lines.
func unquote(s string) string {
	if in, ok := strings.CutPrefix(s, `"`); ok && strings.HasSuffix(in, `"`) {
		return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(strings.TrimSuffix(in, `"`))
	}
	return s
}

func BenchmarkText(b *testing.B) {
	random := rand.New(rand.NewPCG(3, 4))
	graph := func(nodes, edges int) (g Graph) {
		for range edges {
			g.Edges = append(g.Edges, Edge{fmt.Sprint(random.IntN(nodes)), fmt.Sprint(random.IntN(nodes)), "12rps 99.8%"})
		}
		for i := range nodes {
			g.Nodes = append(g.Nodes, Node{ID: fmt.Sprint(i)})
		}
		return g
	}
	parallel := graph(2, 0)
	for i := range MaxEdges {
		parallel.Edges = append(parallel.Edges, Edge{"0", "1", fmt.Sprint(i)})
	}
	var parts Graph
	for k := range 4 {
		for _, e := range graph(25, 50).Edges {
			parts.Edges = append(parts.Edges, Edge{fmt.Sprintf("%d-%s", k, e.From), fmt.Sprintf("%d-%s", k, e.To), e.Label})
		}
	}
	for _, c := range []struct {
		name  string
		graph Graph
		width int
	}{
		{"100Nodes200Edges", graph(100, 200), 0},
		{"100Nodes200EdgesIn80Columns", graph(100, 200), 80},
		{"Bounds", graph(MaxNodes, MaxEdges), 0},
		{"BoundsIn80Columns", graph(MaxNodes, MaxEdges), 80},
		{"SmallPart", graph(smallPart/2, smallPart), 0},
		{"OnePair", parallel, 0},
		{"100NodesInSmallParts", parts, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				Text(c.graph, Options{Width: c.width})
			}
		})
	}
}
