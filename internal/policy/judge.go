package policy

import (
	"slices"

	"github.com/weirmesh/weir/internal/model"
)

// Subject is a peer at a port of a workload: what the policies allow it there. It is found once for a connection and
// judges all that comes over it, until the table is replaced.
type Subject struct {
	table  *Table
	port   int32
	grants []*grant
	// unknown is why the peer has no grants: NoIdentity, UnknownSource, or NotPermitted if it has some on other ports.
	unknown Reason
}

// Of reports whether this is a peer at that port of the table's workload.
func (s *Subject) Of(t *Table, port int32) bool { return s.table == t && s.port == port }

// Subject returns what a peer may do on a port of the table's workload. Its cost does not depend on the number of policies.
func (t *Table) Subject(p *Peer, port int32) *Subject {
	s := &Subject{table: t, port: port, unknown: UnknownSource}
	if !t.governed {
		return s
	}
	if p.ID == "" {
		s.unknown = NoIdentity
		return s
	}
	p.each(func(of source) {
		if !t.sources[of] {
			return
		}
		s.unknown = NotPermitted
		if g := t.grants[key{of, 0}]; g != nil {
			s.grants = append(s.grants, g)
		}
		if g := t.grants[key{of, port}]; g != nil && port != 0 {
			s.grants = append(s.grants, g)
		}
	})
	return s
}

// each calls f with every source that the peer is.
func (p *Peer) each(f func(source)) {
	if p.ID == "" {
		return
	}
	f(source{kind: model.KindSPIFFE, name: p.ID})
	if p.Foreign {
		return
	}
	f(source{})
	if p.Node != "" {
		f(source{kind: model.KindNode, name: p.Node})
		f(source{kind: model.KindNode})
	}
	if p.Namespace == "" {
		return
	}
	f(source{namespace: p.Namespace})
	named := func(kind, name string) {
		if name == "" {
			return
		}
		f(source{kind, p.Namespace, name})
		f(source{kind, p.Namespace, ""})
		f(source{kind, "", name})
		f(source{kind, "", ""})
	}
	named(model.KindServiceAccount, p.Account)
	named(model.KindPod, p.Pod)
	for _, o := range p.Owners {
		named(o.Kind, o.Name)
	}
}

// Is reports whether the peer is among the clients of a source.
func (p *Peer) Is(s *model.Source) bool {
	wanted, is := sourceOf(s), false
	p.each(func(of source) { is = is || of == wanted })
	return is
}

// Judge decides. It does not allocate, and its cost depends on the patterns that could allow the path, not on the number of policies.
func (s *Subject) Judge(r *Request) Verdict {
	if !s.table.governed {
		return Verdict{Reason: Ungoverned}
	}
	if len(s.grants) == 0 {
		return Verdict{Reason: s.unknown}
	}
	j := judging{request: r, port: s.port}
	for _, g := range s.grants {
		if p := g.judge(&j); p != nil {
			return Verdict{Allowed, p}
		}
	}
	switch {
	case j.work > model.MaxMatchWork:
		return Verdict{Reason: TooMuchWork}
	case j.ambiguous:
		return Verdict{Reason: AmbiguousPath}
	}
	return Verdict{Reason: NotPermitted}
}

func (g *grant) judge(j *judging) *model.Policy {
	var p *model.Policy
	switch j.request.Protocol {
	case TCP:
		p = g.tcp
	case UDP:
		p = g.udp
	default:
		if p = g.http; p == nil {
			if e := g.paths.find(j); e != nil {
				p = e.policy
			}
		}
	}
	if p != nil {
		return p
	}
	return g.judgeShared(j)
}

func (g *grant) judgeShared(j *judging) *model.Policy {
	for _, s := range g.shared {
		if s.ports != nil {
			if _, ok := slices.BinarySearch(s.ports, j.port); !ok {
				continue
			}
		}
		if p := s.judge(j); p != nil {
			return p
		}
	}
	return nil
}
