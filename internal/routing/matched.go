package routing

// matched is the names of header fields, in lower case and by length, on whose values it may depend which rule or which
// leaf of a split a request gets.
type matched map[int][]string

func (m *matched) add(conditions []condition) {
	for i := range conditions {
		name := conditions[i].name
		if m.has(name) {
			continue
		}
		if *m == nil {
			*m = make(matched)
		}
		(*m)[len(name)] = append((*m)[len(name)], name)
	}
}

func (m *matched) has(name string) bool {
	for _, n := range (*m)[len(name)] {
		if n == name {
			return true
		}
	}
	return false
}

// note makes the names of a host's candidates.
func (h *hostRules) note() {
	for _, c := range h.all {
		h.matched.add(c.headers)
		for _, b := range c.rule.Backends {
			if b.root == nil {
				continue
			}
			for i := range b.root.splits {
				for j := range b.root.splits[i].matches {
					h.matched.add(b.root.splits[i].matches[j].headers)
				}
			}
		}
	}
}

// MatchesLike reports whether rules for the host match on a header field whose name is like name and of its length, in
// the sense of like. Rules of other hosts do not count: their users cannot take fields from this host's requests.
func (l *Listener) MatchesLike(host, name string, like func(matched, name string) bool) bool {
	for cursor := firstHost; ; {
		var h *hostRules
		if h, cursor = l.hosts.next(host, cursor); h == nil {
			return false
		}
		for _, n := range h.matched[len(name)] {
			if like(n, name) {
				return true
			}
		}
	}
}
