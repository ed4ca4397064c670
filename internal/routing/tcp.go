package routing

import (
	"fmt"

	"github.com/weirmesh/weir/internal/model"
)

// Rule returns the rule for the connections to a TCP port: that of the oldest route attached to its listener; nil if
// there is none.
func (p *Port) Rule() *Rule {
	if !p.TCP {
		return nil
	}
	return p.Listeners[0].tcp
}

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

// tcpRoute compiles a route for connections.
func (c *compiler) tcpRoute(m *model.Route, age int) {
	if len(m.Rules) != 1 || len(m.Rules[0].Matches) > 0 {
		c.omit(m.Ref, "rules", "a route for TCP must have one rule, without matches; it is left out")
		return
	}
	rule := &Rule{Route: m, Rule: &m.Rules[0]}
	c.serve(rule)
	for i, a := range m.Attachments {
		l := c.listeners[a.Listener]
		if l == nil || l.Listener.Protocol != model.TCP {
			if l != nil || !c.lost[a.Listener] {
				c.omit(m.Ref, fmt.Sprintf("attachments[%d].listener", i), "TCP listener %q does not exist", a.Listener)
			}
			continue
		}
		if l.tcp == nil || age < l.tcpAge {
			l.tcp, l.tcpAge = rule, age
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
