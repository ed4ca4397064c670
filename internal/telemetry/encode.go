package telemetry

import (
	"strconv"
	"time"
	"unicode/utf8"
)

const jsonTime = "2006-01-02T15:04:05.000000Z07:00"

// appendJSON appends the record as one JSON object and a newline. Strings are encoded as encoding/json does without
// HTML escaping: bytes that are not UTF-8 become U+FFFD. A string that takes more than most bytes is cut, see fit.
func (l *AccessLog) appendJSON(b []byte, r *Record) []byte {
	most := l.most
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
	b = appendMember(b, `,"access":`, r.Access, most)
	b = appendMember(b, `,"source":`, r.Source, most)
	b = appendMember(b, `,"policy":`, r.Policy, most)
	b = append(b, `,"duration_ms":`...)
	b = appendMillis(b, r.Duration)
	if r.BackendConnect != 0 {
		b = append(b, `,"backend_connect_ms":`...)
		b = appendMillis(b, r.BackendConnect)
	}
	if r.BackendFirstByte != 0 {
		b = append(b, `,"backend_first_byte_ms":`...)
		b = appendMillis(b, r.BackendFirstByte)
	}
	if r.Attempts != 0 {
		b = append(b, `,"backend_duration_ms":`...)
		b = appendMillis(b, r.BackendDuration)
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
	b = appendMembers(b, `,"request_headers":{`, l.request, r.RequestFields, most)
	b = appendMembers(b, `,"response_headers":{`, l.response, r.ResponseFields, most)
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

// fit returns how many bytes at the beginning of s can be encoded in at most most bytes; 0 means no bound. size returns
// the length of the first unit of s, and of its encoding.
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

// longestEscape is the longest encoding of one byte of text.
const longestEscape = len(`\u0000`)

// appendCut appends the number of bytes left out: "...+123".
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

// plainJSON are the bytes that need no escape in a JSON string.
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
