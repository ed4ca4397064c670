package model

import (
	"fmt"
	"net/textproto"
	"strings"
)

// Session keeps a client's requests of a rule at the backend (of a split: the leaf) and the endpoint that served the
// first of them (Gateway API sessionPersistence, GEP-1619). It belongs to one rule: rules never share sessions, except
// with the copies of them that steps of a release add (CopyName).
type Session struct {
	// Name is the cookie's or the header field's: a token (RFC 9110 §5.6.2).
	Name string `json:"name"`
	// Type is where the token is carried.
	Type SessionType `json:"type"`
	// AbsoluteTimeout is how long a session lasts; zero means as long as its endpoint.
	AbsoluteTimeout Duration `json:"absoluteTimeout,omitzero"`
	// Permanent has the client keep the cookie for AbsoluteTimeout, which must be set, rather than until it ends.
	Permanent bool `json:"permanent,omitempty"`
	// Salt is a secret text, the same wherever the rule is served. Tokens are proved with it. Empty means no salt.
	Salt string `json:"salt,omitempty"`
}

// SessionType is the place that carries a session's token.
type SessionType string

const (
	// Cookie is Set-Cookie in answers and Cookie in requests (RFC 6265).
	Cookie SessionType = "cookie"
	// Header is a field of one name, in answers as in requests.
	Header SessionType = "header"
)

// CopyName is the name of a copy of a named rule, for those of its requests that a step of a release sends to the new
// version. The number tells the copies in a route apart. Long names are cut to what the Gateway API allows.
func CopyName(rule string, number int) string {
	const longest = 253
	suffix := fmt.Sprintf("%s%d", copyMark, number)
	return rule[:min(len(rule), longest-len(suffix))] + suffix
}

const copyMark = "-canary-"

// copyOf returns the name of the rule that a name says a rule is a copy of, "" if it says nothing like that.
func copyOf(name string) string {
	at := strings.LastIndex(name, copyMark)
	if at < 0 || at+len(copyMark) == len(name) || strings.Trim(name[at+len(copyMark):], "0123456789") != "" {
		return ""
	}
	return name[:at]
}

// SessionRule returns the index, among the rules of one route, of the rule that owns the sessions of rule i: itself, or
// the one that it is a copy of (CopyName). So a client stays with its version when a release goes on from such a copy
// to weights.
func SessionRule(rules []Rule, i int) int {
	if of := copyOf(rules[i].Name); of != "" && rules[i].Session != nil {
		for k := range rules {
			if rules[k].Name == of && rules[k].Session != nil {
				return k
			}
		}
	}
	return i
}

// SessionNameFault returns what is wrong with the name of a session, or "".
func SessionNameFault(kind SessionType, name string) string {
	switch {
	case name == "":
		return "is empty"
	case strings.ContainsFunc(name, func(c rune) bool { return !tokenRune(c) }):
		return "has characters that the name of a cookie or a header cannot have"
	case kind == Header && reservedField(name):
		return "is a header that has another use"
	}
	return ""
}

// reservedField reports whether a header field has another use. Some backends read "_" as "-".
func reservedField(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
	for _, prefix := range []string{"X-Forwarded-", "Access-Control-", "Grpc-", "Proxy-", "Sec-", "If-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return reservedFields[name]
}

func tokenRune(c rune) bool {
	return c > ' ' && c < 0x7f && !strings.ContainsRune("\"(),/:;<=>?@[\\]{}", c)
}

// reservedFields are header fields that a token would break: fields that frame messages, carry cookies or credentials,
// describe proxies, or control how an answer is cached or shown.
var reservedFields = map[string]bool{
	"Connection": true, "Content-Encoding": true, "Content-Length": true, "Content-Type": true, "Cookie": true, "Date": true, "Expect": true,
	"Host": true, "Http2-Settings": true, "Keep-Alive": true, "Location": true, "Proxy-Connection": true, "Set-Cookie": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
	"Forwarded": true, "X-Forwarded-Port": true, "X-Real-Ip": true, "Via": true, "Weir-Via": true, "Weir-Mirrored": true, "Authorization": true,
	"Www-Authenticate": true, "Cache-Control": true, "Vary": true, "Etag": true, "Expires": true, "Last-Modified": true, "Age": true, "Refresh": true,
	"Strict-Transport-Security": true, "Content-Security-Policy": true, "Content-Range": true, "Range": true, "Retry-After": true, "Origin": true,
	"Max-Forwards": true,
}

func (v *validator) session(where Ref, field string, s *Session) {
	if s == nil {
		return
	}
	if s.Type != Cookie && s.Type != Header {
		v.fail(where, field+".type", "%q is neither %q nor %q", s.Type, Cookie, Header)
	}
	if fault := SessionNameFault(s.Type, s.Name); fault != "" {
		v.fail(where, field+".name", "%q %s", s.Name, fault)
	}
	if s.AbsoluteTimeout < 0 {
		v.fail(where, field, "has a negative timeout")
	}
	if s.Permanent && (s.Type != Cookie || s.AbsoluteTimeout == 0) {
		v.fail(where, field+".permanent", "is set without a cookie that has an absolute timeout")
	}
}
