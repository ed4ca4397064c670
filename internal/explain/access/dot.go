package access

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/visible"
)

const (
	// maxLabel bounds the lines of an edge, maxLine the characters of one.
	maxLabel = 5
	maxLine  = 60
)

// DOT is the matrix as a graph in the DOT language: workloads and other clients, with an edge where something is
// allowed. Workloads that are open to everybody are dashed.
func (m *Matrix) DOT() string {
	var b strings.Builder
	b.WriteString("digraph access {\n  rankdir=LR;\n  node [shape=box];\n")
	known := map[string]bool{}
	for i := range m.Workloads {
		w := &m.Workloads[i]
		name, style := finding.Object(w.Workload), ""
		known[name] = true
		if w.State.Deny == "never" {
			style = ", style=dashed"
		}
		fmt.Fprintf(&b, "  %s [label=%s%s];\n", quote(name), label(w.Workload.Kind, w.Workload.Namespace+"/"+w.Workload.Name, w.State.String()), style)
	}
	others, edges := map[string]bool{}, map[[2]string][]string{}
	for i := range m.Grants {
		g := &m.Grants[i]
		methods, paths, ports := g.words()
		text := methods
		if paths != "-" && (methods != "any" || paths != "any") {
			text += " " + paths
		}
		if ports != "any" {
			text += " :" + ports
		}
		to := finding.Object(g.Target)
		for _, from := range g.nodes() {
			if !known[from] {
				others[from] = true
			}
			if e := [2]string{from, to}; !slices.Contains(edges[e], text) {
				edges[e] = append(edges[e], text)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		fmt.Fprintf(&b, "  %s [shape=ellipse];\n", quote(name))
	}
	for _, e := range slices.SortedFunc(maps.Keys(edges), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		lines := edges[e]
		slices.Sort(lines)
		fmt.Fprintf(&b, "  %s -> %s [label=%s];\n", quote(e[0]), quote(e[1]), label(finding.First(lines, maxLabel)...))
	}
	b.WriteString("}\n")
	return b.String()
}

// nodes are those that a grant's edges begin at: the workloads that its source names, or the source.
func (g *Grant) nodes() (all []string) {
	for _, c := range g.Clients {
		all = append(all, finding.Object(c))
	}
	if all == nil {
		source := model.Source{Kind: g.Source.Kind, Namespace: g.Source.Namespace, Name: g.Source.Name}
		all = []string{source.Words()}
	}
	return all
}

// quote is a text as a quoted string of DOT, in which nothing has a meaning of its own.
func quote(text string) string { return `"` + escape(text) + `"` }

// label is lines as a label, in which a backslash begins an escape.
func label(lines ...string) string {
	out := make([]string, len(lines))
	for i, l := range lines {
		if runes := []rune(l); len(runes) > maxLine {
			l = string(runes[:maxLine-3]) + "..."
		}
		out[i] = escape(l)
	}
	return `"` + strings.Join(out, `\n`) + `"`
}

func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(visible.Text(text))
}
