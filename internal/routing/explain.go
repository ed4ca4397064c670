package routing

import "github.com/weirmesh/weir/internal/model"

// Explanation says how Match came to its decision.
type Explanation struct {
	// Listener is the listener's name.
	Listener string `json:"listener"`
	Host     string `json:"host"`
	Path     string `json:"path"`
	// Hostnames are those of attached routes that cover the host, in the order they were looked at.
	Hostnames []string `json:"hostnames,omitempty"`
	// Winner is what Match decides; nil when no rule matches.
	Winner *Candidate `json:"winner,omitempty"`
	// Candidates are the matches that were compared with the request, in order of precedence: those that lost, the
	// winner, and the nearest of those behind it.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Omitted is the number of candidates behind the winner that are not listed.
	Omitted int `json:"omitted,omitempty"`
	// Near are matches whose path looks like the request's but does not match, the most alike first.
	Near []Candidate `json:"near,omitempty"`
	// Decision is what Match returned; zero when no rule matches.
	Decision Decision `json:"-"`
}

// Candidate is one match of a rule as Explain saw it.
type Candidate struct {
	// Hostname is the one under which the rule was found: exact, "*.suffix", or "*".
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

// Explain runs Match on the request and tells what it compared.
func (l *Listener) Explain(req *Request) Explanation { return Explanation{} }
