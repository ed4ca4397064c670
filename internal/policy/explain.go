package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// Part is a condition of a policy, in the order in which they are told.
type Part uint8

const (
	// InForce: the policy allows something at all (model.Policy.Void).
	InForce Part = iota
	// OfSource: the peer is among the sources.
	OfSource
	// OfPort: the port is among the policy's, and among those of the group by which the policy names the workload.
	OfPort
	// OfTraffic: the policy is about the protocol.
	OfTraffic
	OfMethod
	OfPath
	// OfAmbiguity: the path matches, but servers read it in different ways.
	OfAmbiguity
	OfHeader
)

// Explained is a policy that names the workload, and what of it a request does not meet; nothing if it allows the
// request.
type Explained struct {
	Policy *model.Policy
	Fails  []Part
	// Source is the first source that the peer is; nil if it is none.
	Source *model.Source
	// Header is the first header field that does not hold.
	Header string
}

// Allows reports whether the policy allows the request.
func (e *Explained) Allows() bool { return len(e.Fails) == 0 }

// Explain judges a request by every policy of the workload, one after the other and without an index. The policies that
// allow it come first, then those that are nearest to it: they fail in the fewest conditions. A policy that is about
// the source is nearer than one that is not. Among equals the order of the configuration stays.
func (t *Table) Explain(p *Peer, port int32, r *Request) []Explained {
	out := make([]Explained, 0, len(t.policies))
	for _, policy := range t.policies {
		out = append(out, explain(t.workload, policy, p, port, r))
	}
	distance := func(e Explained) int {
		n := len(e.Fails)
		if slices.Contains(e.Fails, OfSource) {
			n += 10
		}
		return n
	}
	slices.SortStableFunc(out, func(a, b Explained) int { return cmp.Compare(distance(a), distance(b)) })
	return out
}

func explain(w *model.Workload, policy *model.Policy, p *Peer, port int32, r *Request) Explained {
	e := Explained{Policy: policy}
	fail := func(part Part, holds bool) {
		if !holds {
			e.Fails = append(e.Fails, part)
		}
	}
	fail(InForce, policy.Void == "")
	p.each(func(of source) {
		for i := range policy.Sources {
			if s := &policy.Sources[i]; e.Source == nil && sourceOf(s) == of {
				e.Source = s
			}
		}
	})
	fail(OfSource, e.Source != nil)
	ports, _ := targetPorts(policy, w)
	fail(OfPort, ports == nil || slices.Contains(ports, port))
	switch r.Protocol {
	case TCP:
		fail(OfTraffic, policy.Traffic.Connections())
		return e
	case UDP:
		fail(OfTraffic, policy.Traffic.Datagrams())
		return e
	}
	fail(OfTraffic, policy.Traffic.Requests())
	if policy.Traffic != model.TrafficHTTP {
		return e
	}
	fail(OfMethod, policy.Methods == nil || slices.Contains(policy.Methods, r.Method) && r.onlyBy(policy.Methods))
	pathHolds := policy.Paths == nil || slices.ContainsFunc(policy.Paths, func(path string) bool {
		pattern, err := model.CompileStartPattern(path)
		return err == nil && pattern.MatchString(r.Path)
	})
	fail(OfPath, pathHolds)
	if pathHolds {
		fail(OfAmbiguity, policy.Paths == nil || !r.Ambiguous)
	}
	for i := range policy.Headers {
		if h := &policy.Headers[i]; !headerHolds(h, r.Fields) {
			e.Header = h.Name
			fail(OfHeader, false)
			break
		}
	}
	return e
}

func headerHolds(h *model.ValueMatch, fields Fields) bool {
	if fields == nil {
		return false
	}
	value, ok := fields.Field(strings.ToLower(h.Name))
	if !ok || h.Type != model.Regex {
		return ok && value == h.Value
	}
	pattern, err := model.CompilePattern(h.Value)
	return err == nil && pattern.MatchString(value)
}
