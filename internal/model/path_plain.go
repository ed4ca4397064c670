package model

import (
	"strings"
	"unsafe"
)

// plain are the reserved characters that may stand in a segment of a path (RFC 3986 §3.3, pchar), all but ";", of which
// servers differ in what it means.
var plain = func() (p [256]bool) {
	for _, b := range []byte(other) {
		p[b] = true
	}
	return p
}()

// PlainPath returns a path in normal form (NormalizePath) with those escapes decoded that stand for characters which may
// also be written as they are: two spellings of one path become one. All other escapes stay. It appends to scratch and
// returns it, with the path as its end, if it has to change the path.
func PlainPath(normal string, scratch []byte) (string, []byte) {
	i := strings.IndexByte(normal, '%')
	for i >= 0 && !plainEscape(normal, i) {
		next := strings.IndexByte(normal[i+1:], '%')
		if next < 0 {
			return normal, scratch
		}
		i += 1 + next
	}
	if i < 0 {
		return normal, scratch
	}
	from := len(scratch)
	scratch = append(scratch, normal[:i]...)
	for ; i < len(normal); i++ {
		if normal[i] == '%' && plainEscape(normal, i) {
			b, _ := Unhex(normal[i+1], normal[i+2])
			scratch = append(scratch, b)
			i += 2
			continue
		}
		scratch = append(scratch, normal[i])
	}
	out := scratch[from:]
	return unsafe.String(unsafe.SliceData(out), len(out)), scratch
}

// plainEscape reports whether the escape at i is one that PlainPath decodes.
func plainEscape(s string, i int) bool {
	if len(s)-i < 3 {
		return false
	}
	b, ok := Unhex(s[i+1], s[i+2])
	return ok && plain[b]
}
