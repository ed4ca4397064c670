package smi

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/weirmesh/weir/api/specs"
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
				why = "a TCP or UDP connection carries nothing that a split could be limited by"
			}
			t.reject(s, problem{codeMatchKind, "UnsupportedMatch", field + ".kind",
				fmt.Sprintf("kind %s of %q: %s, so the split is not in force", m.Kind, m.APIGroup, why), "name an HTTPRouteGroup of " + specs.Group})
			inert = true
		case group == nil:
			why, fix := t.set.Missing(resource.Key{Group: specs.Group, Kind: "HTTPRouteGroup", Namespace: s.ref.Namespace, Name: m.Name})
			p := problem{codeGroupNotFound, "GroupNotFound", field + ".name",
				fmt.Sprintf("HTTPRouteGroup %s/%s %s, so the split is not in force: the root's own endpoints serve", s.ref.Namespace, m.Name, why), fix}
			t.reject(s, p)
			s.unresolved = append(s.unresolved, p)
			inert = true
		default:
			s.matches = append(s.matches, t.groupMatches(group)...)
		}
	}
	if !inert && len(s.matches) == 0 {
		t.reject(s, problem{codeNoMatches, "NoMatches", "spec.matches",
			"the HTTPRouteGroups have no match that could be used, so the split is not in force", "add matches to them, or remove matches to split all requests"})
	}
}

// groupMatches leaves out the matches that have an expression which does not compile: they would match nothing.
func (t *translator) groupMatches(g *specs.HTTPRouteGroup) []model.SplitMatch {
	var out []model.SplitMatch
	for i, m := range g.Spec.Matches {
		ref := model.Ref{Kind: "HTTPRouteGroup", Namespace: g.Namespace, Name: g.Name, Field: fmt.Sprintf("spec.matches[%d]", i)}
		match := model.SplitMatch{Ref: ref, Path: m.PathRegex}
		if !slices.Contains(m.Methods, "*") {
			match.Methods = slices.Clone(m.Methods)
		}
		good := t.expression(ref, ".pathRegex", m.PathRegex)
		for _, h := range m.Headers {
			good = t.expression(ref, fmt.Sprintf(".headers[%s]", h.Name), h.Value) && good
			match.Headers = append(match.Headers, model.ValueMatch{Type: model.Regex, Name: h.Name, Value: h.Value})
		}
		if good {
			out = append(out, match)
		}
	}
	return out
}

// expression reports one that does not compile, once however many splits name the group.
func (t *translator) expression(ref model.Ref, field, text string) bool {
	_, err := regexp.Compile(text)
	if err == nil {
		return true
	}
	p := problem{codeRegex, "InvalidExpression", ref.Field + field,
		fmt.Sprintf("%v: the match is left out", err), "write the expression in RE2 syntax"}
	ref.Field = p.field
	for _, f := range t.findings {
		if f.Code == p.code && f.Ref == ref {
			return false
		}
	}
	t.report(ref, p)
	return false
}
