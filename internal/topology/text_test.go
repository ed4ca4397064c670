package topology

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestDrawingsReadAsTheGraphsThatTheyAreOf(t *testing.T) {
	graphs := 1000
	if testing.Short() {
		graphs = 50
	}
	for seed := range uint64(graphs) {
		g := randomGraph(seed)
		text := Text(g, Options{})
		got, err := read(text, ours)
		want := shown(g)
		if err != nil || !slices.Equal(got.nodes, want.nodes) || !slices.Equal(got.arrows, want.arrows) {
			t.Fatalf("graph %d: %v\n got %q\nwant %q\n%s", seed, err, got.arrows, want.arrows, text)
		}
		lines := func(a, b []string) int { return cmp.Compare(a[0], b[0]) }
		slices.SortFunc(got.boxes, lines)
		slices.SortFunc(want.boxes, lines)
		if !reflect.DeepEqual(got.boxes, want.boxes) {
			t.Fatalf("graph %d: got boxes %q, want %q\n%s", seed, got.boxes, want.boxes, text)
		}
	}
}

func TestTheOrderOfTheInputDoesNotMatter(t *testing.T) {
	for seed := range uint64(20) {
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
	got, err := read(text, ours)
	if err != nil || len(got.nodes) != 2 || len(got.arrows) != 1 {
		t.Fatalf("%v %q\n%s", err, got.arrows, text)
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
		if strings.Contains("\n"+text, "\nToo wide to draw (") {
			return
		}
		if got, err := read(text, ours); len(boxes) <= MaxNodes && len(g.Edges) <= MaxEdges && (err != nil || len(got.nodes) != len(boxes)) {
			t.Fatalf("%v: %q\n%s", err, got.arrows, text)
		}
	})
}
