package routing

import "strings"

// hosts finds the values of a host: first for the host itself, then for wildcards, the longest first, then for any
// host.
type hosts[T any] struct {
	exact map[string]*T
	// wild is keyed by the suffix without "*."; longest is the length of its longest key.
	wild    map[string]*T
	longest int
	any     *T
}

// anyHostname is the hostname that covers every host.
const anyHostname = "*"

// at returns the place for a hostname (exact, "*.suffix" or "*"), made by create if it is new.
func (h *hosts[T]) at(hostname string, create func() *T) (v *T, isNew bool) {
	if hostname == anyHostname {
		if h.any == nil {
			h.any, isNew = create(), true
		}
		return h.any, isNew
	}
	m, key := &h.exact, hostname
	if suffix, ok := strings.CutPrefix(hostname, "*."); ok {
		m, key = &h.wild, suffix
		h.longest = max(h.longest, len(suffix))
	}
	if v = (*m)[key]; v == nil {
		if *m == nil {
			*m = make(map[string]*T)
		}
		v, isNew = create(), true
		(*m)[key] = v
	}
	return v, isNew
}

// Cursors of next; others are the start of a suffix in the host.
const (
	firstHost = 0
	lastHost  = -1
)

// next returns the value of the most specific hostname that covers the host and that the cursor has not passed, and the
// cursor after it. It is nil at the end. A wildcard stands for one or more labels.
func (h *hosts[T]) next(host string, cursor int) (*T, int) {
	if cursor == lastHost {
		return nil, lastHost
	}
	if cursor == firstHost {
		cursor = 1 // a wildcard's label is not empty
		if v := h.exact[host]; v != nil {
			return v, cursor
		}
	}
	if len(h.wild) > 0 {
		// Suffixes longer than all keys need no look-up: a host is as long as a client likes.
		cursor = max(cursor, len(host)-h.longest-1)
		for cursor < len(host) {
			dot := strings.IndexByte(host[cursor:], '.')
			if dot < 0 {
				break
			}
			cursor += dot + 1
			if v := h.wild[host[cursor:]]; v != nil {
				return v, cursor
			}
		}
	}
	return h.any, lastHost
}
