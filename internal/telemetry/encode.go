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
// HTML escaping: bytes that are not UTF-8 become U+FFFD.
func appendJSON(b []byte, r *Record) []byte {
	b = append(b, `{"time":"`...)
	b = r.Time.UTC().AppendFormat(b, jsonTime)
	b = append(b, '"')
	b = appendMember(b, `,"listener":`, r.Listener)
	b = appendMember(b, `,"route":`, r.Route)
	b = appendMember(b, `,"rule":`, r.Rule)
	b = appendMember(b, `,"backend":`, r.Backend)
	b = appendMember(b, `,"endpoint":`, r.Endpoint)
	b = appendMember(b, `,"client":`, r.Client)
	b = appendMember(b, `,"peer":`, r.Peer)
	b = appendMember(b, `,"method":`, r.Method)
	b = appendMember(b, `,"host":`, r.Host)
	b = appendMember(b, `,"path":`, r.Path)
	b = appendMember(b, `,"query":`, r.Query)
	b = appendMember(b, `,"protocol":`, r.Protocol)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = appendMember(b, `,"reason":`, string(r.Reason))
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
	b = appendMember(b, `,"request_id":`, r.RequestID)
	b = appendMember(b, `,"traceparent":`, r.TraceParent)
	b = appendMember(b, `,"user_agent":`, r.UserAgent)
	b = appendMember(b, `,"referer":`, r.Referer)
	return append(b, '}', '\n')
}

// appendMember appends a member whose value is text, unless that is empty.
func appendMember(b []byte, key, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, key...)
	return appendJSONString(b, value)
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
func appendText(b []byte, r *Record) []byte {
	b = appendWord(b, r.Client)
	b = append(b, " - - ["...)
	b = r.Time.AppendFormat(b, combinedTime)
	b = append(b, `] "`...)
	b = appendQuoted(b, r.Method)
	b = append(b, ' ')
	b = appendQuoted(b, r.Path)
	if r.Query != "" {
		b = append(b, '?')
		b = appendQuoted(b, r.Query)
	}
	b = append(b, ' ')
	b = appendQuoted(b, r.Protocol)
	b = append(b, `" `...)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, r.BytesOut, 10)
	b = appendQuotedOrDash(b, r.Referer)
	b = appendQuotedOrDash(b, r.UserAgent)
	b = append(b, " host="...)
	b = appendWord(b, r.Host)
	b = append(b, " duration_ms="...)
	b = appendMillis(b, r.Duration)
	b = appendPair(b, " peer=", r.Peer)
	b = appendPair(b, " route=", r.Route)
	b = appendPair(b, " rule=", r.Rule)
	b = appendPair(b, " backend=", r.Backend)
	b = appendPair(b, " endpoint=", r.Endpoint)
	if r.Attempts > 1 {
		b = append(b, " attempts="...)
		b = strconv.AppendInt(b, int64(r.Attempts), 10)
	}
	b = appendPair(b, " reason=", string(r.Reason))
	for i := range r.Mirrors {
		b = append(b, " mirror="...)
		b = appendWord(b, r.Mirrors[i].Mirror)
		b = append(b, ',')
		b = append(b, r.Mirrors[i].Outcome.String()...)
	}
	b = appendPair(b, " request_id=", r.RequestID)
	b = appendPair(b, " traceparent=", r.TraceParent)
	return append(b, '\n')
}

func appendPair(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, name...)
	return appendWord(b, value)
}

func appendQuotedOrDash(b []byte, s string) []byte {
	b = append(b, ' ', '"')
	if s == "" {
		b = append(b, '-')
	}
	b = appendQuoted(b, s)
	return append(b, '"')
}

// appendWord appends s so that it stays one word: spaces are escaped too, and an empty one is "-".
func appendWord(b []byte, s string) []byte {
	if s == "" {
		return append(b, '-')
	}
	return appendEscaped(b, s, ' ')
}

// appendQuoted appends s for between quotes.
func appendQuoted(b []byte, s string) []byte { return appendEscaped(b, s, '"') }

// appendEscaped writes quotes, backslashes, control bytes, bytes above ASCII and the byte also as \xHH: one line stays
// one line, and no byte reaches a terminal that could command it.
func appendEscaped(b []byte, s string, also byte) []byte {
	start := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == also {
			b = append(b, s[start:i]...)
			b = append(b, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			start = i + 1
		}
	}
	return append(b, s[start:]...)
}
