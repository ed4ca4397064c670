package gateway

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/rollout"
)

// entry is a match of the user's route.
type entry struct {
	condition
	rule   int
	place  int // among the rule's matches
	stable bool
}

// added is a match that is added: requests that fulfil it get the outcome of a rule of the user's, but for the canary in
// place of the stable Service, if that rule leads there.
type added struct {
	condition
	like entry
}

// before reports whether an entry precedes another in the user's route.
func (e entry) before(f entry) bool {
	if c := e.compare(f.condition); c != 0 {
		return c < 0
	}
	return e.rule < f.rule || e.rule == f.rule && e.place < f.place
}

// precedes reports whether an added match precedes an entry: its rule is put before the one that it is like.
func (a added) precedes(f entry) bool {
	if c := a.compare(f.condition); c != 0 {
		return c < 0
	}
	return a.like.rule <= f.rule
}

// overtakes reports whether an added match precedes another.
func (a added) overtakes(b added) bool {
	if c := a.compare(b.condition); c != 0 {
		return c < 0
	}
	return a.like.rule < b.like.rule
}

// maxAdded bounds the work for routes and steps whose product does not fit into a route anyway.
const maxAdded = 4 * maxAllMatches

// matches adds rules for the requests that a step names; nil if the route has to stay as it is.
//
// A match that is added demands more than the one it is made of, and so it may precede others of the user's that came
// before that: their requests must not be led astray. For each such pair a further match is added for the requests that
// both are for, which demands more still and has the outcome that they had. That is repeated for what was added.
func (t *route) matches() []any {
	var entries []entry
	for i, v := range t.rules {
		rule, _ := v.(map[string]any)
		list, _ := rule["matches"].([]any)
		if len(list) == 0 {
			list = []any{map[string]any{}}
		}
		for k, v := range list {
			m, _ := v.(map[string]any)
			entries = append(entries, entry{t.form.read(m), i, k, t.stable(rule)})
		}
	}
	var all []added
	for s := range t.Routing.Matches {
		for h := range t.Routing.Matches[s].Headers {
			if strings.EqualFold(string(t.Routing.Matches[s].Headers[h].Name), "canary-by-cookie") {
				t.told = append(t.told, rollout.Notef(field(s, fmt.Sprintf("headers[%d].name", h)), "write the header Cookie with the type RegularExpression",
					"%s knows no such word for cookies, as an Ingress does: requests need a header field of this name", t.Target))
			}
		}
		p := &product{route: t, entries: entries, step: readStep(&t.Routing.Matches[s]), index: s, dropped: map[int]bool{}}
		all = append(all, p.matches(len(all))...)
	}
	return t.compose(distinct(all))
}

// product makes matches for one match of a step.
type product struct {
	*route
	entries []entry
	step    condition
	index   int
	// dropped are the entries that get no match of the step's.
	dropped map[int]bool
}

// matches returns what has to be added to the have that there are. What is made for an entry may rest on what is made for
// another: when one has to be dropped, all are made anew.
func (p *product) matches(have int) (all []added) {
	reached := false
	for again := true; again; {
		all, again = nil, false
		for i, e := range p.entries {
			if !e.stable || p.dropped[i] {
				continue
			}
			own, v := p.own(e)
			if v == never {
				continue
			}
			reached = true
			if v == inexpressed {
				p.tellInexpressed(e)
				p.dropped[i], again = true, true
				break
			}
			kept, ok := p.apart(own, have+len(all))
			if !ok {
				p.dropped[i], again = true, true
				break
			}
			all = append(all, kept...)
		}
	}
	if !reached {
		p.told = append(p.told, rollout.Shortf(field(p.index, ""), "write conditions that can hold together with those of the route",
			"no request that %s leads to Service %s fulfils this match, so it sends nothing to the canary", p.Target, p.Stable))
	}
	return all
}

// own is the match of an entry's requests that the step names.
func (p *product) own(e entry) (added, verdict) {
	both, v := e.and(p.step)
	if v == possible && p.form.write(both) == nil {
		v = inexpressed
	}
	return added{both, e}, v
}

// apart returns an added match together with those that keep others' requests out of it; nothing if its requests belong to
// another one altogether. It is not ok if that cannot be written.
func (p *product) apart(a added, have int) (kept []added, ok bool) {
	work := []added{a}
	for len(work) > 0 {
		item := work[len(work)-1]
		work = work[:len(work)-1]
		further, dominated, ok := p.around(item)
		if !ok || have+len(kept)+len(work)+len(further) > maxAdded {
			return nil, false
		}
		if !dominated {
			kept, work = append(kept, item), append(work, further...)
		}
	}
	return kept, true
}

// around returns the matches that have to precede an added one. It is dominated if one of the user's own, or what is added
// for that, is for all of its requests and comes before.
func (p *product) around(item added) (further []added, dominated, ok bool) {
	for i, f := range p.entries {
		both, v := item.and(f.condition)
		if v == never || f.rule == item.like.rule && f.stable && p.covers(i, item) {
			continue
		}
		if !f.before(item.like) {
			if !item.precedes(f) { // a path that is an expression, though narrower, comes after a prefix
				p.tellOrder(item, f)
				return nil, false, false
			}
			continue
		}
		if f.rule == item.like.rule || !item.precedes(f) || f.stable && p.covers(i, item) {
			continue
		}
		if v == possible && both.equal(item.condition) {
			return nil, true, true
		}
		next := added{both, f}
		if v == inexpressed || p.form.write(both) == nil || !next.overtakes(item) {
			p.tellApart(item, f)
			return nil, false, false
		}
		further = append(further, next)
	}
	return further, false, true
}

// covers reports whether what the step adds for an entry itself precedes an added match.
func (p *product) covers(i int, item added) bool {
	if p.dropped[i] {
		return false
	}
	own, v := p.own(p.entries[i])
	return v == possible && own.overtakes(item)
}

func (p *product) tellApart(item added, f entry) {
	p.told = append(p.told, rollout.Shortf(field(p.index, ""), "make the rules differ by path or method",
		"requests of spec.rules[%d] of %s cannot be kept apart from those of spec.rules[%d] that this match is for, so it sends none of the latter to the canary",
		f.rule, p.Target, item.like.rule))
}

func (p *product) tellOrder(item added, f entry) {
	p.told = append(p.told, rollout.Shortf(field(p.index, "path"), "write a path of another type",
		"a route tries regular expressions after prefixes, so spec.rules[%d] of %s would be tried before the match for spec.rules[%d]: none of the latter's requests go to the canary",
		f.rule, p.Target, item.like.rule))
}

// tellInexpressed says why a step's match cannot be written for an entry.
func (p *product) tellInexpressed(e entry) {
	at, why, fix := "", "together with those of the rule", "write a path or an exact value that lies inside what the rule matches"
	switch {
	case p.Target.Kind == "GRPCRoute" && len(p.step.query) > 0:
		at, why, fix = "queryParams", "in a GRPCRoute, since requests of gRPC have no query", "name the requests by path or header"
	case p.Target.Kind == "GRPCRoute" && p.step.path.kind != anyPath:
		at, why = "path", "in a GRPCRoute, whose matches name a service, or a method of one"
		fix = `write "/service" or, with the type Exact, "/service/method", inside what the rule matches`
	case p.step.path.kind == expression || e.path.kind == expression:
		at, why = "path", "since two expressions, or an expression and a path, cannot both be demanded"
	}
	p.told = append(p.told, rollout.Shortf(field(p.index, at), fix,
		"the condition cannot be written for spec.rules[%d] of %s %s, so its requests stay with the stable version", e.rule, p.Target, why))
}

// distinct leaves out what is there already.
func distinct(all []added) (out []added) {
	for _, a := range all {
		if !slices.ContainsFunc(out, func(b added) bool { return a.like.rule == b.like.rule && a.equal(b.condition) }) {
			out = append(out, a)
		}
	}
	return out
}

// compose puts rules before those they are like.
func (t *route) compose(all []added) (rules []any) {
	total := 0
	for i, v := range t.rules {
		rule, _ := v.(map[string]any)
		var matches []any
		for _, a := range all {
			if a.like.rule == i {
				matches = append(matches, t.form.write(a.condition))
			}
		}
		own, _ := rule["matches"].([]any)
		total += len(matches) + max(1, len(own))
		for part := range slices.Chunk(matches, maxMatches) {
			rules = append(rules, t.like(rule, part, len(rules)))
		}
		if sticky(rule) && text(rule["name"]) == "" && len(rules) > i {
			t.told = append(t.told, rollout.Notef("matches", "name the rule",
				"spec.rules[%d] of %s keeps sessions and has no name, so they belong to its place, which rules of this step take: all its sessions begin anew with the step, and again after it", i, t.Target))
		}
		rules = append(rules, rule)
	}
	if len(all) == 0 {
		return nil
	}
	if len(rules) > maxRules || total > maxAllMatches {
		t.told = append(t.told, rollout.Shortf("matches", "divide the route, or write fewer matches",
			"%s would need %d rules with %d matches for this step, and may have %d with %d: it stays as it is, and no request goes to the canary by it",
			t.Target, len(rules), total, maxRules, maxAllMatches))
		return nil
	}
	return rules
}

// like is a copy of a rule with other matches, and with the canary in place of the stable Service.
func (t *route) like(rule map[string]any, matches []any, at int) map[string]any {
	out := runtime.DeepCopyJSON(rule)
	out["matches"] = matches
	if name := text(rule["name"]); name != "" {
		out["name"] = model.CopyName(name, at)
	}
	if !t.stable(rule) {
		return out
	}
	refs, _ := out["backendRefs"].([]any)
	leading := 0
	for _, v := range refs {
		if ref, _ := v.(map[string]any); t.leads(ref) {
			leading++
		}
	}
	whole := leading == len(refs)
	for i, v := range refs {
		if ref, _ := v.(map[string]any); t.leads(ref) {
			if whole {
				ref["name"] = t.Canary
			} else {
				refs[i] = t.canary(ref)
			}
		}
	}
	if whole && t.Routing.Modifier != nil {
		filters, _ := out["filters"].([]any)
		out["filters"] = modified(filters, t.Routing.Modifier)
	}
	return out
}
