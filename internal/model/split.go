package model

import "math"

// Split sends the requests for a service, its root, to other services, its leaves. It is a property of the root: it
// applies whichever rule leads there. A leaf serves its requests with its own endpoints, even if the leaf is the root
// of this or another split: splits do not nest.
//
// Of several splits of one root, the first one that applies to a request takes it. Their order in Config.Splits counts:
// a split without matches leaves nothing for those after it. A request to which none applies is served by the root's
// own endpoints.
type Split struct {
	// Ref is the object; with Root it identifies the split in the whole configuration.
	Ref Ref `json:"ref"`
	// Root is the Name of a service.
	Root string `json:"root"`
	// Matches limit the split to the requests that meet any of them (OR). Empty is no limit.
	Matches []SplitMatch `json:"matches,omitempty"`
	// Leaves share by weight. When no leaf has any, the requests are answered 500.
	Leaves []Leaf `json:"leaves"`
}

// SplitMatch is a set of conditions which must all hold (AND).
type SplitMatch struct {
	Ref Ref `json:"ref"`
	// Methods are the allowed methods; empty means all.
	Methods []string `json:"methods,omitempty"`
	// Path is an expression in RE2 syntax. It must match the normalised path from its start; any text may follow the
	// match. Empty means any path.
	Path    string       `json:"path,omitempty"`
	Headers []ValueMatch `json:"headers,omitempty"`
}

// Leaf is a weighted service of a split.
type Leaf struct {
	Ref Ref `json:"ref"`
	// Service is the Name of an entry of Config.Services; empty exactly when Fault is set.
	Service string `json:"service,omitempty"`
	// Weight is the leaf's part of the sum of all weights; 0 gets nothing. The sum must be below 2^62.
	Weight uint64 `json:"weight"`
	// Fault answers the leaf's share in its stead.
	Fault *Fault `json:"fault,omitempty"`
}

// MaxWeightSum is the largest sum of a split's weights.
const MaxWeightSum = math.MaxUint64 >> 2

func (v *validator) split(s *Split) {
	key := splitKey{s.Ref, s.Root}
	switch {
	case s.Root == "" || !v.services[s.Root]:
		v.fail(s.Ref, "root", "service %q does not exist", s.Root)
	case v.splits[key]:
		v.fail(s.Ref, "root", "the split of %q occurs twice", s.Root)
	}
	v.splits[key] = true
	var patterns PatternBudget
	for i, m := range s.Matches {
		v.splitMatch(s.Ref, v.at("matches", i), m, &patterns)
	}
	v.leaves(s)
}

func (v *validator) splitMatch(where Ref, field string, m SplitMatch, patterns *PatternBudget) {
	for i, method := range m.Methods {
		if method == "" {
			v.fail(where, v.at(field+".methods", i), "is empty")
		}
	}
	v.pattern(where, field+".path", m.Path, patterns)
	for i, h := range m.Headers {
		v.value(where, v.at(field+".headers", i), h, patterns)
	}
}

func (v *validator) leaves(s *Split) {
	if len(s.Leaves) == 0 {
		v.fail(s.Ref, "leaves", "is empty")
	}
	var sum uint64
	for i, l := range s.Leaves {
		v.leaf(s.Ref, v.at("leaves", i), l)
		if l.Weight > MaxWeightSum-sum {
			v.fail(s.Ref, "leaves", "the sum of the weights is above %d", uint64(MaxWeightSum))
			return
		}
		sum += l.Weight
	}
}

func (v *validator) leaf(where Ref, field string, l Leaf) {
	v.target(where, field, l.Service, l.Fault)
}
