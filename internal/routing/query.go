package routing

import (
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// queryParameter returns the raw value of the first parameter of that (decoded) name in a query. Parameters are
// separated by "&"; one without "=" has an empty value (WHATWG URL, application/x-www-form-urlencoded parsing).
func queryParameter(query, name string) (raw string, ok bool) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		if decodesTo(key, name) {
			return value, true
		}
	}
	return "", false
}

// nextDecoded returns the first decoded byte of s and how many bytes stand for it. "+" is a space; an invalid escape
// stands for itself. s is not empty.
func nextDecoded(s string) (byte, int) {
	switch s[0] {
	case '+':
		return ' ', 1
	case '%':
		if len(s) >= 3 {
			if b, ok := model.Unhex(s[1], s[2]); ok {
				return b, 3
			}
		}
	}
	return s[0], 1
}

// decodesTo reports whether raw decodes to want, without allocating the decoded form.
func decodesTo(raw, want string) bool {
	if len(raw) < len(want) {
		return false
	}
	for ; raw != "" && want != ""; want = want[1:] {
		b, n := nextDecoded(raw)
		if b != want[0] {
			return false
		}
		raw = raw[n:]
	}
	return raw == want
}

// decode returns the decoded form of raw, or raw itself if nothing is escaped.
func decode(raw string) string {
	if !strings.ContainsAny(raw, "%+") {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for raw != "" {
		b, n := nextDecoded(raw)
		out = append(out, b)
		raw = raw[n:]
	}
	return string(out)
}
