package routing

import (
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// Leaf is where the requests of a backend, or the copies of a mirror, go that a split of its service takes.
type Leaf struct {
	// ID is the leaf's place in Table.Leaves, or in Table.MirrorLeaves.
	ID int
	// Backend or Mirror leads here; the other is nil.
	Backend *Backend
	Mirror  *Mirror
	Split   *model.Split
	// Leaf is nil when no leaf of the split has a weight.
	Leaf *model.Leaf
	// Service is the name of the service; empty when Fault is set.
	Service string
	Fault   *model.Fault
}

// noLeaf answers when no leaf has a weight.
var noLeaf = &model.Fault{Status: 500, Reason: "NoBackend", Message: "all weights of the split are 0"}

// root is a service with splits. All backends that lead to it share it, and so its samplers; so do all mirrors among
// themselves, so that copies do not disturb the shares of primaries.
type root struct{ splits []rootSplit }

// way is a reference by which a service is reached: a backend or a mirror.
type way struct {
	// root is nil unless the service has splits.
	root *root
	// leaves are the leaves of each of the root's splits.
	leaves [][]*Leaf
}

// Leaves returns all leaves to which splits may lead, split by split.
func (w *way) Leaves() []*Leaf { return slices.Concat(w.leaves...) }

type rootSplit struct {
	split   *model.Split
	matches []splitMatch
	draw    split
}

type splitMatch struct {
	match   *model.SplitMatch
	path    *model.Pattern // nil for any
	headers []condition
}

// Leaf returns the leaf for a request to the service, if a split takes the request; nil means the service itself. In
// every block of draws as long as the sum of the weights (reduced by their greatest common divisor), each leaf gets
// exactly its weight, over all backends and rules together.
func (w *way) Leaf(req *Request) *Leaf {
	if w.root == nil {
		return nil
	}
	return w.leaf(req)
}

func (w *way) leaf(req *Request) *Leaf {
	i := w.taker(req)
	if i < 0 {
		return nil
	}
	return w.drawn(i)
}

// drawn is where the split of that index leads next.
func (w *way) drawn(i int) *Leaf {
	s := &w.root.splits[i]
	leaf := s.draw.pick()
	if leaf < 0 {
		leaf = len(s.split.Leaves)
	}
	return w.leaves[i][leaf]
}

// CopyLeaf is Leaf for a copy. If ok is false, it gave up because of the cost, and there is no copy. It does not change
// the request's Excess or the work counted for it: a mirror takes nothing from the primary.
func (m *Mirror) CopyLeaf(req *Request) (leaf *Leaf, ok bool) {
	if m.root == nil {
		return nil, true
	}
	matched, excess := req.matched, req.excess
	req.matched = 0
	leaf = m.leaf(req)
	ok = req.excess == NoExcess
	req.matched, req.excess = matched, excess
	return leaf, ok
}

// Split returns the split that Leaf would draw from, without drawing; nil if no split takes the request.
func (w *way) Split(req *Request) *model.Split {
	if w.root == nil {
		return nil
	}
	i := w.taker(req)
	if i < 0 {
		return nil
	}
	return w.root.splits[i].split
}

// taker returns the index of the first split that applies, or -1.
func (w *way) taker(req *Request) int {
	req.work, req.excess = req.matched, NoExcess
	for i := range w.root.splits {
		if w.root.splits[i].applies(req) {
			return i
		}
		if req.excess != NoExcess {
			break
		}
	}
	return -1
}

func (s *rootSplit) applies(req *Request) bool {
	if len(s.split.Matches) == 0 {
		return true
	}
	for i := range s.matches {
		if p, _ := s.matches[i].fails(req); p == none {
			return true
		}
	}
	return false
}

// fails returns the first part of the match that does not hold for the request, and its index among its kind.
func (m *splitMatch) fails(req *Request) (part, int) {
	if len(m.match.Methods) > 0 && !slices.Contains(m.match.Methods, req.Method) {
		return partMethod, 0
	}
	if m.path != nil && !req.matches(m.path, req.Path, ExcessPath, false) {
		return partPath, 0
	}
	for i := range m.headers {
		var value string
		var ok bool
		if req.Fields != nil {
			value, ok = req.Fields.Field(m.headers[i].name)
		}
		if !ok || !m.headers[i].holds(req, value, false) {
			return partHeader, i
		}
	}
	return none, 0
}

// roots compiles the splits.
func (c *compiler) roots(cfg *model.Config) {
	if len(cfg.Splits) == 0 {
		return
	}
	c.rootOf = make(map[string]*root)
	c.copiesOf = make(map[string]*root)
	for i := range cfg.Splits {
		c.addSplit(&cfg.Splits[i])
	}
}

func (c *compiler) addSplit(m *model.Split) {
	c.patterns = model.PatternBudget{}
	s := rootSplit{split: m}
	for j := range m.Matches {
		if match, ok := c.splitMatch(within(m.Ref, model.FieldAt("matches", j)), &m.Matches[j]); ok {
			s.matches = append(s.matches, match)
		}
	}
	if len(m.Matches) > 0 && len(s.matches) == 0 {
		c.omit(m.Ref, "matches", "none of them can be used; the split is left out, because without matches it would take all requests")
		return
	}
	weights := make([]uint64, len(m.Leaves))
	var sum uint64
	for j, l := range m.Leaves {
		if weights[j] = l.Weight; l.Weight > model.MaxWeightSum-sum {
			c.omit(m.Ref, "leaves", "the sum of the weights is above %d; the split is left out", uint64(model.MaxWeightSum))
			return
		}
		sum += l.Weight
	}
	for j, l := range m.Leaves {
		if (l.Service == "") != (l.Fault == nil) {
			continue
		}
		c.omit(m.Ref, model.FieldAt("leaves", j), "must have either a service or a fault; its share is answered 500")
		if s.split == m {
			closed := *m
			closed.Leaves = slices.Clone(m.Leaves)
			s.split = &closed
		}
		s.split.Leaves[j] = model.Leaf{Ref: l.Ref, Weight: l.Weight, Fault: closedFault}
	}
	r, copies := c.rootOf[m.Root], c.copiesOf[m.Root]
	if r == nil {
		r, copies = &root{}, &root{}
		c.rootOf[m.Root], c.copiesOf[m.Root] = r, copies
	}
	s.draw = c.split(samplerKey{ref: m.Ref, root: m.Root}, weights)
	r.splits = append(r.splits, s)
	s.draw = c.split(samplerKey{ref: m.Ref, root: m.Root, copies: true}, weights)
	copies.splits = append(copies.splits, s)
}

// splitMatch compiles a match; ok is false if it is left out.
func (c *compiler) splitMatch(ref model.Ref, m *model.SplitMatch) (out splitMatch, ok bool) {
	out = splitMatch{match: m}
	if m.Path != "" {
		var err error
		if out.path, err = c.start(m.Path); err != nil {
			c.omit(ref, "path", "%v; the match is left out", err)
			return out, false
		}
	}
	for i := range m.Headers {
		// One by one: of several on one field all must hold.
		one, ok := c.conditions(func() model.Ref { return ref }, "headers", m.Headers[i:i+1], strings.ToLower)
		if !ok {
			return out, false
		}
		out.headers = append(out.headers, one...)
	}
	return out, true
}

// way returns a service's splits with their leaves. It calls add for each leaf.
func (c *compiler) way(service string, roots map[string]*root, add func(*Leaf)) way {
	if len(roots) == 0 || service == "" {
		return way{}
	}
	w := way{root: roots[service]}
	if w.root == nil {
		return w
	}
	for i := range w.root.splits {
		s := &w.root.splits[i]
		var leaves []*Leaf
		for j := range s.split.Leaves {
			l := &s.split.Leaves[j]
			leaves = append(leaves, &Leaf{Leaf: l, Service: l.Service, Fault: l.Fault})
		}
		if s.draw.sole < 0 && s.draw.sampler == nil {
			leaves = append(leaves, &Leaf{Fault: noLeaf})
		}
		for _, l := range leaves {
			l.Split = s.split
			add(l)
		}
		w.leaves = append(w.leaves, leaves)
	}
	return w
}
