package diff

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// Report is the difference between two configurations. Its JSON form is the output of "weir diff -o json".
type Report struct {
	// Asked is how many requests were compared; Thinned means that there were too many combinations to compare all.
	Asked   int  `json:"asked"`
	Thinned bool `json:"thinned,omitempty"`
	// Changes are the requests that are treated differently, those of one kind together, in the order of their first
	// example.
	Changes []Change `json:"changes"`
	// Services differ by themselves and are in both configurations; Listeners likewise.
	Services  []Part `json:"services,omitempty"`
	Listeners []Part `json:"listeners,omitempty"`
	// Access are the calls that are allowed on one side and denied on the other, of AccessAsked that were compared.
	// AccessOmitted is how many more there are than Access tells.
	Access        []AccessChange `json:"access,omitempty"`
	AccessAsked   int            `json:"accessAsked,omitempty"`
	AccessOmitted int            `json:"accessOmitted,omitempty"`
}

// Same means that no difference was found.
func (r *Report) Same() bool {
	return len(r.Changes)+len(r.Services)+len(r.Listeners)+len(r.Access) == 0
}

// Change is a difference and the requests that meet it.
type Change struct {
	Before Outcome `json:"before"`
	After  Outcome `json:"after"`
	// Differ are the parts of the outcomes that differ: backends, mirrors, filters, timeouts, retry, session.
	Differ []string `json:"differ"`
	// Requests counts the compared ones, Examples are the first of them.
	Requests int       `json:"requests"`
	Examples []Request `json:"examples"`
}

// Part of a configuration that differs by itself.
type Part struct {
	Name string `json:"name"`
	// Differ are the names of its fields, in their order in the model.
	Differ []string `json:"differ"`
}

// maxExamples bounds the examples of one change.
const maxExamples = 3

// Compare compares the behaviour of two configurations. Parts that cannot be served are left out, as in a proxy.
// Gateways with their own proxies are compared one by one. trustDomain is that of the own identities.
func Compare(before, after *model.Config, trustDomain string) *Report {
	r := routes(before, after)
	r.parts(before, after)
	r.access(before, after, trustDomain)
	return r
}

// routes compares what becomes of requests to listeners.
func routes(before, after *model.Config) *Report {
	gateways := slices.Concat(before.Owners(), after.Owners())
	slices.Sort(gateways)
	if gateways = slices.Compact(gateways); len(gateways) < 2 {
		return answers(before, after, "")
	}
	r := &Report{Changes: []Change{}}
	for _, g := range gateways {
		of := answers(before.Of(g), after.Of(g), string(g))
		r.Asked, r.Thinned, r.Changes = r.Asked+of.Asked, r.Thinned || of.Thinned, append(r.Changes, of.Changes...)
	}
	return r
}

// Call adds what becomes of requests to a Service, or of connections, which has a name, from its clients in a mesh.
func (r *Report) Call(name string, before, after *model.Config) {
	of := answers(before, after, name)
	r.Asked, r.Thinned, r.Changes = r.Asked+of.Asked, r.Thinned || of.Thinned, append(r.Changes, of.Changes...)
}

func (r *Report) parts(before, after *model.Config) {
	r.Services = parts(before.Services, after.Services, func(s model.Service) string { return s.Name })
	r.Listeners = parts(before.Listeners, after.Listeners, func(l model.Listener) string { return l.Name })
}

// answers compares the behaviour of two configurations of one set of proxies.
func answers(before, after *model.Config, gateway string) *Report {
	a, b := compile(before), compile(after)
	p := &prober{doors: map[door]map[string]*asked{}, connections: map[door]bool{}}
	p.add(before)
	p.add(after)
	requests, thinned := p.requests()
	r := &Report{Asked: len(requests), Thinned: thinned, Changes: []Change{}}
	at := map[string]int{}
	for i := range requests {
		x, y := a.outcome(&requests[i]), b.outcome(&requests[i])
		k, differ := compare(x, y)
		if len(differ) == 0 {
			continue
		}
		n, ok := at[k]
		if !ok {
			n = len(r.Changes)
			at[k] = n
			r.Changes = append(r.Changes, Change{Before: *x, After: *y, Differ: differ})
		}
		c := &r.Changes[n]
		if c.Requests++; len(c.Examples) < maxExamples {
			requests[i].Gateway = gateway
			c.Examples = append(c.Examples, requests[i])
		}
	}
	return r
}

func compile(cfg *model.Config) *side {
	table, _ := routing.Compile(cfg, nil)
	return &side{table: table, rules: map[*routing.Rule]*Outcome{}}
}

// compare names the parts in which two outcomes differ, and gives a key for this difference.
func compare(x, y *Outcome) (key string, differ []string) {
	if x == y {
		return "", nil
	}
	before, after := x.parts(), y.parts()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if before[name] != after[name] {
			differ = append(differ, name)
		}
		b.WriteString(before[name] + "\x00" + after[name] + "\x00")
	}
	return b.String(), differ
}

// parts lists the parts that both have by name and that differ in other fields than where they were written.
func parts[T any](before, after []T, name func(T) string) (out []Part) {
	old := make(map[string]map[string]json.RawMessage, len(before))
	for _, p := range before {
		old[name(p)] = fields(p)
	}
	for _, p := range after {
		was, ok := old[name(p)]
		if !ok {
			continue
		}
		is := fields(p)
		part := Part{Name: name(p)}
		all := maps.Clone(was)
		maps.Copy(all, is)
		for _, field := range slices.Sorted(maps.Keys(all)) {
			if string(was[field]) != string(is[field]) {
				part.Differ = append(part.Differ, field)
			}
		}
		if part.Differ != nil {
			out = append(out, part)
		}
	}
	slices.SortFunc(out, func(a, b Part) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// fields are the fields of a part of the model, except for its provenance.
func fields(v any) map[string]json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var out map[string]json.RawMessage
	if json.Unmarshal(text, &out) != nil {
		return nil
	}
	delete(out, "ref")
	return out
}
