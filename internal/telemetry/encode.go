package telemetry

import (
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	jsonTime     = "2006-01-02T15:04:05.000000Z07:00"
	combinedTime = "02/Jan/2006:15:04:05 -0700"
)

// appendJSON appends the record as one JSON object and a newline. Strings are encoded as encoding/json does without
// HTML escaping: bytes that are not UTF-8 become U+FFFD. A string that takes more than most bytes is cut, see fit.
func appendJSON(b []byte, r *Record, most int) []byte {
	b = append(b, `{"time":"`...)
	b = r.Time.UTC().AppendFormat(b, jsonTime)
	b = append(b, '"')
	b = appendMember(b, `,"listener":`, r.Listener, most)
	b = appendMember(b, `,"route":`, r.Route, most)
	b = appendMember(b, `,"rule":`, r.Rule, most)
	b = appendMember(b, `,"backend":`, r.Backend, most)
	b = appendMember(b, `,"endpoint":`, r.Endpoint, most)
	b = appendMember(b, `,"client":`, r.Client, most)
	b = appendMember(b, `,"peer":`, r.Peer, most)
	b = appendMember(b, `,"method":`, r.Method, most)
	b = appendMember(b, `,"host":`, r.Host, most)
	b = appendMember(b, `,"path":`, r.Path, most)
	b = appendMember(b, `,"query":`, r.Query, most)
	b = appendMember(b, `,"protocol":`, r.Protocol, most)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = appendMember(b, `,"reason":`, string(r.Reason), most)
	b = appendMember(b, `,"path_reading":`, r.PathReading, most)
	b = append(b, `,"duration_ms":`...)
	b = appendMillis(b, r.Duration)
	if r.BackendDuration != 0 {
		b = append(b, `,"backend_duration_ms":`...)
		b = appendMillis(b, r.BackendDuration)
	}
	if r.Attempts != 0 {
		b = append(b, `,"attempts":`...)
		b = strconv.AppendInt(b, int64(r.Attempts), 10)
	}
	b = append(b, `,"bytes_in":`...)
	b = strconv.AppendInt(b, r.BytesIn, 10)
	b = append(b, `,"bytes_out":`...)
	b = strconv.AppendInt(b, r.BytesOut, 10)
	if len(r.Mirrors) > 0 {
		b = append(b, `,"mirrors":[`...)
		for i := range r.Mirrors {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"mirror":`...)
			b = appendJSONString(b, r.Mirrors[i].Mirror)
			b = append(b, `,"outcome":"`...)
			b = append(b, r.Mirrors[i].Outcome.String()...)
			b = append(b, `"}`...)
		}
		b = append(b, ']')
	}
	b = appendMember(b, `,"request_id":`, r.RequestID, most)
	b = appendMember(b, `,"traceparent":`, r.TraceParent, most)
	b = appendMember(b, `,"user_agent":`, r.UserAgent, most)
	b = appendMember(b, `,"referer":`, r.Referer, most)
	return append(b, '}', '\n')
}

// appendMember appends a member whose value is text, unless that is empty.
func appendMember(b []byte, key, value string, most int) []byte {
	if value == "" {
		return b
	}
	b = append(b, key...)
	kept := fit(value, most, jsonSize)
	if b = appendJSONString(b, value[:kept]); kept < len(value) {
		b = append(appendCut(b[:len(b)-1], len(value)-kept), '"')
	}
	return b
}

// fit is how much of the beginning of s is encoded in at most so many bytes, 0 for no bound. size is that of what begins s: of it, and encoded.
func fit(s string, most int, size func(s string) (n, encoded int)) int {
	if most <= 0 || len(s) <= most/longestEscape {
		return len(s)
	}
	used := 0
	for i := 0; i < len(s); {
		n, encoded := size(s[i:])
		if used += encoded; used > most {
			return i
		}
		i += n
	}
	return len(s)
}

// longestEscape is what one byte of text becomes at most.
const longestEscape = len(`\u0000`)

// appendCut says how many bytes are left out: "...+123".
func appendCut(b []byte, left int) []byte {
	return strconv.AppendInt(append(b, "...+"...), int64(left), 10)
}

func jsonSize(s string) (n, encoded int) {
	switch c := s[0]; {
	case plainJSON[c]:
		return 1, 1
	case c == '"', c == '\\', c == '\b', c == '\f', c == '\n', c == '\r', c == '\t':
		return 1, len(`\n`)
	case c < utf8.RuneSelf:
		return 1, longestEscape
	}
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 || r == '\u2028' || r == '\u2029' {
		return n, longestEscape
	}
	return n, n
}

func wordSize(s string) (n, encoded int) {
	if s[0] == ' ' {
		return 1, len(`\x20`)
	}
	return quotedSize(s)
}

func quotedSize(s string) (n, encoded int) {
	if c := s[0]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
		return 1, len(`\x00`)
	}
	return 1, 1
}

// appendMillis appends a duration in milliseconds with three decimals.
func appendMillis(b []byte, d time.Duration) []byte {
	us := d.Microseconds()
	if us < 0 {
		b = append(b, '-')
		us = -us
	}
	b = strconv.AppendInt(b, us/1000, 10)
	us %= 1000
	return append(b, '.', byte('0'+us/100), byte('0'+us/10%10), byte('0'+us%10))
}

const hexDigits = "0123456789abcdef"

// plainJSON says which bytes stand for themselves in a JSON string.
var plainJSON = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendJSONString appends s as a JSON string.
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plainJSON[c] {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			b = append(b, s[start:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\b':
				b = append(b, '\\', 'b')
			case '\f':
				b = append(b, '\\', 'f')
			case '\n':
				b = append(b, '\\', 'n')
			case '\r':
				b = append(b, '\\', 'r')
			case '\t':
				b = append(b, '\\', 't')
			default:
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(b, s[start:i]...)
			b = append(b, `\ufffd`...)
			start = i + size
		case r == '\u2028' || r == '\u2029': // valid JSON, but not everywhere valid JavaScript
			b = append(b, s[start:i]...)
			b = append(b, `\u202`...)
			b = append(b, hexDigits[r&15])
			start = i + size
		}
		i += size
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// appendText appends the record in the combined log format, followed by name=value pairs of what that cannot say.
func appendText(b []byte, r *Record, most int) []byte {
	b = appendWord(b, r.Client, most)
	b = append(b, " - - ["...)
	b = r.Time.AppendFormat(b, combinedTime)
	b = append(b, `] "`...)
	b = appendQuoted(b, r.Method, most)
	b = append(b, ' ')
	b = appendQuoted(b, r.Path, most)
	if r.Query != "" {
		b = append(b, '?')
		b = appendQuoted(b, r.Query, most)
	}
	b = append(b, ' ')
	b = appendQuoted(b, r.Protocol, most)
	b = append(b, `" `...)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, r.BytesOut, 10)
	b = appendQuotedOrDash(b, r.Referer, most)
	b = appendQuotedOrDash(b, r.UserAgent, most)
	b = append(b, " host="...)
	b = appendWord(b, r.Host, most)
	b = append(b, " duration_ms="...)
	b = appendMillis(b, r.Duration)
	b = appendPair(b, " peer=", r.Peer, most)
	b = appendPair(b, " route=", r.Route, most)
	b = appendPair(b, " rule=", r.Rule, most)
	b = appendPair(b, " backend=", r.Backend, most)
	b = appendPair(b, " endpoint=", r.Endpoint, most)
	if r.Attempts > 1 {
		b = append(b, " attempts="...)
		b = strconv.AppendInt(b, int64(r.Attempts), 10)
	}
	b = appendPair(b, " reason=", string(r.Reason), most)
	b = appendPair(b, " path_reading=", r.PathReading, most)
	for i := range r.Mirrors {
		b = append(b, " mirror="...)
		b = appendWord(b, r.Mirrors[i].Mirror, most)
		b = append(b, ',')
		b = append(b, r.Mirrors[i].Outcome.String()...)
	}
	b = appendPair(b, " request_id=", r.RequestID, most)
	b = appendPair(b, " traceparent=", r.TraceParent, most)
	return append(b, '\n')
}

func appendPair(b []byte, name, value string, most int) []byte {
	if value == "" {
		return b
	}
	b = append(b, name...)
	return appendWord(b, value, most)
}

func appendQuotedOrDash(b []byte, s string, most int) []byte {
	b = append(b, ' ', '"')
	if s == "" {
		b = append(b, '-')
	}
	b = appendQuoted(b, s, most)
	return append(b, '"')
}

// appendWord appends s so that it stays one word: spaces are escaped too, and an empty one is "-".
func appendWord(b []byte, s string, most int) []byte {
	if s == "" {
		return append(b, '-')
	}
	return appendEscaped(b, s, ' ', most)
}

// appendQuoted appends s for between quotes.
func appendQuoted(b []byte, s string, most int) []byte { return appendEscaped(b, s, '"', most) }

// appendEscaped writes quotes, backslashes, control bytes, bytes above ASCII and the byte also as \xHH: one line stays
// one line, and no byte reaches a terminal that could command it.
func appendEscaped(b []byte, s string, also byte, most int) []byte {
	size := quotedSize
	if also == ' ' {
		size = wordSize
	}
	kept := fit(s, most, size)
	left := len(s) - kept
	s = s[:kept]
	start := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == also {
			b = append(b, s[start:i]...)
			b = append(b, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			start = i + 1
		}
	}
	if b = append(b, s[start:]...); left > 0 {
		b = appendCut(b, left)
	}
	return b
}
