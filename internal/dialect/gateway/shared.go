package gateway

import (
	"fmt"
	"slices"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// hosted is what routes have of one hostname of a listener. Requests for it are compared with the matches of all of them, so each may take a part only of
// what that may cost: who comes later must not have requests refused that others' routes get. Routes count from the oldest on.
type hosted struct {
	// first is the namespace that had the hostname first. shared means that a route of another one came; from then on all routes count.
	first  string
	shared bool
	// instructions are those of the patterns of the routes that count, matches how many matches they have by listOf.
	instructions int
	matches      map[string]int
}

// listOf names the matches with which a match is compared one after the other: those of the same path, or all by pattern.
func listOf(m *model.Match) string {
	if m.Path.Type == model.Regex {
		return string(model.Regex)
	}
	return string(m.Path.Type) + " " + m.Path.Value
}

// cost is what a route's rules cost each request for one of its hostnames.
type cost struct {
	instructions int
	matches      map[string]int
}

func costOf(rules []model.Rule) cost {
	c := cost{matches: map[string]int{}}
	for i := range rules {
		for j := range rules[i].Matches {
			m := &rules[i].Matches[j]
			c.instructions += m.Instructions()
			c.matches[listOf(m)]++
		}
	}
	return c
}

// take counts a route that has the hostname.
func (h *hosted) take(r *route) {
	if h.first == "" {
		h.first = r.namespace
	}
	if h.shared = h.shared || r.namespace != h.first; !h.shared {
		return
	}
	c := r.cost()
	h.instructions += c.instructions
	if h.matches == nil {
		h.matches = map[string]int{}
	}
	for list, n := range c.matches {
		h.matches[list] += n
	}
}

// refuses says why a route cannot have the hostname besides the others; empty if it can.
func (h *hosted) refuses(r *route) string {
	if !h.shared && r.namespace == h.first {
		return ""
	}
	c := r.cost()
	if c.instructions > 0 && h.instructions+c.instructions > model.MaxSharedInstructions {
		return fmt.Sprintf("the patterns of this route have %d instructions, those of older routes %d, and routes of several namespaces have at most %d there together",
			c.instructions, h.instructions, model.MaxSharedInstructions)
	}
	for list, n := range c.matches {
		if h.matches[list]+n > model.MaxSharedMatches {
			return fmt.Sprintf("older routes and this one have more than %d matches for one path, which is the most that routes of several namespaces have there together", model.MaxSharedMatches)
		}
	}
	return ""
}

// cost is costOf the route's rules, which it remembers.
func (r *route) cost() cost {
	if r.costs.matches == nil {
		r.costs = costOf(r.rules)
	}
	return r.costs
}

// refused are the hostnames of a parent's listeners that the route does not get because of older routes of other namespaces, which it takes off them.
func (t *translator) refused(r *route, p *parent) (lost []loss) {
	for _, l := range p.listeners() {
		hostnames, ok := p.attached[l]
		if !ok {
			continue
		}
		var left []string
		for _, h := range hostnames {
			if why, no := t.refusedHostname(r, l, h); no {
				lost = append(lost, loss{l, why})
			} else {
				left = append(left, h)
			}
		}
		switch {
		case len(left) == len(hostnames):
		case left == nil:
			delete(p.attached, l)
		default:
			p.attached[l] = left
		}
	}
	return lost
}

func (t *translator) refusedHostname(r *route, l *listener, hostname string) (resource.Finding, bool) {
	u := t.used[l]
	if u == nil {
		return resource.Finding{}, false
	}
	words := "hostname " + hostname
	if hostname == "*" {
		words = "any hostname"
	}
	if t.ExclusiveHostnames && hostname != "*" {
		for _, h := range slices.Concat([]string{hostname}, wider(hostname)) {
			x := u.hosts[h]
			if x == nil {
				continue
			}
			if x.first == r.namespace {
				break // the most specific one that somebody has decides
			}
			return resource.Problem(codeHostnameOwned, "HostnameOfOtherNamespace", "spec.hostnames",
				fmt.Sprintf("on listener %s, %s belongs to another namespace, whose routes had %s first (--exclusive-hostnames)", l, words, h),
				"use another hostname, or have that namespace's route deleted"), true
		}
	}
	x := u.hosts[hostname]
	if x == nil {
		return resource.Finding{}, false
	}
	if why := x.refuses(r); why != "" {
		return resource.Problem(codeHostnameFull, "HostnameFull", "spec.hostnames",
			fmt.Sprintf("on listener %s, %s has no room for this route: %s", l, words, why),
			"use a hostname of your own, or paths and values without regular expressions"), true
	}
	return resource.Finding{}, false
}

// takeHostnames counts a route at the hostnames that it has.
func (u *usage) takeHostnames(r *route, hostnames []string) {
	if !r.carries.Requests() {
		return
	}
	if u.hosts == nil {
		u.hosts = map[string]*hosted{}
	}
	for _, h := range hostnames {
		x := u.hosts[h]
		if x == nil {
			x = &hosted{}
			u.hosts[h] = x
		}
		x.take(r)
	}
}
