package topology

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weirmesh/weir/internal/visible"
)

// DOT writes a graph for Graphviz, all of it: quoted such that names and labels are text and nothing else.
func DOT(g Graph) string {
	n := normalise(g, false)
	// A backslash begins an escape of Graphviz in labels. Nodes have numbers in place of their IDs, which need no quotes then.
	label := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var b strings.Builder
	b.WriteString("digraph topology {\n\trankdir=LR;\n\tnode [shape=box];\n")
	for i, v := range n.Nodes {
		text := label.Replace(visible.Text(v.title()))
		for _, s := range v.Lines {
			text += `\n` + label.Replace(visible.Text(s))
		}
		fmt.Fprintf(&b, "\tn%d [label=\"%s\"];\n", i, text)
	}
	for _, e := range n.Edges {
		fmt.Fprintf(&b, "\tn%d -> n%d", n.index[e.From], n.index[e.To])
		if e.Label != "" {
			fmt.Fprintf(&b, " [label=\"%s\"]", label.Replace(visible.Text(e.Label)))
		}
		b.WriteString(";\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// JSON writes a graph, all of it, in a fixed order.
func JSON(g Graph) ([]byte, error) {
	n := normalise(g, false)
	if n.Nodes == nil {
		n.Nodes = []Node{}
	}
	if n.Edges == nil {
		n.Edges = []Edge{}
	}
	text, err := json.MarshalIndent(n.Graph, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(visible.JSON(text), '\n'), nil
}
