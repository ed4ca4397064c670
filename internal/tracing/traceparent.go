package tracing

import "encoding/hex"

// Field is the name of the header field that carries a Context (W3C Trace Context, https://www.w3.org/TR/trace-context/).
const Field = "traceparent"

// Flags of a Context. Others are undefined, and never sent.
const (
	Sampled byte = 1 << 0
	Random  byte = 1 << 1 // the trace's id is random
)

// Length is the length of a Context as text.
const Length = 2 + 1 + 32 + 1 + 16 + 1 + 2

// Context names a span, and the trace that it is a part of.
type Context struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte
}

// Valid reports whether neither id is all zero.
func (c Context) Valid() bool { return c.Trace != [16]byte{} && c.Span != [8]byte{} }

// Sampled reports whether the caller may have recorded the trace.
func (c Context) Sampled() bool { return c.Flags&Sampled != 0 }

// Parse reads a field's value of version 00. Anything else is invalid, and to be treated as if it were absent: other
// versions, upper case, ids that are all zero, blanks around it.
func Parse(s string) (c Context, ok bool) {
	if len(s) != Length || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return Context{}, false
	}
	var flags [1]byte
	if !decode(c.Trace[:], s[3:35]) || !decode(c.Span[:], s[36:52]) || !decode(flags[:], s[53:]) || !c.Valid() {
		return Context{}, false
	}
	c.Flags = flags[0] & (Sampled | Random)
	return c, true
}

// decode reads lower-case hexadecimal digits, two for each byte of to.
func decode(to []byte, s string) bool {
	for i := range to {
		high, low := digit(s[2*i]), digit(s[2*i+1])
		if high > 15 || low > 15 {
			return false
		}
		to[i] = high<<4 | low
	}
	return true
}

func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}

// String is the field's value.
func (c Context) String() string {
	b := make([]byte, 0, Length)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, c.Trace[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, c.Span[:])
	b = append(b, '-')
	return string(hex.AppendEncode(b, []byte{c.Flags}))
}
