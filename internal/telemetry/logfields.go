package telemetry

import (
	"slices"
	"strings"
)

// logField is a header field that lines have.
type logField struct {
	name   string // in lower case
	key    string // the name as a member of a JSON object, with the colon
	masked bool
}

// mask stands for a value that is a secret.
const mask = "***"

// secrets are header fields whose values are or may be credentials by which somebody else could act as the client.
var secrets = []string{
	"api-key", "authorization", "cookie", "proxy-authorization", "set-cookie", "x-access-token", "x-amz-security-token", "x-api-key", "x-auth-token",
	"x-csrf-token", "x-forwarded-access-token", "x-goog-api-key", "x-goog-iap-jwt-assertion", "x-id-token", "x-vault-token", "x-xsrf-token",
}

// Secret reports whether a header field's values are masked unless AccessLogOptions.Unmasked names it.
func Secret(name string) bool { return slices.Contains(secrets, strings.ToLower(name)) }

func logFields(names, unmasked []string) []logField {
	var out []logField
	for _, name := range names {
		f := logField{name: strings.ToLower(name)}
		if slices.ContainsFunc(out, func(o logField) bool { return o.name == f.name }) || len(out) == MaxLogFields {
			continue
		}
		f.key = string(appendJSONString(nil, f.name)) + ":"
		f.masked = Secret(name) && !slices.ContainsFunc(unmasked, func(u string) bool { return strings.EqualFold(u, name) })
		out = append(out, f)
	}
	return out
}

func namesOf(fields []logField) []string {
	var out []string
	for _, f := range fields {
		out = append(out, f.name)
	}
	return out
}

// RequestFields are the names of the header fields of requests that records are to have, in lower case; Field.Index counts them.
func (l *AccessLog) RequestFields() []string {
	if l == nil {
		return nil
	}
	return namesOf(l.request)
}

// ResponseFields are the same of answers.
func (l *AccessLog) ResponseFields() []string {
	if l == nil {
		return nil
	}
	return namesOf(l.response)
}

// ofOne is how many of the first lines are of one field.
func ofOne(lines []Field) int {
	n := 1
	for n < len(lines) && lines[n].Index == lines[0].Index {
		n++
	}
	return n
}

// appendMembers appends an object with the fields that are present; begin comes before its first member.
func appendMembers(b []byte, begin string, fields []logField, lines []Field, most int) []byte {
	if len(lines) == 0 {
		return b
	}
	for b = append(b, begin...); len(lines) > 0; b = append(b, ',') {
		n := ofOne(lines)
		f := &fields[lines[0].Index]
		b = append(b, f.key...)
		b = append(b, '"')
		if f.masked {
			b = append(b, mask...)
		} else {
			b = appendJoined(b, lines[:n], most, jsonSize, appendJSONText)
		}
		b = append(b, '"')
		lines = lines[n:]
	}
	b[len(b)-1] = '}'
	return b
}

// appendQuotedFields appends the fields that are present as name="value".
func appendQuotedFields(b []byte, prefix string, fields []logField, lines []Field, most int) []byte {
	for len(lines) > 0 {
		n := ofOne(lines)
		f := &fields[lines[0].Index]
		b = append(b, prefix...)
		b = append(b, f.name...)
		b = append(b, '=', '"')
		if f.masked {
			b = append(b, mask...)
		} else {
			b = appendJoined(b, lines[:n], most, quotedSize, appendQuotedText)
		}
		b = append(b, '"')
		lines = lines[n:]
	}
	return b
}

// appendJoined appends the lines of a field, with commas between them, together not longer than most; 0 means no bound.
// The bytes that do not fit are counted.
func appendJoined(b []byte, lines []Field, most int, size func(s string) (n, encoded int), encode func(b []byte, s string) []byte) []byte {
	begin, left := len(b), 0
	for i := range lines {
		v := lines[i].Value
		if left > 0 {
			left += len(", ") + len(v)
			continue
		}
		if i > 0 {
			b = append(b, ", "...)
		}
		room := 0
		if most > 0 {
			if room = most - (len(b) - begin); room <= 0 {
				left = len(v)
				continue
			}
		}
		kept := fit(v, room, size)
		b = encode(b, v[:kept])
		left = len(v) - kept
	}
	if left > 0 {
		b = appendCut(b, left)
	}
	return b
}

func appendJSONText(b []byte, s string) []byte {
	at := len(b)
	b = appendJSONString(b, s)
	n := copy(b[at:], b[at+1:len(b)-1]) // without the quotes
	return b[:at+n]
}

func appendQuotedText(b []byte, s string) []byte { return appendQuoted(b, s, 0) }
