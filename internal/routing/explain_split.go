package routing

import (
	"fmt"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// ExplainedSplit is a split of a backend's service as Leaf looks at it.
type ExplainedSplit struct {
	Split model.Ref `json:"split"`
	Root  string    `json:"root"`
	// Takes is true for the split that takes the request. It is the last one listed.
	Takes bool `json:"takes,omitempty"`
	// Match is the match that holds; nil if none does, or if the split has no matches.
	Match *model.SplitMatch `json:"match,omitempty"`
	// Lost describes for each match which part failed.
	Lost   []string        `json:"lost,omitempty"`
	Leaves []ExplainedLeaf `json:"leaves,omitempty"`
}

// ExplainedLeaf is a leaf of the split that takes the request.
type ExplainedLeaf struct {
	Service string `json:"service,omitempty"`
	// Weight of WeightSum requests, exactly; both are reduced by their greatest common divisor.
	Weight    uint64       `json:"weight"`
	WeightSum uint64       `json:"weightSum"`
	Fault     *model.Fault `json:"fault,omitempty"`
	// Ref is where the leaf was written.
	Ref model.Ref `json:"ref"`
}

// Probability of the leaf, 0 to 1.
func (l *ExplainedLeaf) Probability() float64 {
	if l.WeightSum == 0 {
		return 0
	}
	return float64(l.Weight) / float64(l.WeightSum)
}

// ExplainLeaf shows how Leaf decides on the request, without drawing: the splits of the backend's service, up to the
// one that takes it. It is empty if the service has none.
func (w *way) ExplainLeaf(req *Request) []ExplainedSplit {
	if w.root == nil {
		return nil
	}
	req.work, req.excess = req.matched, NoExcess
	var out []ExplainedSplit
	for i := range w.root.splits {
		s := &w.root.splits[i]
		e := ExplainedSplit{Split: s.split.Ref, Root: s.split.Root, Takes: len(s.matches) == 0}
		for j := range s.matches {
			m := &s.matches[j]
			p, at := m.fails(req)
			if p == none {
				e.Takes, e.Match = true, m.match
				break
			}
			e.Lost = append(e.Lost, m.words(req, p, at))
		}
		if e.Takes {
			e.Leaves = w.explainLeaves(i)
		}
		out = append(out, e)
		if e.Takes {
			break
		}
	}
	return out
}

func (w *way) explainLeaves(split int) []ExplainedLeaf {
	var weights []uint64
	for _, l := range w.leaves[split] {
		if l.Leaf != nil {
			weights = append(weights, l.Leaf.Weight)
		}
	}
	reduced, sum, sole := reduce(weights)
	var out []ExplainedLeaf
	for i, l := range w.leaves[split] {
		e := ExplainedLeaf{Service: l.Service, Fault: l.Fault, WeightSum: sum}
		switch {
		case l.Leaf == nil: // the answer when no leaf has a weight
			e.Weight, e.WeightSum, e.Ref = 1, 1, l.Split.Ref
		case sum > 0:
			e.Weight, e.Ref = reduced[i], l.Leaf.Ref
		default:
			e.Ref = l.Leaf.Ref
			e.WeightSum = 1
			if i == sole {
				e.Weight = 1
			}
		}
		out = append(out, e)
	}
	return out
}

// words describes the part that failed.
func (m *splitMatch) words(req *Request, failed part, i int) string {
	switch failed {
	case partMethod:
		return fmt.Sprintf("method is %q, wanted %s", req.Method, strings.Join(m.match.Methods, " or "))
	case partPath:
		return fmt.Sprintf("path is %q, wanted regex %q from its start", req.Path, m.match.Path)
	}
	var value string
	var ok bool
	if req.Fields != nil {
		value, ok = req.Fields.Field(m.headers[i].name)
	}
	return m.headers[i].words("header", value, ok)
}
