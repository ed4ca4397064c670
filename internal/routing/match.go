package routing

import (
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// hostRules are the candidates of a listener under one hostname.
type hostRules struct {
	hostname string
	paths    node
	// expressions and catchAll (the prefix "/") are in order of precedence.
	expressions []*candidate
	catchAll    []*candidate
	// all holds every candidate, for Explain.
	all []*candidate
	// matched are the fields that candidates match on.
	matched matched
	// loose is for Refuses; it is only filled if a rule of the listener is strict.
	loose looseRules
	// age is that of the route added last.
	age int
	// own is the age up to which all routes are of one namespace, the one that had the hostname first. Patterns of the others are counted apart.
	own int
}

// walk goes through the candidates for a request in order of precedence: all whose path matches, and all path
// expressions. Match and Explain share it. It remembers the answers that successive candidates ask for.
type walk struct {
	req    *Request
	hosts  *hosts[hostRules]
	cursor int
	host   *hostRules

	stage stage
	node  *node
	list  []*candidate
	at    int

	expression      *model.Pattern
	expressionHolds bool
	fields, query   memo
}

type stage uint8

const (
	stageHost stage = iota
	stagePrefixes
	stageExpressions
	stageCatchAll
)

// next returns the next candidate, nil at the end.
func (w *walk) next() *candidate {
	for w.at == len(w.list) {
		if !w.advance() {
			return nil
		}
	}
	c := w.list[w.at]
	w.at++
	return c
}

// advance goes to the next list of candidates.
func (w *walk) advance() bool {
	w.at = 0
	switch w.stage {
	case stageHost:
		w.host, w.cursor = w.hosts.next(w.req.Host, w.cursor)
		if w.host == nil {
			w.list = nil
			return false
		}
		w.list, w.node = w.host.paths.find(w.req.Path)
		w.stage = stagePrefixes
	case stagePrefixes:
		if w.node != nil {
			w.list = w.node.prefix
			w.node = w.node.up
			break
		}
		w.list = w.host.expressions
		w.stage = stageExpressions
	case stageExpressions:
		w.list = w.host.catchAll
		w.stage = stageCatchAll
	case stageCatchAll:
		w.list = nil
		w.stage = stageHost
	}
	return true
}

// part is a part of a candidate that a request may fail.
type part uint8

const (
	none part = iota
	partMethod
	partPath
	partHeader
	partQuery
)

// fails returns the first part of the candidate that does not hold for the request, and its index among parts of its
// kind; none if all hold. The path of a candidate from the tree is known to hold.
func (w *walk) fails(c *candidate) (part, int) {
	if c.match.Method != "" && c.match.Method != w.req.Method {
		return partMethod, 0
	}
	if c.expression != nil && !w.pathHolds(c) {
		return partPath, 0
	}
	for i := range c.headers {
		if value, ok := w.field(c.headers[i].name); !ok || !c.headers[i].holds(w.req, value, w.shared(c)) {
			return partHeader, i
		}
	}
	for i := range c.query {
		if !w.queryHolds(&c.query[i], w.shared(c)) {
			return partQuery, i
		}
	}
	return none, 0
}

// shared means that the candidate's patterns are counted apart: see hostRules.own.
func (w *walk) shared(c *candidate) bool { return c.age > w.host.own }

func (w *walk) pathHolds(c *candidate) bool {
	if !strings.HasPrefix(w.req.Path, c.path) {
		return false
	}
	if w.expression != c.expression {
		w.expression = c.expression
		w.expressionHolds = w.req.matches(c.expression, w.req.Path, ExcessPath, w.shared(c))
	}
	return w.expressionHolds
}

func (w *walk) field(name string) (string, bool) {
	if a := w.fields.get(name); a != nil {
		return a.value, a.present
	}
	var value string
	var ok bool
	if w.req.Fields != nil {
		value, ok = w.req.Fields.Field(name)
	}
	w.fields.put(name, value, ok)
	return value, ok
}

func (w *walk) queryHolds(c *condition, shared bool) bool {
	a := w.query.get(c.name)
	if a == nil {
		value, ok := queryParameter(w.req.Query, c.name)
		a = w.query.put(c.name, value, ok)
	}
	if !a.present {
		return false
	}
	if c.expression == nil {
		return decodesTo(a.value, c.value)
	}
	return w.req.matches(c.expression, decode(a.value), ExcessQuery, shared)
}

// memo keeps a few answers, so that many candidates that ask for the same names cost one look-up.
type memo struct {
	answers [4]answer
	n       uint
}

type answer struct {
	name, value string
	present     bool
}

func (m *memo) get(name string) *answer {
	for i := range min(m.n, uint(len(m.answers))) {
		if m.answers[i].name == name {
			return &m.answers[i]
		}
	}
	return nil
}

func (m *memo) put(name, value string, present bool) *answer {
	a := &m.answers[m.n%uint(len(m.answers))]
	m.n++
	*a = answer{name, value, present}
	return a
}

// Match finds the rule for the request and fills in d. It returns false, and does not change d, if there is no rule, or
// if the search was given up: see the request's Excess.
func (l *Listener) Match(req *Request, d *Decision) bool {
	req.work, req.shared, req.matched, req.excess = 0, 0, 0, NoExcess
	w := walk{req: req, hosts: &l.hosts}
	for c := w.next(); c != nil; c = w.next() {
		if p, _ := w.fails(c); p == none {
			l.decide(c, req, d)
			req.matched = req.work
			return true
		}
		if req.excess != NoExcess {
			return false // whether the next applies depends on whether this one does
		}
	}
	return false
}

func (l *Listener) decide(c *candidate, req *Request, d *Decision) {
	*d = Decision{Listener: l, Rule: c.rule, Match: c.match}
	if c.match.Path.Type == model.Prefix {
		d.Prefix = req.Path[:len(c.path)]
	}
}
