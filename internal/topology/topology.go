// Package topology draws directed graphs of who talks to whom: as text for terminals and files (Text), as a picture for pages (SVG), for Graphviz (DOT)
// and as JSON. It is pure: a graph in, bytes out. It knows nothing of where traffic is seen; whoever has seen it makes the Graph.
//
//	                  +------------------------+
//	                  |                        v
//	+---------+     +-----+     +-----+      +-----+
//	| traffic | --> | foo | --> | bar | <--> | baz |
//	+---------+     +-----+     +-----+      +-----+
//
// How to read a drawing:
//   - Nodes stand in layers from left to right, and lines join their left and right sides. An arrow that goes back has its head on the right side of a box.
//   - An arrow that would pass a layer above all boxes there leaves the top of its box and comes down on the top of the other one.
//   - "+" outside of a box is a bend of one line, never a joint: two lines never share a cell. Where two cross, the vertical one is drawn and the horizontal one
//     goes on behind it ("-|-").
//   - Two edges in both directions are one line with two heads if their labels are equal (or both empty); otherwise they are two arrows, each with its label.
//   - A label stands in its line near the left end; one with characters of which lines are made is in quotes.
//   - Connected parts stand one below the other, in the order of their first IDs; nodes without an edge to another one come last.
//
// A picture has the same boxes and lines. The same graph gives the same drawing whatever the order of its nodes and edges. Names and labels are made visible and bounded (see the constants), with
// an ellipsis in the middle.
package topology

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"github.com/weirmesh/weir/internal/visible"
)

// Bounds of a drawing. What is beyond them is left out, and the drawing says so.
const (
	// MaxNodes are drawn, the first by ID.
	MaxNodes = 200
	// MaxEdges are drawn of those between drawn nodes, the first by From, To and Label.
	MaxEdges = 500
	// MaxName is the width of a node's lines in columns.
	MaxName = 40
	// MaxLabel is the width of an edge's label in columns.
	MaxLabel = 24
	// MaxLines are drawn of a node's further lines.
	MaxLines = 4
)

// Node is one who talks or is talked to.
type Node struct {
	// ID is unique; of several nodes with one ID one is drawn.
	ID string `json:"id"`
	// Name is shown; the ID is if it is empty.
	Name string `json:"name,omitempty"`
	// Lines are shown below the name.
	Lines []string `json:"lines,omitempty"`
}

// title is the name that is shown, whole.
func (v Node) title() string {
	if strings.TrimSpace(v.Name) == "" {
		return v.ID
	}
	return v.Name
}

// Edge is traffic from one node to another one, or to itself. An end that no node has becomes a node.
type Edge struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Label string `json:"label,omitempty"`
}

// Graph is what is drawn.
type Graph struct {
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges"`
}

// normal is a graph in a fixed order, within bounds, with what is left out.
type normal struct {
	Graph
	index                map[string]int
	leftNodes, leftEdges int
	boxes                map[int][][]string // what boxLines has made, by the width
}

func compareEdges(a, b Edge) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Label, b.Label))
}

// normalise sorts, adds nodes that only edges have, and removes what is there twice. Without bounds nothing is left out.
func normalise(g Graph, bounded bool) normal {
	n := normal{index: map[string]int{}, boxes: map[int][][]string{}}
	n.Nodes, n.Edges = slices.Clone(g.Nodes), slices.Clone(g.Edges)
	known := map[string]bool{}
	for _, v := range n.Nodes {
		known[v.ID] = true
	}
	for _, e := range n.Edges {
		for _, id := range []string{e.From, e.To} {
			if !known[id] {
				known[id] = true
				n.Nodes = append(n.Nodes, Node{ID: id})
			}
		}
	}
	slices.SortFunc(n.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Name, b.Name), slices.Compare(a.Lines, b.Lines))
	})
	n.Nodes = slices.CompactFunc(n.Nodes, func(a, b Node) bool { return a.ID == b.ID })
	slices.SortFunc(n.Edges, compareEdges)
	n.Edges = slices.Compact(n.Edges)
	if bounded && len(n.Nodes) > MaxNodes {
		n.leftNodes = len(n.Nodes) - MaxNodes
		n.Nodes = n.Nodes[:MaxNodes]
	}
	for i, v := range n.Nodes {
		n.index[v.ID] = i
	}
	all := len(n.Edges)
	n.Edges = slices.DeleteFunc(n.Edges, func(e Edge) bool {
		_, from := n.index[e.From]
		_, to := n.index[e.To]
		return !from || !to
	})
	if bounded && len(n.Edges) > MaxEdges {
		n.Edges = n.Edges[:MaxEdges]
	}
	n.leftEdges = all - len(n.Edges)
	return n
}

// columns is how many columns of a terminal a text takes.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

// runeColumns is what terminals make of a character (UAX #11): marks have no width, nor have the vowels and finals of Korean syllables in parts.
func runeColumns(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) || r >= 0x1160 && r <= 0x11ff {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// shorten makes a text visible, and no wider than most columns: the middle gives way to an ellipsis.
func shorten(s string, most int) string {
	if most < 1 {
		return ""
	}
	// What is cut away anyway is not looked at: an escape of a byte has at least one column.
	if runes := []rune(s); len(runes) > 40*most {
		s = string(runes[:20*most]) + string(runes[len(runes)-20*most:])
	}
	s = visible.Text(s)
	if columns(s) <= most {
		return s
	}
	runes := []rune(s)
	head, tail := 0, len(runes)
	used := 1
	for head < tail {
		next := runeColumns(runes[head])
		if used+next > (most+2)/2 {
			break
		}
		used, head = used+next, head+1
	}
	for tail > head {
		next := runeColumns(runes[tail-1])
		if used+next > most {
			break
		}
		used, tail = used+next, tail-1
	}
	return string(runes[:head]) + "…" + string(runes[tail:])
}

// labelText is a label as it is drawn in a line.
func labelText(s string, most int) string {
	s = strings.TrimSpace(shorten(s, most))
	if strings.ContainsAny(s, `-+|<>"\`) || strings.Contains(s, "  ") {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
	}
	return s
}
