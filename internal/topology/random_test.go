package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// randomGraph has 1 to 30 nodes, most often few, in one of several shapes; names of several kinds; and labels in every other graph.
func randomGraph(seed uint64) Graph {
	random := rand.New(rand.NewPCG(seed, 7))
	n := 1 + random.IntN(9)
	switch random.IntN(6) {
	case 0:
		n = 8 + random.IntN(12)
	case 1:
		n = 18 + random.IntN(13)
	}
	name := names[random.IntN(len(names))]
	var g Graph
	for i := range n {
		g.Nodes = append(g.Nodes, name(i, random))
	}
	random.Shuffle(n, func(i, j int) { g.Nodes[i], g.Nodes[j] = g.Nodes[j], g.Nodes[i] })
	labels := []string{""}
	if random.IntN(2) == 0 {
		labels = []string{"", "12rps 99.8%", "1 rps", "日本", "5%", "0.3rps 100.0% p99 12ms", `-> "quoted\"`, `end\`, "é́  é", strings.Repeat("w", MaxLabel)}
	}
	link := func(a, b int) {
		g.Edges = append(g.Edges, Edge{g.Nodes[a%n].ID, g.Nodes[b%n].ID, labels[random.IntN(len(labels))]})
	}
	shapes[random.IntN(len(shapes))](n, random, link)
	for range random.IntN(2) * random.IntN(3) {
		link(random.IntN(n), random.IntN(n))
	}
	return g
}

// shapes link n nodes.
var shapes = []func(n int, random *rand.Rand, link func(a, b int)){
	func(n int, random *rand.Rand, link func(a, b int)) { // few or many links
		for range random.IntN(1 + n*(1+random.IntN(4))/2) {
			link(random.IntN(n), random.IntN(n))
		}
	},
	func(n int, random *rand.Rand, link func(a, b int)) { // a tree, both directions here and there
		for i := 1; i < n; i++ {
			p := random.IntN(i)
			link(p, i)
			if random.IntN(5) == 0 {
				link(i, p)
			}
		}
	},
	func(n int, random *rand.Rand, link func(a, b int)) { // tiers of services, each of which talks to some of the next ones
		for i := range n {
			for j := i + 1; j < min(n, i+4); j++ {
				if random.IntN(2) == 0 {
					link(i, j)
				}
			}
		}
	},
	func(n int, random *rand.Rand, link func(a, b int)) { // a hub
		for i := 1; i < n; i++ {
			if random.IntN(2) == 0 {
				link(0, i)
			} else {
				link(i, 0)
			}
		}
	},
	func(n int, random *rand.Rand, link func(a, b int)) { // a cycle with loops
		for i := range n {
			link(i, i+1)
			if random.IntN(4) == 0 {
				link(i, i)
			}
		}
	},
	func(n int, random *rand.Rand, link func(a, b int)) { // parts without a link to one another
		for i := range n {
			if random.IntN(3) > 0 {
				link(i, i-i%3+random.IntN(3))
			}
		}
	},
	func(n int, random *rand.Rand, link func(a, b int)) { // pairs in both directions
		for i := 1; i < n; i++ {
			p := max(0, i-1-random.IntN(2))
			link(i, p)
			link(p, i)
		}
	},
}

// names make nodes with texts of several kinds, which begin with the number.
var names = []func(i int, random *rand.Rand) Node{
	func(i int, _ *rand.Rand) Node { return Node{ID: fmt.Sprintf("n%d", i)} },
	func(i int, random *rand.Rand) Node {
		return Node{ID: fmt.Sprintf("id%d", i), Name: fmt.Sprintf("%d %s", i, strings.Repeat("service-", random.IntN(5))), Lines: []string{"3/3 ready", "v1"}[:random.IntN(3)]}
	},
	func(i int, random *rand.Rand) Node {
		return Node{ID: fmt.Sprintf("id%d", i), Name: fmt.Sprintf("%d %s", i, strings.Repeat("界面", 1+random.IntN(4)))}
	},
	func(i int, random *rand.Rand) Node {
		return Node{ID: fmt.Sprintf("id%d", i), Name: fmt.Sprintf("%d %s한́", i, strings.Repeat("e\u0301", random.IntN(9))), Lines: []string{"+--+", "| x |", "->"}[:random.IntN(4)]}
	},
}

// shown is what a drawing without bounds of its width has to show of a graph.
func shown(g Graph) (out picture) {
	text := map[string]string{}
	for _, v := range g.Nodes {
		s := strings.TrimSpace(v.Name)
		if s == "" {
			s = v.ID
		}
		text[v.ID] = s
		out.nodes = append(out.nodes, s)
		out.boxes = append(out.boxes, append([]string{s}, v.Lines...))
	}
	edges := map[Edge]bool{}
	for _, e := range g.Edges {
		edges[e] = true
	}
	for e := range edges {
		label, a, b := e.Label, text[e.From], text[e.To]
		if strings.ContainsAny(label, `->"\`) || strings.Contains(label, "  ") {
			label = `"` + strings.ReplaceAll(strings.ReplaceAll(label, `\`, `\\`), `"`, `\"`) + `"`
		}
		switch {
		case e.From == e.To || !edges[Edge{e.To, e.From, e.Label}]:
			out.arrows = append(out.arrows, fmt.Sprintf("%s -> %s: %s", a, b, label))
		case a < b:
			out.arrows = append(out.arrows, fmt.Sprintf("%s <-> %s: %s", a, b, label))
		}
	}
	slices.Sort(out.nodes)
	slices.Sort(out.arrows)
	return out
}
