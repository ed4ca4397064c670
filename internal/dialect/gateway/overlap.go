package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/resource"
)

// overlapsTold is how many overlaps of one listener are told by name: a listener for any host overlaps with all.
const overlapsTold = 5

// findOverlaps marks HTTPS listeners on one port whose hostnames overlap (condition OverlappingTLSConfig).
func (t *translator) findOverlaps() {
	ports := map[socket]map[string][]*listener{} // by hostname
	for _, g := range t.order {
		for _, l := range g.listeners {
			if l.tls == nil || !l.accepted() {
				continue
			}
			s := t.socket(g, "", l.spec.Port)
			if ports[s] == nil {
				ports[s] = map[string][]*listener{}
			}
			ports[s][l.hostname] = append(ports[s][l.hostname], l)
		}
	}
	for _, byHost := range ports {
		for hostname, all := range byHost {
			for _, l := range all {
				for _, other := range all {
					t.overlap(l, other)
				}
				for _, wide := range wider(hostname) {
					for _, other := range byHost[wide] {
						t.overlap(l, other)
						t.overlap(other, l)
					}
				}
			}
		}
	}
	for _, g := range t.order {
		for _, l := range g.listeners {
			if len(l.overlaps) > 0 {
				l.settleOverlaps()
				t.report(l.holder(), resource.Problem(codeOverlap, "", l.field+".hostname", "the hostname overlaps with listener "+
					strings.Join(l.overlaps, ", "), "expect 421 for clients that reuse a connection for another host"))
			}
		}
	}
}

// overlap notes another listener with an overlapping hostname, if a connection may reach both.
func (t *translator) overlap(l, other *listener) {
	meet := l.gateway == other.gateway ||
		slices.ContainsFunc(l.gateway.addresses, func(a string) bool { return slices.Contains(other.gateway.addresses, a) })
	if other != l && meet {
		l.overlaps = append(l.overlaps, l.discreet(other))
	}
}

func (l *listener) settleOverlaps() {
	slices.Sort(l.overlaps)
	l.overlaps = slices.Compact(l.overlaps)
	if more := len(l.overlaps) - overlapsTold; more > 1 {
		l.overlaps = append(slices.Clip(l.overlaps[:overlapsTold]), fmt.Sprintf("and %d more", more))
	}
}

// wider returns the hostnames other than itself that stand for all that a hostname does.
func wider(hostname string) []string {
	if hostname == "" {
		return nil
	}
	var all []string
	rest := strings.TrimPrefix(hostname, "*.")
	if rest == hostname {
		_, rest, _ = strings.Cut(rest, ".")
	} else if _, parent, ok := strings.Cut(rest, "."); ok {
		rest = parent
	} else {
		rest = ""
	}
	for rest != "" {
		all = append(all, "*."+rest)
		_, rest, _ = strings.Cut(rest, ".")
	}
	return append(all, "")
}
