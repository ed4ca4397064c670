package clientaddr

import (
	"net/netip"
	"strings"
)

// MaxHops bounds the entries of a request's fields that a Walk reads, including empty ones. Chains of trusted proxies
// have a few; entries farther left can be written by anyone.
const MaxHops = 32

const (
	maxEntry   = 64  // bytes of an entry of X-Forwarded-For
	maxElement = 512 // bytes of an element of Forwarded
)

// Walk goes from the peer of a connection, which must be trusted, to the client: back through the entries that proxies
// appended, the last one first. Each was written by the address before it. The first that is not trusted is the client.
// An entry that is not an address (malformed, "unknown", an obfuscated identifier) ends the walk at the address before
// it.
//
// Give it the lines of one field, the last line first, until it reports that it is over.
type Walk struct {
	trust *Trust
	hops  [MaxHops]netip.Addr
	n     int
	seen  int

	// Proto and Host are from the element of Forwarded that names the last of Hops; empty if it does not have them.
	// They are as received.
	Proto, Host string
}

// Begin begins anew.
func (w *Walk) Begin(trust *Trust) { w.trust, w.n, w.seen, w.Proto, w.Host = trust, 0, 0, "", "" }

// Hops are the addresses of the walk, the nearest first: the last of them is the client. If there are none, the peer
// itself is.
func (w *Walk) Hops() []netip.Addr { return w.hops[:w.n] }

// ForwardedFor walks over a line of X-Forwarded-For; more is false once the walk is over. Entries are addresses, with a port perhaps: 192.0.2.1,
// 192.0.2.1:80, 2001:db8::1, [2001:db8::1], [2001:db8::1]:80.
func (w *Walk) ForwardedFor(line string) (more bool) {
	for {
		least := max(0, len(line)-maxEntry-1)
		comma := strings.LastIndexByte(line[least:], ',')
		if comma < 0 && least > 0 {
			return false // longer than any entry
		}
		if entry := trim(line[least+comma+1:]); entry == "" {
			if !w.skip() {
				return false
			}
		} else if a, ok := parseNode(entry, true); !w.add(a, ok) {
			return false
		}
		if comma < 0 {
			return true
		}
		line = line[:least+comma]
	}
}

// RealIP walks over X-Real-IP, which holds one address; a line of several ends the walk.
func (w *Walk) RealIP(line string) {
	if len(line) <= maxEntry {
		a, ok := parseNode(trim(line), true)
		w.add(a, ok)
	}
}

// skip passes over an empty entry (RFC 9110 §5.6.1.2); false if the walk is over.
func (w *Walk) skip() bool {
	w.seen++
	return w.seen < MaxHops
}

// add takes a step; false if the walk is over.
func (w *Walk) add(a netip.Addr, ok bool) bool {
	if !ok {
		return false
	}
	w.hops[w.n] = a
	w.n++
	w.seen++
	return w.trust.Contains(a) && w.seen < MaxHops
}

// Forwarded walks over a line of Forwarded (RFC 7239 §4); more is false once the walk is over.
func (w *Walk) Forwarded(line string) (more bool) {
	for {
		start, ok := elementStart(line)
		if !ok {
			return false
		}
		if text := trim(line[start:]); text == "" {
			if !w.skip() {
				return false
			}
		} else {
			var e element
			if !e.parse(text) {
				return false
			}
			a, ok := parseNode(e.node, false)
			if ok {
				w.Proto, w.Host = e.proto, e.host
			}
			if !w.add(a, ok) {
				return false
			}
		}
		if start == 0 {
			return true
		}
		line = line[:start-1]
	}
}

// elementStart finds where the last element of the line begins: after the last comma outside quoted strings. It
// searches from the right, so that text farther left, such as a quote that is never closed, has no influence. ok is
// false if the element is too long.
func elementStart(line string) (start int, ok bool) {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		if len(line)-i > maxElement+1 {
			return 0, false
		}
		switch c := line[i]; {
		case c == '"':
			escapes := 0
			for escapes < maxElement && i > escapes && line[i-1-escapes] == '\\' {
				escapes++
			}
			if quoted && escapes%2 == 1 {
				i -= escapes
				continue
			}
			quoted = !quoted
		case c == ',' && !quoted:
			return i + 1, true
		}
	}
	return 0, true
}

// element is the used part of an element of Forwarded; quoted strings are without their quotes.
type element struct{ node, proto, host string }

// parse reads parameters (RFC 7239 §4). Whitespace around them, and an address in brackets that is not quoted, are let pass: there are proxies that write them,
// and they can mean one thing only.
func (e *element) parse(s string) bool {
	var has struct{ node, proto, host bool }
	for {
		name, rest, found := strings.Cut(s, "=")
		if !found || !isToken(name) {
			return false
		}
		value := ""
		if strings.HasPrefix(rest, `"`) {
			end := strings.IndexByte(rest[1:], '"')
			if end < 0 || strings.IndexByte(rest[1:1+end], '\\') >= 0 {
				return false // neither an address nor a host name needs an escape
			}
			value, rest = rest[1:1+end], rest[end+2:]
		} else {
			end := strings.IndexByte(rest, ';')
			if end < 0 {
				end = len(rest)
			}
			value, rest = trim(rest[:end]), rest[end:]
			if value == "" || strings.ContainsAny(value, "\" \t\\") {
				return false
			}
		}
		again := false
		switch {
		case strings.EqualFold(name, "for"):
			again, has.node, e.node = has.node, true, value
		case strings.EqualFold(name, "proto"):
			again, has.proto, e.proto = has.proto, true, value
		case strings.EqualFold(name, "host"):
			again, has.host, e.host = has.host, true, value
		}
		if again {
			return false // each at most once
		}
		rest = trim(rest)
		if rest == "" {
			return has.node
		}
		if rest[0] != ';' {
			return false
		}
		if s = trim(rest[1:]); s == "" {
			return has.node // a last semicolon, with nothing after it
		}
	}
}

// parseNode reads an address with a port perhaps (RFC 7239 §6, where IPv6 is in brackets); bare also takes IPv6 without. The zone, which means something on
// another machine, is left out.
func parseNode(s string, bare bool) (netip.Addr, bool) {
	if s == "" || len(s) > maxEntry {
		return netip.Addr{}, false
	}
	host, port, hasPort := s, "", false
	switch {
	case s[0] == '[':
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return netip.Addr{}, false
		}
		host = s[1:end]
		if rest := s[end+1:]; rest != "" {
			if rest[0] != ':' {
				return netip.Addr{}, false
			}
			port, hasPort = rest[1:], true
		}
		if strings.IndexByte(host, ':') < 0 {
			return netip.Addr{}, false // IPv4 has no brackets
		}
	case strings.IndexByte(s, ':') < 0:
	case strings.IndexByte(s, ':') == strings.LastIndexByte(s, ':'):
		host, port, hasPort = strings.Cut(s, ":")
	case !bare:
		return netip.Addr{}, false
	}
	if host == "" || !isHex(host[0]) && host[0] != ':' || hasPort && !isPort(port) {
		return netip.Addr{}, false // "unknown" and similar, without allocating an error
	}
	a, err := netip.ParseAddr(host)
	if err != nil || a.IsUnspecified() {
		return netip.Addr{}, false
	}
	return a.Unmap().WithZone(""), true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// isPort: digits, or an obfuscated one (RFC 7239 §6.2).
func isPort(s string) bool {
	if s == "" {
		return false
	}
	if s[0] == '_' {
		return len(s) > 1 && isToken(s)
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return len(s) <= 5
}

// isToken is RFC 9110 §5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}

func trim(s string) string { return strings.Trim(s, " \t") }

// AppendNode appends the address as an element of Forwarded names it.
func AppendNode(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		return a.AppendTo(b)
	}
	return append(a.AppendTo(append(b, '"', '[')), ']', '"')
}
