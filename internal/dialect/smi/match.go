package smi

import (
	"fmt"

	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/internal/dialect/routegroup"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// resolveMatches merges the groups that the split names. A split whose groups are not all there is not in force: without
// its conditions it would match too much.
func (t *translator) resolveMatches(s *trafficSplit) {
	inert := false
	for i, m := range s.object.Spec.Matches {
		field := fmt.Sprintf("spec.matches[%d]", i)
		group := t.set.HTTPRouteGroup(s.ref.Namespace, m.Name)
		switch {
		case m.Kind != "HTTPRouteGroup" || m.APIGroup != "" && m.APIGroup != specs.Group:
			why := "only HTTPRouteGroups can limit a split"
			if m.Kind == "TCPRoute" || m.Kind == "UDPRoute" {
				why = "a TCP or UDP connection has nothing that a match could select by"
			}
			t.reject(s, resource.Problem(codeMatchKind, "UnsupportedMatch", field+".kind",
				fmt.Sprintf("kind %s of %q: %s, so the split is not in force", m.Kind, m.APIGroup, why), "name an HTTPRouteGroup of "+specs.Group))
			inert = true
		case group == nil:
			code, why, fix := t.set.Absent(codeGroupNotFound, resource.Key{Group: specs.Group, Kind: "HTTPRouteGroup", Namespace: s.ref.Namespace, Name: m.Name}, t.options.Partial)
			p := resource.Problem(code, "GroupNotFound", field+".name",
				fmt.Sprintf("HTTPRouteGroup %s/%s %s, so the split is not in force: the root's own endpoints serve", s.ref.Namespace, m.Name, why), fix)
			t.reject(s, p)
			s.unresolved = append(s.unresolved, p)
			inert = true
		default:
			for _, match := range t.groupMatches(group) {
				if err := s.allow(match); err != nil {
					t.add(s, &s.warnings, resource.Problem(codePatternLarge, "InvalidExpression", field, fmt.Sprintf("%s %s: %v: the match is left out", match.Ref.Name, match.Ref.Field, err), "repeat less"))
					continue
				}
				s.matches = append(s.matches, match)
			}
		}
	}
	if !inert && len(s.matches) == 0 {
		t.reject(s, resource.Problem(codeNoMatches, "NoMatches", "spec.matches",
			"the HTTPRouteGroups have no match that could be used, so the split is not in force", "add matches to them, or remove matches to split all requests"))
	}
}

// groupMatches leaves out matches with an expression that does not compile: they would match nothing.
func (t *translator) groupMatches(g *specs.HTTPRouteGroup) []model.SplitMatch {
	var out []model.SplitMatch
	for _, m := range routegroup.Matches(g) {
		if len(m.Problems) == 0 {
			out = append(out, m.Match)
		}
		for _, p := range m.Problems {
			code := codeMatchInvalid
			switch {
			case p.TooLarge:
				code = codePatternLarge
			case p.Pattern:
				code = codeRegex
			}
			t.wrong(m.Match.Ref, code, p)
		}
	}
	return out
}

// allow counts the patterns of a match towards the bound for a split. Each has been judged by itself.
func (s *trafficSplit) allow(m model.SplitMatch) error {
	if err := s.patterns.Add(m.Path); err != nil {
		return err
	}
	for _, h := range m.Headers {
		if err := s.patterns.Add(h.Value); err != nil {
			return err
		}
	}
	return nil
}

// wrong reports a match that is left out, once however many splits name the group.
func (t *translator) wrong(ref model.Ref, code string, problem routegroup.Problem) {
	p := resource.Problem(code, "InvalidExpression", problem.Field, problem.Message+": the match is left out", problem.Fix)
	ref.Field = p.Ref.Field
	for _, f := range t.findings {
		if f.Code == p.Code && f.Ref == ref {
			return
		}
	}
	t.report(ref, p)
}
