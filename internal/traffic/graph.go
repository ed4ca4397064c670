package traffic

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/topology"
)

// Graph is who talks to whom, by the edges of resources of a kind. Each edge is drawn once: as its receiver measured it,
// otherwise as its sender did. namespaces says whether names are told apart by theirs.
func Graph(edges []Row, namespaces bool) topology.Graph {
	type pair struct{ from, to string }
	found := map[pair]Row{}
	measured := map[pair]bool{} // by the receiver
	nodes := map[string]topology.Node{}
	node := func(r *corev1.ObjectReference, kind string) string {
		id := Side(r)
		if _, ok := nodes[id]; !ok {
			nodes[id] = topology.Node{ID: id, Name: nodeName(r, kind, namespaces)}
		}
		return id
	}
	for i := range edges {
		r := &edges[i]
		if r.Measured.Success+r.Measured.Failure == 0 {
			continue
		}
		own, other := node(&r.Of, r.Of.Kind), node(r.Edge.Resource, r.Of.Kind)
		p, received := pair{other, own}, true
		if r.Edge.Direction == metrics.To {
			p, received = pair{own, other}, false
		}
		if measured[p] && !received {
			continue
		}
		found[p] = *r
		measured[p] = measured[p] || received
	}
	var g topology.Graph
	for _, n := range nodes {
		g.Nodes = append(g.Nodes, n)
	}
	slices.SortFunc(g.Nodes, func(a, b topology.Node) int { return cmp.Compare(a.ID, b.ID) })
	for p, r := range found {
		g.Edges = append(g.Edges, topology.Edge{From: p.from, To: p.to, Label: Label(r.Measured, r.Window)})
	}
	slices.SortFunc(g.Edges, func(a, b topology.Edge) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return g
}

// Label is what an edge of a graph says of its traffic: the rate, and the success unless all succeeded.
func Label(m metrics.Measured, window time.Duration) string {
	label := RPS(m.Rate(window))
	if m.Failure > 0 {
		label += " " + metrics.Percent(m)
	}
	return label
}

// nodeName is short for resources of the graph's kind.
func nodeName(r *corev1.ObjectReference, kind string, namespaces bool) string {
	if r == nil || r.Name == "" {
		return Side(r)
	}
	name := r.Name
	if namespaces && r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	if r.Kind != kind {
		name = strings.ToLower(r.Kind) + "/" + name
	}
	return name
}
