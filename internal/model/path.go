package model

import (
	"bytes"
	"strings"
)

var (
	errPathStart  = &ValueError{"the path does not begin with a slash", "write an absolute path"}
	errPathByte   = &ValueError{"the path has a space, a control byte, \"?\" or \"#\"; escape it", "write %20 for a space, %3F for ?, %23 for #"}
	errPathEscape = &ValueError{"the path has an invalid percent escape", "write % as %25, or two hexadecimal digits after it"}
	errPathNUL    = &ValueError{"the path has an escaped NUL", "remove %00"}
	errPathHidden = &ValueError{"the path hides a dot segment behind an escape, a backslash or \";\"",
		"remove the segment: servers differ in what they make of it, and requests with it are answered 400"}
)

// TargetPath returns the form in which a path of the configuration is sent, such as one that replaces a request's path.
// It is the path as written, but with a slash before it, with dot segments resolved, and with spaces and other bytes
// escaped that a path may not contain (RFC 3986 §3.3). Empty stays empty. It refuses everything else that NormalizePath
// refuses, such as an invalid escape, "?" or "#". An error is a *ValueError.
func TargetPath(value string) (string, error) {
	if value == "" {
		return "", nil
	}
	if value[0] != '/' {
		value = "/" + value
	}
	value = strings.ReplaceAll(value, " ", "%20")
	normal, err := NormalizePath(value)
	if err != nil || normal == value {
		return normal, err
	}
	if HasDotSegment(value) {
		return normal, nil
	}
	return escapeBytes(value), nil
}

// escapeBytes escapes the bytes that a path may not contain, and keeps existing escapes. A path without any is returned
// itself.
func escapeBytes(path string) string {
	foreign := func(b byte) bool { return b != '/' && classes[b]&classEscape != 0 }
	first := 0
	for first < len(path) && !foreign(path[first]) {
		first++
	}
	if first == len(path) {
		return path
	}
	out := append(make([]byte, 0, len(path)+16), path[:first]...)
	for i := first; i < len(path); i++ {
		if b := path[i]; foreign(b) {
			out = append(out, '%', upperDigits[b>>4], upperDigits[b&15])
		} else {
			out = append(out, b)
		}
	}
	return string(out)
}

const upperDigits = "0123456789ABCDEF"

// NormalizePath returns the one form in which paths are compared (RFC 3986 §6.2.2, §6.2.3):
//
//   - Dot segments, also escaped ones, are resolved; runs of slashes are one. A trailing slash stays.
//   - Escaped unreserved characters are unescaped, other escapes have upper-case digits. Bytes that may not stand in a
//     path by themselves (RFC 3986 §3.3), such as non-ASCII ones and backslashes, are escaped.
//   - %2F and %5C stay as they are, data inside a segment. So do ";" and the rest of the segment after it.
//   - The empty path is "/".
//
// It refuses paths that servers behind the proxy might read in another way: invalid escapes, escaped NUL, control
// bytes, and hidden dot segments. A dot segment is hidden if it shows once escapes are decoded (also more than once),
// escaped slashes and backslashes separate segments, and parameters (";...") are dropped: "..%2F", "%252e%252e",
// "..;x". A path in normal form is returned itself, without allocation.
func NormalizePath(raw string) (normal string, err error) {
	if raw == "" {
		return "/", nil
	}
	if raw[0] != '/' {
		return "", errPathStart
	}
	same := true
	for rest, more := raw[1:], true; more; {
		var s string
		var has class
		s, rest, has, more = nextSegment(rest)
		switch {
		case has == 0:
			same = same && (s != "" || !more)
		case has == classDot:
			same = same && s != "." && s != ".."
		default:
			keep, err := checkSegment(s, has)
			if err != nil {
				return "", err
			}
			same = same && keep
		}
	}
	if same {
		return raw, nil
	}
	return string(appendNormal(make([]byte, 0, len(raw)+16), raw[1:])), nil
}

// HasDotSegment reports whether a path has a dot segment, escaped or not. If not, NormalizePath only respells the path
// and merges slashes.
func HasDotSegment(raw string) bool {
	for rest, more := raw, true; more; {
		var s string
		s, rest, _, more = nextSegment(rest)
		if dots(s) > 0 {
			return true
		}
	}
	return false
}

// IsDotSegment reports whether a segment of a path is "." or "..", escaped or not.
func IsDotSegment(segment string) bool { return dots(segment) > 0 }

// Unreserved reports whether a byte is an unreserved character (RFC 3986 §2.3): escaping it changes nothing.
func Unreserved(b byte) bool { return isUnreserved[b] }

// EscapedInPaths reports whether a path may not contain a byte unescaped, so that it is sent escaped (RFC 3986 §3.3).
func EscapedInPaths(b byte) bool { return classes[b]&classEscape != 0 }

// class is a set of kinds of bytes; it is empty for ordinary bytes.
type class uint8

const (
	classDot class = 1 << iota
	classPercent
	classSemicolon
	// classEscape are bytes that are escaped.
	classEscape
	// classForbidden are bytes that make the path invalid.
	classForbidden
)

// unreserved is RFC 3986 §2.3; other are the remaining pchar of §3.3.
const (
	unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	other      = "!$&'()*+,=:@"
)

var classes = func() (c [256]class) {
	for i := range c {
		b := byte(i)
		switch {
		case b == '.':
			c[i] = classDot
		case b == '%':
			c[i] = classPercent
		case b == ';':
			c[i] = classSemicolon
		case b <= ' ' || b == 0x7f || b == '?' || b == '#':
			c[i] = classForbidden
		case strings.IndexByte(unreserved+other, b) < 0:
			c[i] = classEscape
		}
	}
	return c
}()

var isUnreserved = func() (u [256]bool) {
	for _, b := range []byte(unreserved) {
		u[b] = true
	}
	return u
}()

// nextSegment cuts path at the next slash and returns the kinds of bytes in the segment.
func nextSegment(path string) (segment, rest string, has class, more bool) {
	for i := 0; i < len(path); i++ {
		if path[i] == '/' {
			return path[:i], path[i+1:], has, true
		}
		has |= classes[path[i]]
	}
	return path, "", has, false
}

// checkSegment reports whether a segment is in normal form.
func checkSegment(s string, has class) (same bool, err error) {
	if has&classForbidden != 0 {
		return false, errPathByte
	}
	same = has&classEscape == 0
	if has&classPercent != 0 {
		for i := 0; i < len(s); i++ {
			if s[i] != '%' {
				continue
			}
			if len(s)-i < 3 {
				return false, errPathEscape
			}
			b, ok := Unhex(s[i+1], s[i+2])
			if !ok {
				return false, errPathEscape
			}
			if b == 0 {
				return false, errPathNUL
			}
			if isUnreserved[b] || s[i+1] >= 'a' || s[i+2] >= 'a' {
				same = false
			}
			i += 2
		}
	}
	if dots(s) > 0 {
		return false, nil
	}
	if hidesDots(s) {
		return false, errPathHidden
	}
	return same, nil
}

// dots returns 1 for ".", 2 for "..", in any spelling, and 0 for other segments.
func dots(s string) int {
	n := 0
	for ; s != ""; n++ {
		switch {
		case s[0] == '.':
			s = s[1:]
		case len(s) >= 3 && s[0] == '%' && s[1] == '2' && s[2]|0x20 == 'e':
			s = s[3:]
		default:
			return 0
		}
	}
	if n > 2 {
		return 0
	}
	return n
}

// hidesDots reports whether s has a hidden dot segment: one that shows after decoding s until nothing is left to
// decode, cutting it at slashes and backslashes, and dropping parameters.
func hidesDots(s string) bool {
	var buffer [128]byte
	out := buffer[:0]
	for i := range len(s) {
		out = append(out, s[i])
		for n := len(out); n >= 3 && out[n-3] == '%'; n = len(out) {
			b, ok := Unhex(out[n-2], out[n-1])
			if !ok {
				break
			}
			out = append(out[:n-3], b)
		}
	}
	for more := true; more; {
		var piece []byte
		piece, more = out, false
		if i := bytes.IndexAny(out, `/\`); i >= 0 {
			piece, out, more = out[:i], out[i+1:], true
		}
		piece, _, _ = bytes.Cut(piece, []byte{';'})
		if len(piece) == 1 && piece[0] == '.' || len(piece) == 2 && piece[0] == '.' && piece[1] == '.' {
			return true
		}
	}
	return false
}

// appendNormal appends the normal form of a path without its first slash, all of whose segments are good.
func appendNormal(out []byte, path string) []byte {
	slash := true
	for more := true; more; {
		var s string
		s, path, _, more = nextSegment(path)
		n := dots(s)
		slash = n > 0 || s == ""
		switch {
		case n == 2:
			out = out[:max(bytes.LastIndexByte(out, '/'), 0)]
		case !slash:
			out = appendSegment(append(out, '/'), s)
		}
	}
	if slash {
		out = append(out, '/')
	}
	return out
}

func appendSegment(out []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		b := s[i]
		if b == '%' {
			b, _ = Unhex(s[i+1], s[i+2])
			i += 2
			if isUnreserved[b] {
				out = append(out, b)
				continue
			}
		} else if classes[b]&classEscape == 0 {
			out = append(out, b)
			continue
		}
		out = append(out, '%', upperDigits[b>>4], upperDigits[b&15])
	}
	return out
}

// Unhex returns the byte two hexadecimal digits stand for.
func Unhex(high, low byte) (b byte, ok bool) {
	h, l := hexDigit(high), hexDigit(low)
	return h<<4 | l, h|l < 16
}

// hexDigit returns the value of a hexadecimal digit, or 255 for other bytes.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
