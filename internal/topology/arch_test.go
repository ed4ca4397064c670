package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestArrowsOverOthersDoNotCross(t *testing.T) {
	chain := func(link func(i, last int) []Edge) (g Graph) {
		const n = 7
		for i := range n {
			g.Nodes = append(g.Nodes, Node{ID: fmt.Sprintf("node-of-a-long-name-%d", i)})
		}
		for i := range n {
			if i > 0 {
				g.Edges = append(g.Edges, Edge{g.Nodes[i-1].ID, g.Nodes[i].ID, ""})
			}
			for _, e := range link(i, n-1) {
				var from, to int
				fmt.Sscan(e.From, &from)
				fmt.Sscan(e.To, &to)
				g.Edges = append(g.Edges, Edge{g.Nodes[from].ID, g.Nodes[to].ID, e.Label})
			}
		}
		return g
	}
	edge := func(from, to int, label string) Edge { return Edge{fmt.Sprint(from), fmt.Sprint(to), label} }
	for name, g := range map[string]Graph{
		"from all to the last": chain(func(i, last int) []Edge {
			if i < last-1 {
				return []Edge{edge(i, last, "")}
			}
			return nil
		}),
		"from the first to all": chain(func(i, last int) []Edge {
			if i > 1 {
				return []Edge{edge(0, i, "x")}
			}
			return nil
		}),
		"over each second one": chain(func(i, last int) []Edge {
			if i > 0 && i%2 == 0 {
				return []Edge{edge(i-2, i, "")}
			}
			return nil
		}),
		"back, and of two labels": chain(func(i, last int) []Edge {
			if i == last {
				return []Edge{edge(i, 0, "a"), edge(i, 0, "b"), edge(0, i, "b")}
			}
			return nil
		}),
	} {
		text := Text(g, Options{})
		got, err := read(text, ours)
		if want := shown(g); err != nil || got.crossings > 0 || !slices.Equal(got.arrows, want.arrows) {
			t.Errorf("%s: %v, %d crossings\n%s", name, err, got.crossings, text)
		}
		if first, _, _ := strings.Cut(text, "\n"); !strings.HasPrefix(strings.TrimSpace(first), "+-") || strings.Contains(first, "node") || !strings.Contains(text, "v") {
			t.Errorf("%s: nothing passes over the boxes\n%s", name, text)
		}
	}
}

func TestAnArrowOverOthersHasRoomForItsLabel(t *testing.T) {
	label := strings.Repeat("w", MaxLabel)
	text := Text(Graph{Edges: []Edge{{"a", "b", ""}, {"b", "c", ""}, {"a", "c", label}}}, Options{})
	want := `
  +- wwwwwwwwwwwwwwwwwwwwwwww -+
  |                            v
+---+     +---+              +---+
| a | --> | b | -----------> | c |
+---+     +---+              +---+
`
	if text != want[1:] {
		t.Errorf("got\n%s\nwant%s", text, want)
	}
}

// A box that is not the topmost one of its layer has something above it that its arrow would run through.
func TestAnArrowFromBelowABoxStaysBesideIt(t *testing.T) {
	for seed := range uint64(200) {
		g := randomGraph(seed)
		if len(g.Nodes) < 12 {
			continue
		}
		n := normalise(g, true)
		as := arrows(n)
		nodes, own := parts(len(n.Nodes), as)
		for i := range nodes {
			l := arrange(nodes[i], as, own[i])
			lifted, arches := l.arches(l.widths(texts{func(int) []string { return []string{"a-name"} }, nil}))
			for _, a := range arches {
				for _, end := range []int{a.left, a.right} {
					if layer := lifted.layers[lifted.items[end].layer]; layer[0] != end {
						t.Fatalf("graph %d: an arrow leaves the top of a box below another one", seed)
					}
				}
			}
		}
	}
}
