package main

import (
	"bytes"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/routing"
)

// This file reads HTTP/1.1 by the grammar of RFC 9110 and 9112, slowly and with regular expressions: what a request should come to is
// decided here, by code that shares nothing with the proxy's parser. Strings are bytes as Latin-1, one character a byte.

const (
	tchar   = "[!#$%&'*+.^_`|~0-9A-Za-z-]"
	text    = `[\t \x21-\x7e\x{80}-\x{ff}]`
	quoted  = `"(?:[\t \x21\x23-\x5b\x5d-\x7e\x{80}-\x{ff}]|\\` + text + `)*"`
	label   = `[A-Za-z0-9_~-]+`
	anyHost = `(?:` + label + `(?:\.` + label + `)*\.?|\[[0-9A-Fa-f:.]+\])`
)

var (
	requestLine = regexp.MustCompile(`^([A-Z_-]+) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])$`)
	statusLine  = regexp.MustCompile(`^HTTP/1\.([01]) ([1-5][0-9][0-9])(?: (` + text + `*))?$`)
	fieldLine   = regexp.MustCompile(`^(` + tchar + `+):[ \t]*(` + text + `*?)[ \t]*$`)
	authority   = regexp.MustCompile(`^(` + anyHost + `)(?::([0-9]{0,5}))?$`)
	originForm  = regexp.MustCompile(`^(/(?:[^?#%]|%[0-9A-Fa-f]{2})*)(?:\?([^#]*))?$`)
	absolute    = regexp.MustCompile(`^(?i:(https?)://)([^/?#]*)((?:/(?:[^?#%]|%[0-9A-Fa-f]{2})*)?)(?:\?([^#]*))?$`)
	foreign     = regexp.MustCompile(`^[A-Z]+ [A-Z]+ [A-Z]+$`)
	digits      = regexp.MustCompile(`^[0-9]+$`)
	chunkLine   = regexp.MustCompile(`^([0-9A-Fa-f]{1,15})((?:[ \t]*;[ \t]*` + tchar + `+(?:[ \t]*=[ \t]*(?:` + tchar + `+|` + quoted + `))?)*)$`)
	badEscape   = regexp.MustCompile(`%([0-9A-Fa-f]{2})?`)
)

// The proxy's limits.
const (
	limitLine     = 8 << 10
	limitHead     = 64 << 10
	limitFields   = 128
	limitTrailers = 8 << 10
	limitChunkExt = 256
	limitBody     = 64 << 10 // as the proxy is told, --max-body
)

type field struct{ Name, Value string }

// message is a request, or an answer, as it should be understood.
type message struct {
	Method, Target string
	Host           string
	Minor          int
	Status         int
	Fields         []field
	Trailers       []field
	Body           string
	KeepAlive      bool
	// Local is the status of a request that is answered without a backend.
	Local int
}

// verdict is what reading came to.
type verdict uint8

const (
	good       verdict = iota
	incomplete         // the bytes end within the message
	badHead
	badBody
)

// outcome is a verdict with the statuses that are right for it.
type outcome struct {
	verdict  verdict
	statuses []int
	why      string
}

func bad(why string, statuses ...int) outcome { return outcome{badHead, statuses, why} }

// latin makes each byte a character.
func latin(b []byte) string {
	r := make([]rune, len(b))
	for i, c := range b {
		r[i] = rune(c)
	}
	return string(r)
}

// head cuts the head off; ok is false if it does not end.
func head(b []byte) (lines []string, n int, ok bool) {
	i := bytes.Index(b, []byte("\r\n\r\n"))
	if i < 0 {
		return nil, 0, false
	}
	return strings.Split(latin(b[:i]), "\r\n"), i + 4, true
}

// readRequest reads the first request of b; n is where the next one begins if it is good.
func readRequest(b []byte) (m message, n int, o outcome) {
	skipped := 0
	if bytes.HasPrefix(b, []byte("\r\n")) { // RFC 9112 §2.2
		b, skipped = b[2:], 2
	}
	if len(b) == 0 {
		return m, 0, outcome{verdict: incomplete}
	}
	lines, n, ended := head(b)
	if !ended {
		// What is wrong already may be answered, or not any more.
		lines, n = strings.Split(latin(b[:min(len(b), limitHead)]), "\r\n"), len(b)
		switch {
		case len(lines[0])+2 > limitLine:
			return m, 0, bad("request line too long", 414, 400)
		case n > limitHead || len(lines) > limitFields:
			return m, 0, bad("head too large", 431, 400)
		}
		return m, 0, outcome{verdict: incomplete, statuses: []int{400, 417}}
	}
	m, framing, o := readHead(lines)
	if len(lines[0])+2 > limitLine {
		return m, 0, mostly(o, "request line too long", 414)
	}
	if n+skipped > limitHead || len(lines)-1 > limitFields {
		return m, 0, mostly(o, "head too large", 431)
	}
	if o.verdict != good {
		return m, 0, o
	}
	used, o := readBody(&m, b[n:], framing)
	return m, skipped + n + used, o
}

// mostly is the outcome of a head that breaks a limit, and perhaps rules too.
func mostly(o outcome, why string, status int) outcome {
	if o.verdict != good {
		return bad(why+" and "+o.why, append(o.statuses, status)...)
	}
	return bad(why, status)
}

// readFields reads field lines.
func readFields(lines []string) ([]field, bool) {
	var fields []field
	for _, l := range lines {
		f := fieldLine.FindStringSubmatch(l)
		if f == nil {
			return nil, false
		}
		fields = append(fields, field{f[1], f[2]})
	}
	return fields, true
}

func values(fields []field, name string) (all []string) {
	for _, f := range fields {
		if strings.EqualFold(f.Name, name) {
			all = append(all, f.Value)
		}
	}
	return all
}

// members are those of a list over all its field lines.
func members(fields []field, name string) (all []string) {
	for _, v := range values(fields, name) {
		for _, m := range strings.Split(v, ",") {
			all = append(all, strings.ToLower(strings.Trim(m, " \t")))
		}
	}
	return all
}

// framing is how a body ends: length -1 is chunked, -2 with the connection.
type framing struct{ length int64 }

const (
	chunked    = -1
	untilClose = -2
)

func readHead(lines []string) (m message, f framing, o outcome) {
	l := requestLine.FindStringSubmatch(lines[0])
	if foreign.MatchString(lines[0]) {
		return m, f, outcome{verdict: incomplete, statuses: []int{400}} // no answer will do: it is no HTTP
	}
	if l == nil {
		return m, f, bad("request line", 400)
	}
	m.Method = l[1]
	fields, ok := readFields(lines[1:])
	if l[3] != "1" || l[4] > "1" {
		return m, f, bad("version", 400)
	}
	m.Minor = int(l[4][0] - '0')
	if !ok {
		return m, f, bad("field line", 400)
	}
	m.Fields = fields
	hosts := values(fields, "host")
	switch {
	case len(hosts) > 1, len(hosts) == 0 && m.Minor == 1, len(hosts) == 1 && !validAuthority(hosts[0]):
		return m, f, bad("Host", 400)
	case len(hosts) == 1:
		m.Host = hosts[0]
	}
	if o := m.readTarget(l[2]); o.verdict != good {
		return m, f, o
	}
	f, o = readFraming(fields, m.Minor)
	if o.verdict != good {
		return m, f, o
	}
	if m.Method == "CONNECT" && f.length != 0 {
		return m, f, bad("CONNECT with content", 400)
	}
	if m.Minor == 1 {
		for _, e := range members(fields, "expect") {
			if e != "100-continue" && e != "" {
				return m, f, bad("expectation", 417)
			}
		}
	}
	options := members(fields, "connection")
	m.KeepAlive = !slices.Contains(options, "close") && (m.Minor == 1 || slices.Contains(options, "keep-alive"))
	return m, f, o
}

func validAuthority(s string) bool {
	a := authority.FindStringSubmatch(s)
	if a == nil {
		return false
	}
	if port, _ := strconv.Atoi(a[2]); port > 65535 {
		return false
	}
	if a[1][0] == '[' {
		ip, err := netip.ParseAddr(a[1][1 : len(a[1])-1])
		return err == nil && ip.Is6()
	}
	return true
}

// readTarget settles what the backend is to be asked for.
func (m *message) readTarget(target string) outcome {
	invalid := bad("target", 400)
	if m.Method == "CONNECT" {
		a := authority.FindStringSubmatch(target)
		if a == nil || a[2] == "" || !validAuthority(target) || m.Host != "" && !strings.EqualFold(target, m.Host) {
			return invalid
		}
		m.Local = 405
		return outcome{}
	}
	if target == "*" {
		if m.Method != "OPTIONS" {
			return invalid
		}
		m.Local = 204
		return outcome{}
	}
	path, query := "", ""
	if o := originForm.FindStringSubmatch(target); o != nil {
		path, query = o[1], o[2]
	} else if a := absolute.FindStringSubmatch(target); a != nil {
		usual := map[string]string{"http": "80", "https": "443"}[strings.ToLower(a[1])]
		if !validAuthority(a[2]) || m.Host != "" && !sameAuthority(a[2], m.Host, usual) {
			return invalid
		}
		m.Host, path, query = a[2], a[3], a[4]
		if path == "" && m.Method == "OPTIONS" && !strings.Contains(target, "?") {
			m.Local = 204
			return outcome{}
		}
		if path == "" {
			path = "/"
		}
	} else {
		return invalid
	}
	normal, err := routing.NormalizePath(path)
	if err != nil {
		m.Local = 400 // well-formed, but ambiguous
		return outcome{}
	}
	m.Target = escaped(path)
	if routing.HasDotSegment(path) {
		m.Target = normal
	}
	if strings.Contains(target, "?") {
		m.Target += "?" + escaped(query)
	}
	return outcome{}
}

func sameAuthority(a, b, usual string) bool {
	x, y := authority.FindStringSubmatch(a), authority.FindStringSubmatch(b)
	for _, p := range []*string{&x[2], &y[2]} {
		if *p == "" {
			*p = usual
		}
	}
	return strings.EqualFold(a, b) || strings.EqualFold(x[1], y[1]) && x[2] == y[2]
}

// escaped spells a path or query with the bytes that RFC 3986 gives it.
func escaped(s string) string {
	s = badEscape.ReplaceAllStringFunc(s, func(e string) string {
		if len(e) == 1 {
			return "%25"
		}
		return e
	})
	return regexp.MustCompile("[\"<>\\[\\\\\\]^`{|}]").ReplaceAllStringFunc(s, func(c string) string {
		return "%" + strings.ToUpper(strconv.FormatInt(int64(c[0]), 16))
	})
}

// readFraming is RFC 9112 §6.3; length 0 stands for no body too.
func readFraming(fields []field, minor int) (f framing, o outcome) {
	lengths, codings := values(fields, "content-length"), members(fields, "transfer-encoding")
	if len(codings) > 0 {
		last := codings[len(codings)-1]
		count := 0
		for _, c := range codings {
			if c == "chunked" {
				count++
			}
		}
		switch {
		case minor == 0 || len(lengths) > 0 || last != "chunked" || count > 1 || slices.Contains(codings, ""):
			return f, bad("Transfer-Encoding", 400)
		case len(codings) > 1:
			return f, bad("Transfer-Encoding", 501) // RFC 9112 §6.1
		}
		f.length = chunked
		return f, o
	}
	for i, l := range lengths {
		n, err := strconv.ParseInt(l, 10, 64)
		if !digits.MatchString(l) || err != nil || i > 0 && l != lengths[0] {
			return f, bad("Content-Length", 400)
		}
		f.length = n
	}
	return f, o
}

// readBody reads the body from b and says how much of b it was.
func readBody(m *message, b []byte, f framing) (n int, o outcome) {
	switch {
	case f.length == untilClose:
		m.Body = string(b)
		return len(b), o
	case f.length > limitBody && m.Status == 0:
		return 0, bad("content too large", 413) // RFC 9110 §15.5.14
	case f.length >= 0:
		if int64(len(b)) < f.length {
			return 0, outcome{verdict: incomplete, statuses: []int{400}}
		}
		m.Body = string(b[:f.length])
		return int(f.length), o
	}
	malformed := outcome{badBody, []int{400, 431}, "chunks"}
	var body []byte
	overhead := 0
	for {
		i := bytes.Index(b[n:], []byte("\r\n"))
		if i < 0 {
			return 0, outcome{verdict: incomplete, statuses: []int{400}}
		}
		c := chunkLine.FindStringSubmatch(latin(b[n : n+i]))
		if c == nil || i > limitChunkExt {
			return 0, malformed
		}
		n += i + 2
		size, _ := strconv.ParseInt(c[1], 16, 64)
		if overhead += i; overhead > limitTrailers { // generous: nothing of the corpus is in between
			return 0, malformed
		}
		if size == 0 {
			break
		}
		if int64(len(b)-n) < size+2 {
			if int64(len(b)-n) > size && b[int64(n)+size] != '\r' {
				return 0, malformed
			}
			return 0, outcome{verdict: incomplete, statuses: []int{400}}
		}
		if body = append(body, b[n:n+int(size)]...); len(body) > limitBody && m.Status == 0 {
			return 0, outcome{badBody, []int{413}, "content too large"}
		}
		n += int(size)
		if string(b[n:n+2]) != "\r\n" {
			return 0, malformed
		}
		n += 2
	}
	m.Body = string(body)
	if bytes.HasPrefix(b[n:], []byte("\r\n")) {
		return n + 2, o
	}
	lines, used, ended := head(b[n:])
	if !ended {
		return 0, outcome{verdict: incomplete, statuses: []int{400, 431}}
	}
	trailers, ok := readFields(lines)
	if !ok || used > limitTrailers || len(lines) > 64 {
		return 0, malformed
	}
	m.Trailers = trailers
	return n + used, o
}

// readAnswer reads the answer to a request of the given method from b, with whose end the connection ends if closed.
func readAnswer(method string, b []byte) (m message, n int, o outcome) {
	for interim := 0; ; interim++ {
		lines, used, ended := head(b[n:])
		if !ended {
			return m, n, outcome{verdict: badHead, why: "no end of the head"}
		}
		s := statusLine.FindStringSubmatch(lines[0])
		fields, ok := readFields(lines[1:])
		if s == nil || !ok || len(lines[0])+2 > limitLine || used > limitHead || len(lines)-1 > limitFields {
			return m, n, bad("head")
		}
		m = message{Fields: fields}
		m.Minor = int(s[1][0] - '0')
		m.Status, _ = strconv.Atoi(s[2])
		f, o := readFraming(fields, m.Minor)
		if o.verdict != good {
			return m, n, o
		}
		n += used
		options := members(fields, "connection")
		m.KeepAlive = !slices.Contains(options, "close") && (m.Minor == 1 || slices.Contains(options, "keep-alive"))
		switch {
		case m.Status == 101 || m.Status < 200 && interim >= 32:
			return m, n, bad("interim answers")
		case m.Status < 200:
			m.KeepAlive = m.KeepAlive && f.length == 0
			continue
		case m.Status == 204:
			m.KeepAlive = m.KeepAlive && f.length == 0
			return m, n, o
		case m.Status == 304 || method == "HEAD":
			return m, n, o
		}
		if len(values(fields, "content-length")) == 0 && f.length == 0 {
			f.length, m.KeepAlive = untilClose, false
		}
		used, o = readBody(&m, b[n:], f)
		if o.verdict != good {
			o.verdict = badBody
		}
		return m, n + used, o
	}
}
