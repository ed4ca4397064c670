package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// seed is a request that somebody might misread, with the section that says how it is to be read.
type seed struct {
	section string // of RFC 9112, or of RFC 9110 where it begins with "9110"
	name    string
	want    int // the status of the refusal; 0: it is forwarded; -1: it is cut off
	bytes   string
}

const (
	hostLine = "Host: a.example\r\n"
	postHead = "POST /p HTTP/1.1\r\n" + hostLine
)

// get is a GET with the target; with adds field lines to one; post frames a body.
func get(target string) string { return "GET " + target + " HTTP/1.1\r\n" + hostLine + "\r\n" }
func with(lines string) string { return "GET /f HTTP/1.1\r\n" + hostLine + lines + "\r\n" }
func post(lines, body string) string {
	return postHead + lines + "\r\n" + body
}
func line(l string) string      { return l + "\r\n" + hostLine + "\r\n" }
func host(lines string) string  { return "GET /h HTTP/1.1\r\n" + lines + "\r\n" }
func chunks(body string) string { return post("Transfer-Encoding: chunked\r\n", body) }

const hello = "5\r\nhello\r\n0\r\n\r\n"

// seeds are written from the two documents.
func seeds() []seed {
	all := []seed{
		// Request line.
		{"2.2", "plain", 0, get("/")},
		{"2.2", "one empty line first", 0, "\r\n" + get("/e")},
		{"2.2", "two empty lines first", 400, "\r\n\r\n" + get("/e")},
		{"2.2", "bare LF first", 400, "\n" + get("/e")},
		{"2.2", "bare LF ends the request line", 400, "GET / HTTP/1.1\n" + hostLine + "\r\n"},
		{"2.2", "bare LF everywhere", 400, "GET / HTTP/1.1\nHost: a.example\n\n"},
		{"2.2", "bare LF ends the head", 400, "GET / HTTP/1.1\r\n" + hostLine + "\n"},
		{"2.2", "bare CR ends the request line", 400, "GET / HTTP/1.1\rHost: a.example\r\n\r\n"},
		{"2.2", "bare CR in a value", 400, with("X: a\rY: b\r\n")},
		{"2.2", "CR before CRLF", 400, with("X: a\r\r\n")},
		{"2.2", "whitespace before the first field", 400, "GET / HTTP/1.1\r\n " + hostLine + "\r\n"},
		{"2.2", "NUL first", 400, "\x00" + get("/")},
		{"2.2", "TLS hello", 400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"},
		{"2.3", "HTTP/0.9", 400, "GET /\r\n\r\n"},
		{"2.3", "HTTP/0.9 with fields", 400, "GET /\r\n" + hostLine + "\r\n"},
		{"2.3", "HTTP/0.9 spelled out", 400, line("GET / HTTP/0.9")},
		{"2.3", "HTTP/1.0", 0, "GET / HTTP/1.0\r\n" + hostLine + "\r\n"},
		{"2.3", "HTTP/1.0 without Host", 0, "GET /10 HTTP/1.0\r\n\r\n"},
		{"2.3", "HTTP/1.0 kept alive", 0, "GET / HTTP/1.0\r\n" + hostLine + "Connection: keep-alive\r\n\r\n"},
		{"2.3", "HTTP/1.2", 400, line("GET / HTTP/1.2")},
		{"2.3", "HTTP/2.0", 400, line("GET / HTTP/2.0")},
		{"2.3", "HTTP/3.0", 400, line("GET / HTTP/3.0")},
		{"2.3", "HTTP/1.10", 400, line("GET / HTTP/1.10")},
		{"2.3", "HTTP/01.1", 400, line("GET / HTTP/01.1")},
		{"2.3", "HTTP/1", 400, line("GET / HTTP/1")},
		{"2.3", "HTTP/1,1", 400, line("GET / HTTP/1,1")},
		{"2.3", "HTTP /1.1", 400, line("GET / HTTP /1.1")},
		{"2.3", "lower-case version", 400, line("GET / http/1.1")},
		{"2.3", "mixed-case version", 400, line("GET / Http/1.1")},
		{"2.3", "HTTPS/1.1", 400, line("GET / HTTPS/1.1")},
		{"2.3", "version with a word behind", 400, line("GET / HTTP/1.1 x")},
		{"2.3", "ICY", 400, line("GET / ICY/1.1")},
		{"3", "two spaces behind the method", 400, line("GET  / HTTP/1.1")},
		{"3", "two spaces behind the target", 400, line("GET /  HTTP/1.1")},
		{"3", "space behind the version", 400, line("GET / HTTP/1.1 ")},
		{"3", "tab behind the method", 400, line("GET\t/ HTTP/1.1")},
		{"3", "tab behind the target", 400, line("GET /\tHTTP/1.1")},
		{"3", "vertical tab behind the method", 400, line("GET\v/ HTTP/1.1")},
		{"3", "form feed behind the target", 400, line("GET /\fHTTP/1.1")},
		{"3", "space before the method", 400, line(" GET / HTTP/1.1")},
		{"3", "space in the target", 400, line("GET /a b HTTP/1.1")},
		{"3", "method only", 400, line("GET")},
		{"3", "no target", 400, line("GET HTTP/1.1")},
		{"3", "request in the target", 400, line("GET /a HTTP/1.1 GET /b HTTP/1.1")},
		{"3.1", "extension method", 0, line("PURGE / HTTP/1.1")},
		{"3.1", "unheard-of method", 0, line("FROBNICATE / HTTP/1.1")},
		{"3.1", "method with hyphen", 0, line("M-SEARCH / HTTP/1.1")},
		{"3.1", "TRACE", 0, line("TRACE / HTTP/1.1")},
		{"3.1", "lower-case method", 400, line("get / HTTP/1.1")},
		{"3.1", "mixed-case method", 400, line("Get / HTTP/1.1")},
		{"3.1", "method with digits and marks", 400, line("G3T!#$%&'*+.^`|~ / HTTP/1.1")},
		{"3.1", "method with colon", 400, line("GET: / HTTP/1.1")},
		{"3.1", "method with NUL", 400, line("GE\x00T / HTTP/1.1")},
		{"3.1", "method with a high byte", 400, line("G\xc9T / HTTP/1.1")},
		{"3.1", "method in quotes", 400, line("\"GET\" / HTTP/1.1")},
		{"3.1", "empty method", 400, line("/ HTTP/1.1")},
		{"3", "request line that is too long", 414, get("/" + strings.Repeat("a", 9000))},
		{"3", "request line that nearly is", 0, get("/" + strings.Repeat("a", 8100))},
		{"3", "query that is too long", 414, get("/?" + strings.Repeat("b", 20000))},
		{"3", "method that is too long", 414, strings.Repeat("M", 9000) + " / HTTP/1.1\r\n" + hostLine + "\r\n"},
		// Target.
		{"3.2.1", "query", 0, get("/a/b?x=1&y=2")},
		{"3.2.1", "question marks", 0, get("/??a?b")},
		{"3.2.1", "two slashes first", 0, get("//a/b")},
		{"3.2.1", "authority as a path", 0, get("//b.example:80/a")},
		{"3.2.1", "colon first", 0, get("/:80/@")},
		{"3.2.1", "dot segments", 0, get("/a/../b/./c")},
		{"3.2.1", "dot segments above the root", 0, get("/../../a")},
		{"3.2.1", "escaped dot segments", 0, get("/a/%2e%2E/b")},
		{"3.2.1", "hidden dot segments", 400, get("/a/..%2fb")},
		{"3.2.1", "doubly escaped dot segments", 400, get("/%252e%252e/b")},
		{"3.2.1", "dot segment with parameter", 400, get("/a/..;/b")},
		{"3.2.1", "dot segment with backslash", 400, get("/a/..\\b")},
		{"3.2.1", "escaped slash", 0, get("/a%2Fb")},
		{"3.2.1", "escaped NUL", 400, get("/a%00b")},
		{"3.2.1", "escaped CRLF", 0, get("/a%0d%0aX:%20y")},
		{"3.2.1", "overlong UTF-8", 0, get("/%c0%ae%c0%ae/a")},
		{"3.2.1", "bytes beyond RFC 3986 in the path", 0, get("/\"<>[]^`{|}")},
		{"3.2.1", "bytes beyond RFC 3986 in the query", 0, get("/?a=\"<>[]^`{|}\\")},
		{"3.2.1", "stray percent in the query", 0, get("/?a=100%&b=%zz&c=%4")},
		{"3.2.1", "stray percent in the path", 400, get("/100%")},
		{"3.2.1", "half an escape", 400, get("/%4")},
		{"3.2.1", "no hexadecimal escape", 400, get("/%zz")},
		{"3.2.1", "unicode escape", 400, get("/%u002e")},
		{"3.2", "fragment", 400, get("/a#b")},
		{"3.2", "fragment in the query", 400, get("/a?b#c")},
		{"3.2", "NUL in the target", 400, get("/a\x00b")},
		{"3.2", "DEL in the target", 400, get("/a\x7fb")},
		{"3.2", "control byte in the target", 400, get("/a\x1bb")},
		{"3.2", "raw UTF-8 in the target", 400, get("/\xc3\xa9")},
		{"3.2", "high byte in the query", 400, get("/?\xff")},
		{"3.2", "relative path", 400, get("a/b")},
		{"3.2", "query alone", 400, get("?a")},
		{"3.2", "backslash first", 400, get("\\a")},
		{"3.2", "other scheme", 400, get("ftp://a.example/")},
		{"3.2", "javascript", 400, get("javascript:alert(1)")},
		{"3.2", "data", 400, get("data:,x")},
		{"3.2.2", "absolute form", 0, get("http://a.example/abs?q")},
		{"3.2.2", "absolute form in capitals", 0, get("HTTP://A.EXAMPLE/abs")},
		{"3.2.2", "absolute form with https", 0, get("https://a.example/abs")},
		{"3.2.2", "absolute form with the usual port", 0, get("http://a.example:80/abs")},
		{"3.2.2", "absolute form without path", 0, get("http://a.example")},
		{"3.2.2", "absolute form with a query alone", 0, get("http://a.example?x=/y")},
		{"3.2.2", "absolute form of another host", 400, get("http://b.example/abs")},
		{"3.2.2", "absolute form of another port", 400, get("http://a.example:81/abs")},
		{"3.2.2", "absolute form with user", 400, get("http://u:p@a.example/abs")},
		{"3.2.2", "absolute form without host", 400, get("http:///abs")},
		{"3.2.2", "absolute form with one slash", 400, get("http:/abs")},
		{"3.2.2", "absolute form with backslash", 400, get("http://a.example\\@b.example/")},
		{"3.2.2", "absolute form with a bad port", 400, get("http://a.example:x/")},
		{"3.2.2", "absolute form with fragment", 400, get("http://a.example/#x")},
		{"3.2.2", "absolute form without Host", 400, "GET http://a.example/ HTTP/1.1\r\n\r\n"},
		{"3.2.2", "absolute form in 1.0 without Host", 0, "GET http://a.example/x HTTP/1.0\r\n\r\n"},
		{"3.2.2", "absolute form and two Hosts", 400, "GET http://a.example/ HTTP/1.1\r\n" + hostLine + hostLine + "\r\n"},
		{"3.2.3", "authority form", 405, "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n"},
		{"3.2.3", "authority form to another host", 400, "CONNECT b.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n"},
		{"3.2.3", "authority form without port", 400, "CONNECT a.example HTTP/1.1\r\nHost: a.example\r\n\r\n"},
		{"3.2.3", "authority form with an empty port", 400, "CONNECT a.example: HTTP/1.1\r\nHost: a.example:\r\n\r\n"},
		{"3.2.3", "CONNECT to a path", 400, "CONNECT /a HTTP/1.1\r\n" + hostLine + "\r\n"},
		{"3.2.3", "CONNECT to a URI", 400, "CONNECT http://a.example/ HTTP/1.1\r\n" + hostLine + "\r\n"},
		{"3.2.3", "CONNECT with content", 400, "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nContent-Length: 3\r\n\r\nabc"},
		{"3.2.3", "authority form with GET", 400, get("a.example:80")},
		{"3.2.4", "asterisk form", 204, line("OPTIONS * HTTP/1.1")},
		{"3.2.4", "absolute form for asterisk", 204, line("OPTIONS http://a.example HTTP/1.1")},
		{"3.2.4", "asterisk with GET", 400, line("GET * HTTP/1.1")},
		{"3.2.4", "asterisk with more", 400, line("OPTIONS *a HTTP/1.1")},
		{"3.2.4", "asterisk with query", 400, line("OPTIONS *?a HTTP/1.1")},
		{"3.2.4", "OPTIONS of a path", 0, line("OPTIONS /a HTTP/1.1")},
		// Host.
		{"3.2", "no Host", 400, "GET / HTTP/1.1\r\n\r\n"},
		{"3.2", "no Host but another field", 400, "GET / HTTP/1.1\r\nX: y\r\n\r\n"},
		{"3.2", "two Hosts", 400, host("Host: a.example\r\nHost: b.example\r\n")},
		{"3.2", "two equal Hosts", 400, host("Host: a.example\r\nhost: a.example\r\n")},
		{"3.2", "two Hosts in 1.0", 400, "GET / HTTP/1.0\r\nHost: a.example\r\nHost: b.example\r\n\r\n"},
		{"3.2", "second Host behind fields", 400, host("Host: a.example\r\nX: y\r\nHOST: b.example\r\n")},
		{"3.2", "folded Host", 400, host("Host: a.example\r\n b.example\r\n")},
		{"3.2", "space before Host's colon", 400, host("Host : a.example\r\n")},
		{"3.2", "Host with a space before it behind Host", 400, host("Host: a.example\r\n Host: b.example\r\n")},
		{"3.2", "Host is named in Connection", 0, host("Host: a.example\r\nConnection: host\r\n")},
	}
	for _, c := range []string{"", " ", "a b", "a\tb", "a, b", "a/b", "a?b", "a#b", "u@a", "a\\b", "\"a\"", "<a>", "a\xffb", "a\x00b", "\xc3\xa9", ":80",
		"a:65536", "a:000080", "a:80:80", "a:-1", "a:+80", "a:80a", "a: 80", "[::1", "::1", "[]", "[1.2.3.4]", "[fe80::1%25eth0]", "[::1]a", "[::1]:x",
		"http://a", "a;b", "a=b", "a%41", "(a)", "*", "a'b", "a,", "a:0x50", "[v1.a]", "a$b"} {
		all = append(all, seed{"3.2", "Host " + c, 400, host("Host: " + c + "\r\n")})
	}
	for _, c := range []string{"a", "A.Example", "a.example.", "a:80", "a:", "a:65535", "[::1]", "[2001:db8::1]:8080", "127.0.0.1", "a_b", "xn--bcher-kva.example", "-a-", "0", "a~b"} {
		all = append(all, seed{"3.2", "Host " + c, 0, host("Host: " + c + "\r\n")})
	}
	// Fields.
	for _, c := range []struct {
		section, name string
		want          int
		lines         string
	}{
		{"5", "empty value", 0, "X:\r\n"},
		{"5", "whitespace as value", 0, "X: \t \r\n"},
		{"5", "whitespace around", 0, "X:\t a b \t\r\n"},
		{"5", "colons in value", 0, "X: a: b: c\r\n"},
		{"5", "name of marks", 0, "!#$%&'*+-.^_`|~9z: a\r\n"},
		{"5", "underscore in name", 0, "X_Y: a\r\n"},
		{"5", "underscore for hyphen in a framing field", 0, "Content_Length: 5\r\nTransfer_Encoding: chunked\r\n"},
		{"5", "repeated field", 0, "X: a\r\nx: b\r\nX: a\r\n"},
		{"5", "repeated cookie", 0, "Cookie: a=b\r\nCookie: c=d\r\n"},
		{"5", "long value", 0, "X: " + strings.Repeat("v", 6000) + "\r\n"},
		{"5", "as many fields as allowed", 0, strings.Repeat("X: y\r\n", 127)},
		{"5.4", "too many fields", 431, strings.Repeat("X: y\r\n", 128)},
		{"5.4", "far too many fields", 431, strings.Repeat("X: y\r\n", 5000)},
		{"5.4", "value too large", 431, "X: " + strings.Repeat("v", 70000) + "\r\n"},
		{"5.4", "name too large", 431, strings.Repeat("n", 70000) + ": a\r\n"},
		{"5.1", "space before colon", 400, "X : a\r\n"},
		{"5.1", "tab before colon", 400, "X\t: a\r\n"},
		{"5.1", "no colon", 400, "X\r\n"},
		{"5.1", "no name", 400, ": a\r\n"},
		{"5.1", "space in name", 400, "X Y: a\r\n"},
		{"5.1", "NUL in name", 400, "X\x00: a\r\n"},
		{"5.1", "high byte in name", 400, "X\xe9: a\r\n"},
		{"5.1", "name in quotes", 400, "\"X\": a\r\n"},
		{"5.1", "name in brackets", 400, "X[]: a\r\n"},
		{"5.1", "slash in name", 400, "X/Y: a\r\n"},
		{"5.1", "second request line as a field", 400, "GET /b HTTP/1.1\r\n"},
		{"5.2", "folded by space", 400, "X: a\r\n b\r\n"},
		{"5.2", "folded by tab", 400, "X: a\r\n\tb\r\n"},
		{"5.2", "folded to nothing", 400, "X: a\r\n \r\n"},
		{"5.2", "folded at once", 400, "X:\r\n a\r\n"},
		{"9110 5.5", "high bytes", 0, "X: \x80\xff caf\xc3\xa9\r\n"},
		{"9110 5.5", "NUL", 400, "X: a\x00b\r\n"},
		{"9110 5.5", "DEL", 400, "X: a\x7fb\r\n"},
		{"9110 5.5", "vertical tab", 400, "X: a\vb\r\n"},
		{"9110 5.5", "form feed before", 400, "X:\fa\r\n"},
		{"9110 5.5", "escape byte", 400, "X: \x1b[2J\r\n"},
		{"9110 5.5", "LF", 400, "X: a\nY: b\r\n"},
		{"9110 5.5", "LF and a framing field", 400, "X: a\nContent-Length: 5\r\n"},
		{"9110 5.5", "CR and a framing field", 400, "X: a\rTransfer-Encoding: chunked\r\n"},
		// Connection and what belongs to it.
		{"9110 7.6.1", "Connection names a field", 0, "Connection: X-Secret\r\nX-Secret: a\r\nX-Other: b\r\n"},
		{"9110 7.6.1", "Connection names Forwarded", 0, "Connection: x-forwarded-for, forwarded, via\r\nX-Forwarded-For: 1.2.3.4\r\n"},
		{"9110 7.6.1", "Connection names Content-Length", 0, "Connection: content-length\r\nContent-Length: 0\r\n"},
		{"9110 7.6.1", "Connection names Transfer-Encoding", 0, "Connection: transfer-encoding\r\n"},
		{"9110 7.6.1", "Connection names Authorization", 0, "Connection: close, authorization\r\nAuthorization: Basic x\r\n"},
		{"9110 7.6.1", "Connection with empty members", 0, "Connection: ,, keep-alive , ,\r\n"},
		{"9110 7.6.1", "several Connections", 0, "Connection: keep-alive\r\nConnection: X-A\r\nX-A: b\r\n"},
		{"9110 7.6.1", "close and keep-alive", 0, "Connection: keep-alive, close\r\n"},
		{"9110 7.6.1", "Connection in quotes", 0, "Connection: \"close\"\r\n"},
		{"9110 7.6.1", "Keep-Alive", 0, "Keep-Alive: timeout=5\r\nConnection: keep-alive\r\n"},
		{"9110 7.6.1", "Proxy-Connection", 0, "Proxy-Connection: close\r\n"},
		{"9110 10.1.4", "TE", 0, "TE: trailers, deflate;q=0.5\r\nConnection: TE\r\n"},
		{"9110 11.7", "Proxy-Authorization", 0, "Proxy-Authorization: Basic x\r\n"},
		{"9110 7.8", "Upgrade", 0, "Connection: upgrade\r\nUpgrade: foo/2\r\n"},
		{"9110 7.8", "Upgrade that Connection does not name", 0, "Upgrade: foo/2\r\n"},
		{"9110 7.8", "Upgrade to several", 0, "Connection: upgrade\r\nUpgrade: foo\r\nUpgrade: bar\r\n"},
		{"9110 7.8", "Upgrade to h2c", 0, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"},
		{"9110 7.8", "Upgrade to websocket", 0, "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"},
		{"9110 10.1.1", "Expect without content", 0, "Expect: 100-continue\r\n"},
		{"9110 10.1.1", "unknown expectation", 417, "Expect: tea\r\n"},
		{"9110 10.1.1", "unknown expectation behind a known one", 417, "Expect: 100-continue, tea\r\n"},
		{"9110 10.1.1", "expectation with a value", 417, "Expect: 100-continue=yes\r\n"},
	} {
		all = append(all, seed{c.section, c.name, c.want, with(c.lines)})
	}
	// Content-Length.
	for _, c := range []string{"+5", "-5", "-0", "0x5", "1_0", "5.0", "5e0", "", "5 5", "5,5", "5, 5", "5;q=1", "\"5\"", "five", "5a", "a5", "\v5", "5\v", "5\x00", "\xb5", "٥",
		"9223372036854775808", "18446744073709551621", "99999999999999999999999999", "+0", "0+", "5\t5", "5\xa0", "NaN", "Infinity", "٠"} {
		all = append(all, seed{"6.3", "Content-Length " + c, 400, post("Content-Length: "+c+"\r\n", "hello")})
	}
	for _, c := range []struct {
		name        string
		want        int
		lines, body string
	}{
		{"length", 0, "Content-Length: 5\r\n", "hello"},
		{"length 0", 0, "Content-Length: 0\r\n", ""},
		{"leading zeros", 0, "Content-Length: 0005\r\n", "hello"},
		{"whitespace around", 0, "Content-Length: \t5 \t\r\n", "hello"},
		{"same length twice", 0, "Content-Length: 5\r\ncontent-length: 5\r\n", "hello"},
		{"two lengths", 400, "Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"},
		{"two spellings", 400, "Content-Length: 5\r\nContent-Length: 05\r\n", "hello"},
		{"second is empty", 400, "Content-Length: 5\r\nContent-Length:\r\n", "hello"},
		{"space before colon", 400, "Content-Length : 5\r\n", "hello"},
		{"folded", 400, "Content-Length:\r\n 5\r\n", "hello"},
		{"length in Connection", 0, "Connection: content-length\r\nContent-Length: 5\r\n", "hello"},
		{"request as content", 0, "Content-Length: 41\r\n", "GET /hidden HTTP/1.1\r\nHost: b.example\r\n\r\n"},
		{"no length but content", 400, "", "hello\r\n\r\n"},
		{"length and coding", 400, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", hello},
		{"coding and length", 400, "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", hello},
		{"length 0 and coding", 400, "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", hello},
		{"length and unknown coding", 400, "Content-Length: 5\r\nTransfer-Encoding: x\r\n", "hello"},
		{"length and empty coding", 400, "Content-Length: 5\r\nTransfer-Encoding:\r\n", "hello"},
		{"expect", 0, "Expect: 100-continue\r\nContent-Length: 5\r\n", "hello"},
		{"expect in capitals", 0, "Expect: 100-CONTINUE\r\nContent-Length: 5\r\n", "hello"},
		{"upgrade with content", 0, "Connection: upgrade\r\nUpgrade: foo\r\nContent-Length: 5\r\n", "hello"},
	} {
		all = append(all, seed{"6.3", c.name, c.want, post(c.lines, c.body)})
	}
	all = append(all, seed{"9110 15.5.14", "content too large", 413, post("Content-Length: 65537\r\n", "hello")},
		seed{"9110 15.5.14", "the largest length", 413, post("Content-Length: 9223372036854775807\r\n", "hello")},
		seed{"9110 15.5.14", "chunks too large", 413, chunks(strings.Repeat("10000\r\n"+strings.Repeat("x", 1<<16)+"\r\n", 8) + "0\r\n\r\n")},
		seed{"9110 15.5.14", "as much content as allowed", 0, post("Content-Length: 65536\r\n", strings.Repeat("x", 1<<16))})
	for _, c := range []string{"GET", "HEAD", "DELETE", "OPTIONS"} {
		all = append(all, seed{"9110 9.3", c + " with content", 0, c + " /c HTTP/1.1\r\n" + hostLine + "Content-Length: 5\r\n\r\nhello"})
	}
	// Transfer-Encoding.
	for _, c := range []string{"", ",chunked", "chunked,", "chunked, chunked", "chunked,,", "identity", "gzip", "chunked, gzip", "chunked, identity", "xchunked", "chunkedx", "chunke",
		"chunked;a=b", "\"chunked\"", "'chunked'", "chunked chunked", "\vchunked", "chunked\v", "\fchunked", "chunked\x00", "\x00chunked", "\xa0chunked", "chunked\xa0", "chun\tked", "ch\xc3\xbcnked",
		"x, chunked, y", "chunked/1", "(chunked)", "=chunked", "chunked=", "0", "cow", "\u212ahunked"} {
		all = append(all, seed{"6.1", "Transfer-Encoding " + c, 400, post("Transfer-Encoding: "+c+"\r\n", hello)})
	}
	for _, c := range []string{"gzip, chunked", "deflate,chunked", "cow, chunked", "identity, chunked", "chunked ,chunked2, chunked3 , x, chunked"} {
		want := 501
		if strings.Count(c, "chunked ") > 0 {
			want = 400
		}
		all = append(all, seed{"6.1", "Transfer-Encoding " + c, want, post("Transfer-Encoding: "+c+"\r\n", hello)})
	}
	for _, c := range []struct {
		name  string
		want  int
		lines string
	}{
		{"chunked", 0, "Transfer-Encoding: chunked\r\n"},
		{"capitals", 0, "TRANSFER-ENCODING: CHUNKED\r\n"},
		{"tabs around", 0, "Transfer-Encoding:\tchunked\t\r\n"},
		{"two lines", 400, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"},
		{"two lines, the second unknown", 400, "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n"},
		{"two lines, the first unknown", 501, "Transfer-Encoding: cow\r\nTransfer-Encoding: chunked\r\n"},
		{"two lines, the first empty", 400, "Transfer-Encoding:\r\nTransfer-Encoding: chunked\r\n"},
		{"space before colon", 400, "Transfer-Encoding : chunked\r\n"},
		{"folded", 400, "Transfer-Encoding:\r\n chunked\r\n"},
		{"folded behind a field", 400, "X: y\r\n Transfer-Encoding: chunked\r\n"},
		{"bare LF before", 400, "X: y\nTransfer-Encoding: chunked\r\n"},
		{"bare CR before", 400, "X: y\rTransfer-Encoding: chunked\r\n"},
		{"underscore", 0, "Transfer-Encoding: chunked\r\nTransfer_Encoding: identity\r\n"},
		{"named in Connection", 0, "Transfer-Encoding: chunked\r\nConnection: transfer-encoding\r\n"},
		{"with TE", 0, "Transfer-Encoding: chunked\r\nTE: trailers\r\nConnection: TE\r\n"},
		{"with Trailer", 0, "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n"},
		{"with Trailer of a framing field", 0, "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n"},
		{"with expect", 0, "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n"},
		{"Content-Encoding is not it", 0, "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"},
	} {
		all = append(all, seed{"6.1", "Transfer-Encoding: " + c.name, c.want, post(c.lines, hello)})
	}
	all = append(all, seed{"6.1", "chunked in 1.0", 400, "POST / HTTP/1.0\r\n" + hostLine + "Transfer-Encoding: chunked\r\n\r\n" + hello},
		seed{"6.1", "chunked in 1.0 kept alive", 400, "POST / HTTP/1.0\r\n" + hostLine + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + hello})
	// Chunks.
	for _, c := range []struct {
		section, name string
		want          int
		body          string
	}{
		{"7.1", "several chunks", 0, "1\r\nh\r\n4\r\nello\r\n0\r\n\r\n"},
		{"7.1", "leading zeros", 0, "005\r\nhello\r\n000\r\n\r\n"},
		{"7.1", "hexadecimal", 0, "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n"},
		{"7.1", "CRLF as data", 0, "2\r\n\r\n\r\n0\r\n\r\n"},
		{"7.1", "last chunk as data", 0, "5\r\n0\r\n\r\n\r\n0\r\n\r\n"},
		{"7.1", "request as data", 0, "29\r\nGET /hidden HTTP/1.1\r\nHost: b.example\r\n\r\n\r\n0\r\n\r\n"},
		{"7.1", "no size", 400, "\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "sign", 400, "+5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "negative", 400, "-5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "prefix", 400, "0x5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "underscore", 400, "0_5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "space before", 400, " 5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "space behind", 400, "5 \r\nhello\r\n0\r\n\r\n"},
		{"7.1", "tab behind", 400, "5\t\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "no number", 400, "g\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "two numbers", 400, "5 5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "comma", 400, "5,\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "NUL behind", 400, "5\x00\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "overflow of 64 bits", 400, "10000000000000005\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "overflow of 32 bits", -1, "100000005\r\nhello\r\n0\r\n\r\n" + strings.Repeat("x", 64)},
		{"7.1", "sixteen digits", 400, "0000000000000005\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "thousand zeros", 400, strings.Repeat("0", 1000) + "5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "bare LF behind the size", 400, "5\nhello\r\n0\r\n\r\n"},
		{"7.1", "bare CR behind the size", 400, "5\rhello\r\n0\r\n\r\n"},
		{"7.1", "bare LF behind the data", 400, "5\r\nhello\n0\r\n\r\n"},
		{"7.1", "bare CR behind the data", 400, "5\r\nhello\r0\r\n\r\n"},
		{"7.1", "nothing behind the data", 400, "5\r\nhello0\r\n\r\n"},
		{"7.1", "data too long", 400, "5\r\nhello!\r\n0\r\n\r\n"},
		{"7.1", "data too short", 400, "6\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "bare LF ends the body", 400, "5\r\nhello\r\n0\r\n\n"},
		{"7.1", "bare LF behind the last size", 400, "5\r\nhello\r\n0\n\r\n"},
		{"7.1", "CR ends the body", 400, "5\r\nhello\r\n0\r\n\rX"},
		{"7.1.1", "extension", 0, "5;a\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "extension with value", 0, "5;a=b;c=\"d;\\\"\\\\\"\r\nhello\r\n0;x\r\n\r\n"},
		{"7.1.1", "extension with whitespace", 0, "5 ; a = b\t;\tc\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "extension with a high byte in quotes", 0, "5;a=\"\xff\"\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "extension without name", 400, "5;\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "extension without value", 400, "5;a=\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "bare LF in an extension", 400, "5;a\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "bare LF and a size in an extension", 400, "5;\n05\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "bare CR in an extension", 400, "5;a\rX\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "LF in quotes", 400, "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "CRLF in quotes", 400, "5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "open quotes", 400, "5;a=\"b\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "NUL in an extension", 400, "5;\x00\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "text behind quotes", 400, "5;a=\"b\"c\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "extension too long", 400, "5;" + strings.Repeat("a", 5000) + "\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "extensions without end", 400, strings.Repeat("1;"+strings.Repeat("a", 200)+"\r\nx\r\n", 100) + "0\r\n\r\n"},
		{"7.1.2", "trailers", 0, "5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n"},
		{"7.1.2", "trailers that are left out", 0, "5\r\nhello\r\n0\r\nContent-Length: 7\r\nTransfer-Encoding: gzip\r\nHost: b\r\nAuthorization: x\r\nX-Sum: 1\r\n\r\n"},
		{"7.1.2", "folded trailer", 400, "5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n"},
		{"7.1.2", "trailer without colon", 400, "5\r\nhello\r\n0\r\nX\r\n\r\n"},
		{"7.1.2", "trailer with bare LF", 400, "5\r\nhello\r\n0\r\nX: a\n\r\n"},
		{"7.1.2", "trailer with bare CR", 400, "5\r\nhello\r\n0\r\nX: a\rb\r\n\r\n"},
		{"7.1.2", "trailer with NUL", 400, "5\r\nhello\r\n0\r\nX: \x00\r\n\r\n"},
		{"7.1.2", "request as trailer", 400, "5\r\nhello\r\n0\r\nGET /hidden HTTP/1.1\r\nHost: b.example\r\n\r\n"},
		{"7.1.2", "trailer section too large", 400, "5\r\nhello\r\n0\r\nX: " + strings.Repeat("a", 9000) + "\r\n\r\n"},
		{"7.1.2", "too many trailers", 431, "5\r\nhello\r\n0\r\n" + strings.Repeat("X: a\r\n", 65) + "\r\n"},
	} {
		all = append(all, seed{c.section, c.name, c.want, chunks(c.body)})
	}
	// Pipelines, and what is left when a request is refused or the connection ends.
	all = append(all,
		seed{"9.3.2", "two requests", 0, get("/one") + get("/two")},
		seed{"9.3.2", "request behind content", 0, post("Content-Length: 5\r\n", "hello") + get("/two")},
		seed{"9.3.2", "request behind chunks", 0, chunks(hello) + get("/two")},
		seed{"9.3.2", "empty line between", 0, post("Content-Length: 5\r\n", "hello") + "\r\n" + get("/two")},
		seed{"9.6", "request behind the last one", 0, with("Connection: close\r\n") + get("/two")},
		seed{"9.6", "request behind the last one of 1.0", 0, "GET / HTTP/1.0\r\n" + hostLine + "\r\n" + get("/two")},
		seed{"9.3.2", "request behind one that is refused", 400, with("X : y\r\n") + get("/two")},
		seed{"9.3.2", "refused behind a good one", 400, get("/one") + with("X : y\r\n")},
		seed{"6.3", "content that is too long", 400, post("Content-Length: 4\r\n", "hello\r\n\r\n")},
	)
	return all
}

// kase is a request to be sent.
type kase struct {
	name  string
	want  int // -1: what the grammar says
	bytes []byte
}

// bytes and words that a mutation puts in.
var spices = []string{"\r", "\n", "\r\n", "\n\n", "\r\r\n", " ", "\t", "  ", "\v", "\f", "\x00", "\x01", "\x0b", "\x1f", "\x7f", "\x80", "\x85", "\xa0", "\xff", "\xc0\xaf", "\xe2\x80\xa8",
	":", ";", ",", "\"", "'", "\\", "/", "//", "?", "#", "%", "%00", "%0d%0a", "%2e", "..", "../", "@", "*", "+", "-", "_", "0", "00", "1", "9", "f", "0x", "(", ")", "[", "]", "{", "}", "<", ">", "|", "^", "=",
	"chunked", "identity", "close", "HTTP/1.1", "HTTP/1.0", "Host: b.example\r\n", "Content-Length: 3\r\n", "Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: x\r\n",
	"Connection: close\r\n", "Connection: content-length, host\r\n", "X: y\r\n", " X: y\r\n", "\r\n ", "\n ", "\r\n\t", "\r\n\r\n", "0\r\n\r\n", "GET / HTTP/1.1\r\n"}

// where a mutation likes to happen: at these bytes.
const seams = " :\r\n/;,=?%0123456789"

// corpus is the seeds and count mutations of them that differ from each other and from the seeds. The same count gives the same corpus.
func corpus(count int) []kase {
	var all []kase
	seen := map[string]bool{}
	add := func(c kase) bool {
		if seen[string(c.bytes)] {
			return false
		}
		seen[string(c.bytes)] = true
		all = append(all, c)
		return true
	}
	base := seeds()
	for i := range base {
		add(kase{"RFC 9112 §" + base[i].section + ": " + base[i].name, base[i].want, []byte(base[i].bytes)})
		if s := base[i].section; strings.HasPrefix(s, "9110 ") {
			all[len(all)-1].name = "RFC 9110 §" + s[5:] + ": " + base[i].name
		}
	}
	for _, p := range products() {
		add(kase{p.name, -1, []byte(p.bytes)})
	}
	r := rand.New(rand.NewPCG(9110, 9112))
	for n := 0; n < count; {
		s := &base[r.IntN(len(base))]
		b := []byte(s.bytes)
		if len(b) > 3000 {
			continue
		}
		for range 1 + r.IntN(2) {
			b = mutate(r, b, base, n%3 == 0)
		}
		if len(b) > 0 && add(kase{fmt.Sprintf("mutation %d of %q", n, s.name), -1, b}) {
			n++
		}
	}
	return all
}

// products are all pairs of ways to frame a body, in either order, each with content that reads as one or the other: what smuggling is made
// of (RFC 9112 §11.2).
func products() (all []seed) {
	lengths := []string{"Content-Length: 5", "Content-Length: 0", "Content-Length: 15", "Content-Length: 05", "Content-Length: +5", "Content-Length:5 ", "Content-Length : 5", "Content-Length: 5,5", "Content-Length: 0x5",
		"Content-Length\t: 5", " Content-Length: 5", "Content-Length:\r\n 5", "content_length: 5", "X: y\nContent-Length: 5", "X: y\rContent-Length: 5", "Content-Length:\v5", "Content-Length: 5\x00"}
	codings := []string{"Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "Transfer-Encoding:chunked ", "Transfer-Encoding : chunked", "Transfer-Encoding: x", "Transfer-Encoding: x, chunked", "Transfer-Encoding: chunked, x",
		"Transfer-Encoding: \"chunked\"", "Transfer-Encoding:\vchunked", "Transfer-Encoding: xchunked", "Transfer-Encoding:", "\tTransfer-Encoding: chunked", "Transfer-Encoding:\r\n chunked", "transfer_encoding: chunked",
		"X: y\nTransfer-Encoding: chunked", "X: y\rTransfer-Encoding: chunked", "Transfer-Encoding: identity", "Transfer-Encoding: chunked;q=1"}
	lines := append(slices.Clone(lengths), codings...)
	for _, first := range lines {
		for _, second := range lines {
			all = append(all, seed{name: fmt.Sprintf("RFC 9112 §11.2: %q and %q", first, second), bytes: post(first+"\r\n"+second+"\r\n", hello)})
		}
	}
	return all
}

// mutate changes one thing. gentle mutations use visible characters only: more of them stay requests.
func mutate(r *rand.Rand, b []byte, base []seed, gentle bool) []byte {
	if len(b) == 0 {
		return b
	}
	at := r.IntN(len(b))
	if r.IntN(4) > 0 { // go on to a seam
		if i := bytes.IndexAny(b[at:], seams); i >= 0 {
			at += i + r.IntN(2)
		}
	}
	at = min(at, len(b)-1)
	spice := spices[r.IntN(len(spices))]
	if r.IntN(8) == 0 {
		spice = string([]byte{byte(r.IntN(256))})
	}
	if gentle {
		const visible = "!\"#$%&'()*+,-./0123456789:;<=>?@AZ[\\]^_`az{|}~"
		spice = string(visible[r.IntN(len(visible))])
	}
	splice := func(from, to int, s string) []byte {
		return append(append(append([]byte(nil), b[:from]...), s...), b[to:]...)
	}
	kind := r.IntN(12)
	if gentle {
		kind %= 7
	}
	switch kind {
	case 0, 1, 2, 3:
		return splice(at, at, spice)
	case 4, 5:
		return splice(at, at+1, spice)
	case 6:
		return splice(at, min(len(b), at+1+r.IntN(3)), "")
	case 7: // a line twice, or in another place
		lines := bytes.SplitAfter(b, []byte("\r\n"))
		i, j := r.IntN(len(lines)), r.IntN(len(lines)+1)
		line := bytes.Clone(lines[i])
		if r.IntN(2) == 0 {
			lines[i] = nil
		}
		return bytes.Join(append(append(append([][]byte(nil), lines[:j]...), line), lines[j:]...), nil)
	case 8: // a line of another seed
		other := bytes.SplitAfter([]byte(base[r.IntN(len(base))].bytes), []byte("\r\n"))
		line := other[r.IntN(len(other))]
		if len(line) > 1000 {
			return splice(at, at, spice)
		}
		if i := bytes.IndexByte(b[at:], '\n'); i >= 0 {
			return splice(at+i+1, at+i+1, string(line))
		}
		return splice(at, at, string(line))
	case 9: // the case of a letter, or another bit
		c := bytes.Clone(b)
		c[at] ^= 1 << r.IntN(8)
		return c
	case 10: // the end is missing
		return b[:at+1]
	}
	// A line ends in another way.
	ends := bytes.Count(b, []byte("\r\n"))
	if ends == 0 {
		return splice(at, at, spice)
	}
	which := r.IntN(ends)
	i := 0
	for ; which >= 0; which-- {
		i += bytes.Index(b[i:], []byte("\r\n")) + 2
	}
	return splice(i-2, i, []string{"\n", "\r", "\r\r\n", "\n\r", " \r\n", "\t\r\n", "\x00\r\n", "\r\n ", "\r\n\r\n", ""}[r.IntN(10)])
}
