package routing

import (
	"github.com/weirmesh/weir/internal/model"
)

// Rule is the rule for the connections to a port: that of the oldest route attached to its listener; nil if there is none, or
// if only requests come to the port.
func (p *Port) Rule() *Rule { return p.Listeners[0].connections }

// ConnectionLeaf is Leaf for a connection, to which no split with matches applies.
func (b *Backend) ConnectionLeaf() *Leaf {
	if b.root == nil {
		return nil
	}
	for i := range b.root.splits {
		if len(b.root.splits[i].split.Matches) == 0 {
			return b.drawn(i)
		}
	}
	return nil
}

// connectionRoute compiles a route for connections.
func (c *compiler) connectionRoute(m *model.Route, age int) {
	if len(m.Rules) != 1 || len(m.Rules[0].Matches) > 0 {
		c.omit(m.Ref, "rules", "a %s route must have one rule, without matches; it is left out", m.Kind)
		return
	}
	rule := &Rule{Route: m, Rule: &m.Rules[0]}
	c.serve(rule)
	for i := range m.Attachments {
		l := c.attached(m, i)
		if l != nil && (l.connections == nil || age < l.connectionsAge) {
			l.connections, l.connectionsAge = rule, age
		}
	}
}

// ExplainConnectionLeaf shows how ConnectionLeaf decides, without drawing: the splits of the backend's service, up to
// the one that applies. It is empty if the service has none.
func (b *Backend) ExplainConnectionLeaf() []ExplainedSplit {
	if b.root == nil {
		return nil
	}
	var out []ExplainedSplit
	for i := range b.root.splits {
		s := &b.root.splits[i]
		e := ExplainedSplit{Split: s.split.Ref, Root: s.split.Root, Takes: len(s.split.Matches) == 0}
		if e.Takes {
			e.Leaves = b.explainLeaves(i)
			return append(out, e)
		}
		e.Lost = []string{"it has matches, which cannot apply to a connection"}
		out = append(out, e)
	}
	return out
}
