package http1

import "net/netip"

// Classes of bytes, as bits.
const (
	classToken  = 1 << iota // tchar, RFC 9110 §5.6.2
	classTarget             // allowed in a path or query (RFC 3986 §3.3, §3.4), and of no further interest there
	classHost               // letters, digits, "-._~"
	classHex
	classText      // HTAB, SP, VCHAR, obs-text
	classUnescaped // visible, but allowed in a path or query as an escape only
	classMethod    // upper-case letters, "-", "_"
	classIrregular // allowed in a field name, but neither a letter nor a digit nor "-"
)

var class = func() (t [256]uint8) {
	for c := range 256 {
		b := byte(c)
		letter := 'a' <= b|0x20 && b|0x20 <= 'z'
		digit := '0' <= b && b <= '9'
		if letter || digit {
			t[c] |= classToken | classHost
		}
		if digit || letter && b|0x20 <= 'f' {
			t[c] |= classHex
		}
		if 'A' <= b && b <= 'Z' || b == '-' || b == '_' {
			t[c] |= classMethod
		}
		if b > ' ' && b < 0x7f && b != '#' && b != '?' && b != '%' {
			t[c] |= classTarget
		}
		if b >= ' ' && b != 0x7f || b == '\t' {
			t[c] |= classText
		}
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		if t[c] |= classToken; c != '-' {
			t[c] |= classIrregular
		}
	}
	for _, c := range "\"<>[\\]^`{|}" {
		t[c] = t[c]&^classTarget | classUnescaped
	}
	for _, c := range "-._~" {
		t[c] |= classHost
	}
	return t
}()

// EqualFold compares without regard to the case of ASCII letters.
func EqualFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := 0; i < len(a); i++ {
		if x := a[i] ^ b[i]; x != 0 {
			if x != 0x20 {
				return false
			}
			if c := a[i] | 0x20; c < 'a' || c > 'z' {
				return false
			}
		}
	}
	return true
}

// nextMember splits a comma-separated list (RFC 9110 §5.6.1) after its first member, which comes without whitespace around it.
func nextMember(list string) (member, rest string, more bool) {
	end := len(list)
	for i := 0; i < len(list); i++ {
		if list[i] == ',' {
			end, rest, more = i, list[i+1:], true
			break
		}
	}
	return trim(list[:end]), rest, more
}

func trim(s string) string {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// HasToken reports whether value, a comma-separated list (RFC 9110 §5.6.1), has the member token, without regard to case.
func HasToken(value, token string) bool {
	for more := true; more; {
		var member string
		member, value, more = nextMember(value)
		if EqualFold(member, token) {
			return true
		}
	}
	return false
}

// Within reports whether list, comma-separated (RFC 9110 §5.6.1), has at least one member, and only members that are in
// those, without regard to case.
func Within(list, those string) bool {
	some := false
	for more := true; more; {
		var member string
		if member, list, more = nextMember(list); member == "" {
			continue
		}
		if some = true; !HasToken(those, member) {
			return false
		}
	}
	return some
}

func all(s string, bits uint8) bool {
	for i := 0; i < len(s); i++ {
		if class[s[i]]&bits == 0 {
			return false
		}
	}
	return true
}

// ValidToken reports whether s is a token (RFC 9110 §5.6.2).
func ValidToken(s string) bool { return s != "" && all(s, classToken) }

// ValidMethod reports whether s may be the method of a request: upper-case letters, "-" and "_". That is narrower than
// RFC 9110 §9.1, where methods are tokens, but every registered method fits. Other spellings are read as a registered
// method by some servers and refused by others.
func ValidMethod(s string) bool { return s != "" && all(s, classMethod) }

// CheckTarget reports whether Request.Parse accepts s as a path with or without a query, and whether it is Unescaped.
func CheckTarget(s string) (valid, unescaped bool) {
	query := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case class[c]&classTarget != 0:
		case c == '?':
			query = true
		case c == '%' && len(s)-i >= 3 && class[s[i+1]]&class[s[i+2]]&classHex != 0:
		case class[c]&classUnescaped != 0, c == '%' && query:
			unescaped = true
		default:
			return false, false
		}
	}
	return true, unescaped
}

// ValidFieldName reports whether s may be the name of a field.
func ValidFieldName(s string) bool { return ValidToken(s) }

// ValidFieldValue reports whether s may be the value of a field: no control bytes but HTAB, and no whitespace around it
// (RFC 9110 §5.5; bytes above 0x7F are allowed).
func ValidFieldValue(s string) bool { return all(s, classText) && len(trim(s)) == len(s) }

// ValidAuthority reports whether s is "host", "host:port", "[v6]" or "[v6]:port" without user information. A host is made of
// letters, digits and "-._~" without an empty label: narrower than RFC 3986, wide enough for every DNS name.
func ValidAuthority(s string) bool {
	_, _, ok := splitAuthority(s)
	return ok
}

// splitAuthority splits a valid authority. port is empty if there is no port, or if nothing follows the colon, which
// RFC 3986 §3.2.3 allows.
func splitAuthority(s string) (host, port string, ok bool) {
	end := 0
	if len(s) > 0 && s[0] == '[' {
		for end < len(s) && s[end] != ']' {
			end++
		}
		if end == len(s) {
			return "", "", false
		}
		a, err := netip.ParseAddr(s[1:end])
		if err != nil || !a.Is6() || a.Zone() != "" {
			return "", "", false
		}
		end++
	} else {
		for end < len(s) && class[s[end]]&classHost != 0 {
			if s[end] == '.' && (end == 0 || s[end-1] == '.') {
				return "", "", false
			}
			end++
		}
	}
	if end == 0 {
		return "", "", false
	}
	if end == len(s) {
		return s, "", true
	}
	if s[end] != ':' || !validPort(s[end+1:]) {
		return "", "", false
	}
	return s[:end], s[end+1:], true
}

func validPort(s string) bool {
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' || i == 5 {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n <= 65535
}
