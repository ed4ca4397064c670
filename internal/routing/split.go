package routing

import (
	"fmt"
	"regexp"
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
	// Service is the name of the service, a variant if the service that was split is one; empty when Fault is set.
	Service string
	Fault   *model.Fault
}

// noLeaf answers when no leaf has a weight.
var noLeaf = &model.Fault{Status: 500, Reason: "NoBackend", Message: "all weights of the split are 0"}

// root is a service with splits. All backends that lead to it share it, and so its samplers; so do all mirrors among
// themselves, so that copies do not disturb the shares of primaries.
type root struct{ splits []rootSplit }

// way is what a service is reached by: a backend or a mirror.
type way struct {
	// root is nil unless the service has splits.
	root *root
	// leaves are those of each of the root's splits.
	leaves [][]*Leaf
}

// Leaves returns where splits may lead, those of each split in turn.
func (w *way) Leaves() []*Leaf { return slices.Concat(w.leaves...) }

type rootSplit struct {
	split   *model.Split
	matches []splitMatch
	draw    split
}

type splitMatch struct {
	match   *model.SplitMatch
	path    *regexp.Regexp // nil for any
	headers []condition
}

// Leaf says where a request that goes to the service is led by a split that takes it; nil is to the service itself. Of every block of draws as long as the sum of the weights (reduced by their greatest common divisor)
// each leaf gets exactly its weight, whichever backends and rules the requests came by.
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

// Split returns the split that Leaf would draw from, without drawing; nil if none takes the request.
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

// taker is the index of the first split that applies, -1 for none.
func (w *way) taker(req *Request) int {
	for i := range w.root.splits {
		if w.root.splits[i].applies(req) {
			return i
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
	if m.path != nil && !m.path.MatchString(req.Path) {
		return partPath, 0
	}
	for i := range m.headers {
		var value string
		var ok bool
		if req.Fields != nil {
			value, ok = req.Fields.Field(m.headers[i].name)
		}
		if !ok || !m.headers[i].holds(value) {
			return partHeader, i
		}
	}
	return none, 0
}

// roots compiles the splits.
func (c *compiler) roots(cfg *model.Config) error {
	if len(cfg.Splits) == 0 {
		return nil
	}
	c.rootOf = make(map[string]*root)
	c.copiesOf = make(map[string]*root)
	c.variants = make(map[string]bool)
	for i := range cfg.Services {
		if name := cfg.Services[i].Name; model.RootName(name) != name {
			c.variants[name] = true
		}
	}
	for i := range cfg.Splits {
		m := &cfg.Splits[i]
		r, copies := c.rootOf[m.Root], c.copiesOf[m.Root]
		if r == nil {
			r, copies = &root{}, &root{}
			c.rootOf[m.Root], c.copiesOf[m.Root] = r, copies
		}
		s := rootSplit{split: m}
		for j := range m.Matches {
			match, err := c.splitMatch(within(m.Ref, model.FieldAt("matches", j)), &m.Matches[j])
			if err != nil {
				return err
			}
			s.matches = append(s.matches, match)
		}
		weights := make([]uint64, len(m.Leaves))
		for j, l := range m.Leaves {
			weights[j] = l.Weight
			if (l.Service == "") == (l.Fault == nil) {
				return invalid(m.Ref, model.FieldAt("leaves", j), "must have either a service or a fault")
			}
		}
		s.draw = c.split(samplerKey{ref: m.Ref, root: m.Root}, weights)
		r.splits = append(r.splits, s)
		s.draw = c.split(samplerKey{ref: m.Ref, root: m.Root, copies: true}, weights)
		copies.splits = append(copies.splits, s)
	}
	return nil
}

func (c *compiler) splitMatch(ref model.Ref, m *model.SplitMatch) (splitMatch, error) {
	out := splitMatch{match: m}
	var err error
	if m.Path != "" {
		if out.path, err = c.start(m.Path); err != nil {
			return out, invalid(ref, "path", "%v", err)
		}
	}
	for i := range m.Headers {
		// One by one: of several on one field all must hold.
		one, err := c.conditions(func() model.Ref { return ref }, "headers", m.Headers[i:i+1], strings.ToLower)
		if err != nil {
			return out, err
		}
		out.headers = append(out.headers, one...)
	}
	return out, nil
}

// start compiles a pattern that must match from the start of a value.
func (c *compiler) start(pattern string) (*regexp.Regexp, error) {
	e := c.table.starts[pattern]
	if e == nil {
		e = c.prev.starts[pattern]
	}
	if e == nil {
		// By itself first: "a)|(b" would be valid between the brackets.
		if _, err := regexp.Compile(pattern); err != nil {
			return nil, fmt.Errorf("%w; write it in RE2 syntax", err)
		}
		var err error
		if e, err = regexp.Compile("^(?:" + pattern + ")"); err != nil {
			return nil, err
		}
	}
	c.table.starts[pattern] = e
	return e, nil
}

// way gives a service's splits and what they lead to; each leaf is handed to add.
func (c *compiler) way(service string, roots map[string]*root, add func(*Leaf)) way {
	if len(roots) == 0 || service == "" {
		return way{}
	}
	name := model.RootName(service)
	w := way{root: roots[name]}
	if w.root == nil {
		return w
	}
	variant := service[len(name):]
	for i := range w.root.splits {
		s := &w.root.splits[i]
		var leaves []*Leaf
		for j := range s.split.Leaves {
			l := &s.split.Leaves[j]
			leaf := &Leaf{Leaf: l, Service: l.Service, Fault: l.Fault}
			if variant != "" && c.variants[l.Service+variant] {
				leaf.Service += variant
			}
			leaves = append(leaves, leaf)
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
