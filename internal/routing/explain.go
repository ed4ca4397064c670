package routing

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirmesh/weir/internal/model"
)

// Explanation shows how Match came to its decision.
type Explanation struct {
	// Listener is the listener's name.
	Listener string `json:"listener"`
	Host     string `json:"host"`
	Path     string `json:"path"`
	// Hostnames are the hostnames of attached routes that cover the host, in order of precedence.
	Hostnames []string `json:"hostnames,omitempty"`
	// Winner is the match that Match decides on; nil if no rule matches.
	Winner *Candidate `json:"winner,omitempty"`
	// Candidates are the matches that were compared with the request, in order of precedence: those that failed, the
	// winner, and the next ones after it.
	Candidates []Candidate `json:"candidates,omitempty"`
	// OmittedBefore and OmittedAfter count the candidates before and behind the winner that are not listed.
	OmittedBefore int `json:"omittedBefore,omitempty"`
	OmittedAfter  int `json:"omittedAfter,omitempty"`
	// Near are matches that were not candidates because their path does not match, the most similar ones first.
	Near []Candidate `json:"near,omitempty"`
	// Decision is the result of Match; zero if no rule matches.
	Decision Decision `json:"-"`
}

// Candidate is one match of a rule, as Explain saw it.
type Candidate struct {
	// Hostname is the hostname under which the rule was found: exact, "*.suffix", or "*".
	Hostname string `json:"hostname"`
	// Rule is where the rule was written, RuleName its own name, if any.
	Rule       model.Ref   `json:"rule"`
	RuleName   string      `json:"ruleName,omitempty"`
	RuleIndex  int         `json:"ruleIndex"`
	MatchIndex int         `json:"matchIndex"`
	Match      model.Match `json:"match"`
	Wins       bool        `json:"wins,omitempty"`
	// Lost is the first condition that failed, in words, or why the candidate was not needed.
	Lost string `json:"lost,omitempty"`
}

// Bounds on what an Explanation lists.
const (
	maxBefore = 100
	maxAfter  = 10
	maxNear   = 5
)

// lessSpecific is why a candidate behind the winner lost.
const lessSpecific = "less specific than the winner"

// Explain shows how Match decides on the request. It goes the same way, but does not stop at the winner. Where Match
// gives up, Explain does, too: see Request.Excess.
func (l *Listener) Explain(req *Request) Explanation {
	e := Explanation{Listener: l.Listener.Name, Host: req.Host, Path: req.Path}
	near := l.covering(req, &e)
	req.work, req.shared, req.matched, req.excess = 0, 0, 0, NoExcess
	w := walk{req: req, hosts: &l.hosts}
	after := 0
	for c := w.next(); c != nil; c = w.next() {
		failed, i := w.fails(c)
		if req.excess != NoExcess {
			break
		}
		switch {
		case e.Winner == nil && failed == none:
			winner := c.explain(w.host.hostname)
			winner.Wins = true
			e.Winner = &winner
			e.Candidates = append(e.Candidates, winner)
			l.decide(c, req, &e.Decision)
			req.matched = req.work
		case e.Winner == nil && len(e.Candidates) == maxBefore:
			e.OmittedBefore++
		case e.Winner == nil:
			loser := c.explain(w.host.hostname)
			loser.Lost = w.words(c, failed, i)
			e.Candidates = append(e.Candidates, loser)
		case failed == partPath:
		case after == maxAfter:
			e.OmittedAfter++
		default:
			after++
			loser := c.explain(w.host.hostname)
			loser.Lost = lessSpecific
			e.Candidates = append(e.Candidates, loser)
		}
	}
	if e.Winner != nil {
		req.excess = NoExcess // Match stopped here
	}
	e.Near = nearest(near, req.Path, e.Winner == nil)
	return e
}

// covering lists the hostnames that cover the host, and what is attached to them.
func (l *Listener) covering(req *Request, e *Explanation) (found []*hostRules) {
	for h, cursor := l.hosts.next(req.Host, firstHost); h != nil; h, cursor = l.hosts.next(req.Host, cursor) {
		e.Hostnames = append(e.Hostnames, h.hostname)
		found = append(found, h)
	}
	return found
}

func (c *candidate) explain(hostname string) Candidate {
	return Candidate{
		Hostname:   hostname,
		Rule:       ruleRef(c.rule.Route, c.rule.Index),
		RuleName:   c.rule.Rule.Name,
		RuleIndex:  c.rule.Index,
		MatchIndex: c.index,
		Match:      *c.match,
	}
}

// words describes the part that failed.
func (w *walk) words(c *candidate, failed part, i int) string {
	switch failed {
	case partMethod:
		return fmt.Sprintf("method is %q, wanted %q", w.req.Method, c.match.Method)
	case partPath:
		return pathWords(c, w.req.Path)
	case partHeader:
		value, ok := w.field(c.headers[i].name)
		return c.headers[i].words("header", value, ok)
	case partQuery:
		value, ok := queryParameter(w.req.Query, c.query[i].name)
		return c.query[i].words("query parameter", decode(value), ok)
	}
	return ""
}

func pathWords(c *candidate, path string) string {
	return fmt.Sprintf("path is %q, wanted %s %q", path, c.match.Path.Type, c.match.Path.Value)
}

func (c *condition) words(kind, value string, present bool) string {
	wanted := fmt.Sprintf("wanted %q", c.value)
	if c.expression != nil {
		wanted = fmt.Sprintf("wanted regex %q", c.value)
	}
	if !present {
		return fmt.Sprintf("%s %q is absent, %s", kind, c.name, wanted)
	}
	return fmt.Sprintf("%s %q is %q, %s", kind, c.name, value, wanted)
}

// nearest returns the candidates whose exact path or prefix shares the longest beginning with the path, without
// matching it. If only the first slash is shared, they are returned only if desperate.
func nearest(hosts []*hostRules, path string, desperate bool) []Candidate {
	type alike struct {
		*candidate
		hostname string
		common   int
	}
	least := 2
	if desperate {
		least = 0
	}
	var list []alike
	for _, h := range hosts {
		for _, c := range h.all {
			if c.expression != nil || c.covers(path) {
				continue
			}
			if n := commonPrefix(c.path, path); n >= least {
				list = append(list, alike{c, h.hostname, n})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b alike) int { return cmp.Compare(b.common, a.common) })
	var near []Candidate
	for _, a := range list[:min(len(list), maxNear)] {
		c := a.explain(a.hostname)
		c.Lost = pathWords(a.candidate, path)
		near = append(near, c)
	}
	return near
}

// covers reports whether the path of a candidate matches. The candidate must not be an expression.
func (c *candidate) covers(path string) bool {
	if c.match.Path.Type == model.Exact {
		return path == c.path
	}
	n := len(c.path)
	return len(path) >= n && path[:n] == c.path && (len(path) == n || path[n] == '/')
}
