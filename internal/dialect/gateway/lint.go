package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// lint reports rules that are valid and served, but probably not as intended, because other rules precede them.
func (t *translator) lint() {
	rules := 0
	for _, r := range t.routes {
		rules += len(r.rules)
	}
	taken := make(map[place]*model.Ref, rules)
	for _, r := range t.routes {
		for i := range r.rules {
			t.lintShadowed(r, &r.rules[i], r.outcome.places[i], taken)
		}
	}
}

// lintMirrors reports copies that go where the request goes.
func (t *translator) lintMirrors(r *route, rule *model.Rule) {
	check := func(m model.Mirror, b model.Backend) bool {
		if m.Service == "" || m.Service != b.Service || b.Weight == 0 || m.Numerator == 0 {
			return false
		}
		t.report(r.ref, resource.Problem(codeMirrorPrimary, "", m.Ref.Field,
			fmt.Sprintf("service %s gets the mirrored requests and serves them as a backend too", m.Service), "mirror to another Service"))
		return true
	}
	for _, m := range rule.Filters.Mirrors {
		for _, b := range rule.Backends {
			if check(m, b) {
				break
			}
		}
	}
	for _, b := range rule.Backends {
		for _, m := range b.Filters.Mirrors {
			check(m, b)
		}
	}
}

// place is where a match looks for requests.
type place struct {
	listener        *listener
	clients         clientsOf
	hostname, match string
}

// places are where a rule looks for requests.
func (r *route) places(rule *model.Rule) (all []place) {
	for _, m := range rule.Matches {
		text := matchKey(m)
		for _, p := range r.parents {
			if p.rejected != nil {
				continue
			}
			for l, hostnames := range p.attached {
				for _, h := range hostnames {
					all = append(all, place{listener: l, hostname: h, match: text})
				}
			}
			if p.ports != nil {
				for _, port := range p.ports.attached {
					all = append(all, place{clients: p.ports.of(port), match: text})
				}
			}
		}
	}
	return all
}

// lintShadowed reports a rule all of whose places are taken by earlier rules. Rules come in the order that decides between
// equal matches.
func (t *translator) lintShadowed(r *route, rule *model.Rule, own []place, taken map[place]*model.Ref) {
	var winner *model.Ref
	shadowed := true
	for _, at := range own {
		if ref, ok := taken[at]; !ok {
			shadowed = false
		} else if winner == nil || ref.Compare(*winner) < 0 {
			winner = ref
		}
	}
	if len(own) == 0 {
		return
	}
	if shadowed {
		by := winner.Field
		if winner.Kind != r.ref.Kind || winner.Namespace != r.namespace || winner.Name != r.name {
			by = winner.String()
		}
		t.report(r.ref, resource.Problem(codeShadowed, "", rule.Ref.Field,
			fmt.Sprintf("the rule never matches: %s has the same matches and goes before it", by), "remove it or change its matches"))
	}
	for _, at := range own {
		if _, ok := taken[at]; !ok {
			taken[at] = &rule.Ref
		}
	}
}

// matchKey is equal for matches that match the same requests with the same precedence.
func matchKey(m model.Match) string {
	if m.Method == "" && len(m.Headers) == 0 && len(m.Query) == 0 {
		return string(m.Path.Type) + "\x01" + m.Path.Value // most matches have only a path
	}
	values := func(all []model.ValueMatch) []string {
		var out []string
		for _, v := range all {
			out = append(out, string(v.Type)+"\x02"+v.Name+"\x02"+v.Value)
		}
		slices.Sort(out)
		return out
	}
	parts := []string{string(m.Path.Type), m.Path.Value, m.Method, "headers"}
	parts = append(parts, values(m.Headers)...)
	parts = append(parts, "query")
	parts = append(parts, values(m.Query)...)
	return strings.Join(parts, "\x01")
}
