package routing

import (
	"cmp"
	"slices"

	"github.com/weirmesh/weir/internal/model"
)

// candidate is one match of a rule, ready to be compared with a request.
type candidate struct {
	rule  *Rule
	match *model.Match
	// index is the match's place in its rule, age the route's place among all routes by creation and name.
	index, age int

	// path is the key in the tree; for a prefix it has no trailing slash. For an expression it is the literal text
	// every match of it begins with, and expression is set.
	path       string
	expression *model.Pattern
	headers    []condition
	query      []condition

	// loose is set in the copies of looseRules.
	loose *looseForm
}

// condition compares a header field or a query parameter.
type condition struct {
	name       string
	value      string
	expression *model.Pattern
}

func (c *condition) holds(req *Request, value string, shared bool) bool {
	if c.expression != nil {
		return req.matches(c.expression, value, ExcessField, shared)
	}
	return value == c.value
}

// sortCandidates orders candidates found under one hostname that share a path, or that all are expressions, by
// precedence.
func sortCandidates(list []*candidate) {
	slices.SortFunc(list, func(a, b *candidate) int {
		if a.expression != nil && b.expression != nil {
			if d := len(b.match.Path.Value) - len(a.match.Path.Value); d != 0 {
				return d
			}
		}
		if (a.match.Method != "") != (b.match.Method != "") {
			if a.match.Method != "" {
				return -1
			}
			return 1
		}
		return cmp.Or(
			cmp.Compare(len(b.headers), len(a.headers)),
			cmp.Compare(len(b.query), len(a.query)),
			cmp.Compare(a.age, b.age),
			cmp.Compare(a.rule.Index, b.rule.Index),
			cmp.Compare(a.index, b.index),
		)
	})
}
