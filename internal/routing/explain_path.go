package routing

import (
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// PathExplanation shows how the path policies of a listener judge a request's path.
type PathExplanation struct {
	// Policy is that of the rule that matches.
	Policy model.PathPolicy `json:"policy"`
	// Refused is the reading because of which the request is answered 400; empty if it is not refused.
	Refused string `json:"refused,omitempty"`
	// Readings are the ways in which common servers read the path differently.
	Readings []ExplainedReading `json:"readings,omitempty"`
}

// ExplainedReading is a way in which some servers read the path.
type ExplainedReading struct {
	// Reading is its name. What describes the part of the path that servers read differently. Servers names them and
	// their readings.
	Reading string `json:"reading"`
	What    string `json:"what"`
	Servers string `json:"servers"`
	// Path is the path as they read it. Rule is the rule that this path leads to, if any.
	Path string     `json:"path,omitempty"`
	Rule *model.Ref `json:"rule,omitempty"`
}

// ExplainPath shows how Refuses judges a request that Match has decided on. It is nil if there is nothing to show: the
// policy is model.PathAsWritten and all servers read the path alike.
func (l *Listener) ExplainPath(raw string, req *Request, d *Decision) *PathExplanation {
	e := &PathExplanation{Policy: l.PathPolicy(d.Rule)}
	refusal, _ := l.Refuses(raw, req, d, nil)
	e.Refused = refusal.Reading.String()
	found := differences(raw) &^ ofTheRules
	for r := OneReading + 1; r < readings; r++ {
		if !found.has(r) && r != refusal.Reading {
			continue
		}
		x := ExplainedReading{Reading: r.String(), What: r.Words(), Servers: r.Servers()}
		if !found.has(r) && refusal.Other != nil {
			ref := ruleRef(refusal.Other.Route, refusal.Other.Index)
			x.Rule = &ref
		}
		switch r {
		case LetterCase:
			x.Path = strings.ToLower(req.Path)
		case SeveralReadings:
			read, _ := appendLoose(nil, req.Path, everyReading&^setOf(LetterCase))
			x.Path = strings.ToLower(string(read))
		case DotSegment, EmptySegment:
			x.Path = raw
		default:
			read, _ := appendLoose(nil, req.Path, alone(r))
			x.Path = string(read)
		}
		other, so := *req, Decision{}
		other.Path = x.Path
		if x.Rule == nil && l.Match(&other, &so) {
			ref := ruleRef(so.Rule.Route, so.Rule.Index)
			x.Rule = &ref
		}
		e.Readings = append(e.Readings, x)
	}
	if e.Policy == model.PathAsWritten && len(e.Readings) == 0 {
		return nil
	}
	return e
}
