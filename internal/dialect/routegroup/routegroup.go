// Package routegroup makes conditions on requests of SMI's HTTPRouteGroups, for the dialects that refer to them: splits
// limit themselves by them, and TrafficTargets allow them.
//
// It is pure.
package routegroup

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/internal/model"
)

// Match is a match of a group. It can only be used if it has no problems.
type Match struct {
	Name     string
	Match    model.SplitMatch
	Problems []Problem
}

// Problem is what is wrong with a match.
type Problem struct {
	// Field is inside the object, "spec.matches[0].pathRegex".
	Field        string
	Message, Fix string
	// Pattern means that an expression does not compile, TooLarge that it does but exceeds a bound.
	Pattern, TooLarge bool
}

// Matches returns the matches of a group in their order. One with an expression that does not compile cannot be used:
// without the expression it would match too much.
func Matches(g *specs.HTTPRouteGroup) []Match {
	var out []Match
	for i, m := range g.Spec.Matches {
		ref := model.Ref{Kind: "HTTPRouteGroup", Namespace: g.Namespace, Name: g.Name, Field: model.FieldAt("spec.matches", i)}
		match, problems := of(ref, &m)
		out = append(out, Match{m.Name, match, problems})
	}
	return out
}

func of(ref model.Ref, m *specs.HTTPMatch) (match model.SplitMatch, problems []Problem) {
	match = model.SplitMatch{Ref: ref, Path: m.PathRegex}
	if !slices.Contains(m.Methods, "*") {
		match.Methods = slices.Clone(m.Methods)
	}
	note := func(p *Problem) {
		if p != nil {
			problems = append(problems, *p)
		}
	}
	note(expression(ref.Field+".pathRegex", m.PathRegex))
	if slices.Contains(m.Methods, "") {
		note(&Problem{Field: ref.Field + ".methods", Message: "a method is empty", Fix: "write a method, or * for any"})
	}
	for _, h := range m.Headers {
		if err := model.CheckFieldName(h.Name); err != nil {
			note(&Problem{Field: ref.Field + ".headers", Message: err.Error(), Fix: "correct the name"})
			continue
		}
		note(expression(ref.Field+fmt.Sprintf(".headers[%s]", h.Name), h.Value))
		match.Headers = append(match.Headers, model.ValueMatch{Type: model.Regex, Name: h.Name, Value: h.Value})
	}
	return match, problems
}

// expression returns why an expression cannot be used, or nil.
func expression(field, text string) *Problem {
	_, err := model.CheckPattern(text)
	if err == nil {
		return nil
	}
	p := &Problem{Field: field, Message: err.Error(), Fix: model.PatternFix, Pattern: true}
	var pattern *model.PatternError
	if errors.As(err, &pattern) && pattern.TooLarge {
		p.TooLarge, p.Fix = true, pattern.Fix
	}
	return p
}
