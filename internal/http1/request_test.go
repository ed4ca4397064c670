package http1

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func parseRequest(t *testing.T, head string) (*Request, int, error) {
	t.Helper()
	r := new(Request)
	n, err := r.Parse([]byte(head), Limits{})
	return r, n, err
}

// reason is the reason of an error made by this package.
func reason(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return fmt.Sprintf("%d %s", e.Status, e.Reason)
	}
	return fmt.Sprint(err)
}

// The requests that a server must refuse, by the section of RFC 9112 (or RFC 9110) that requires it.
func TestMalformedRequestIsRefused(t *testing.T) {
	const host = "Host: a.example\r\n"
	for _, c := range []struct{ name, head, want string }{
		// 2.2: message parsing
		{"bare LF after request line", "GET / HTTP/1.1\n" + host + "\r\n", "400 invalid_version"},
		{"bare LF after field", "GET / HTTP/1.1\r\nHost: a\n\r\n", "400 bare_lf"},
		{"bare LF as end of head", "GET / HTTP/1.1\r\n" + host + "\n", "400 bare_lf"},
		{"bare CR in request line", "GET /\r HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target"},
		{"bare CR as line end", "GET / HTTP/1.1\rHost: a\r\n\r\n", "400 invalid_version"},
		{"bare CR in value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", "400 bare_cr"},
		{"bare CR before CRLF", "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", "400 bare_cr"},
		{"bare CR as end of head", "GET / HTTP/1.1\r\n" + host + "\rX", "400 bare_cr"},
		{"whitespace before first field", "GET / HTTP/1.1\r\n " + host + "\r\n", "400 folded_field"},
		{"two empty lines first", "\r\n\r\nGET / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		{"bare LF first", "\nGET / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		{"bare CR first", "\rGET / HTTP/1.1\r\n" + host + "\r\n", "400 bare_cr"},
		{"NUL first", "\x00GET / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		{"TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01", "400 invalid_method"},
		// 2.3: version
		{"HTTP/0.9", "GET /\r\n", "400 invalid_target"},
		{"no version but a space", "GET / \r\n\r\n", "400 invalid_version"},
		{"HTTP/1.2", "GET / HTTP/1.2\r\n" + host + "\r\n", "400 unsupported_version"},
		{"HTTP/2.0 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400 unsupported_version"},
		{"HTTP/0.9 spelled out", "GET / HTTP/0.9\r\n" + host + "\r\n", "400 unsupported_version"},
		{"lower-case version", "GET / http/1.1\r\n" + host + "\r\n", "400 invalid_version"},
		{"two-digit minor", "GET / HTTP/1.10\r\n" + host + "\r\n", "400 invalid_version"},
		{"two-digit major", "GET / HTTP/11.1\r\n" + host + "\r\n", "400 invalid_version"},
		{"comma in version", "GET / HTTP/1,1\r\n" + host + "\r\n", "400 invalid_version"},
		{"other protocol", "GET / HTTPS/1.1\r\n" + host + "\r\n", "400 invalid_version"},
		{"space behind version", "GET / HTTP/1.1 \r\n" + host + "\r\n", "400 invalid_version"},
		{"word behind version", "GET / HTTP/1.1 x\r\n" + host + "\r\n", "400 invalid_version"},
		// 3: request line
		{"two spaces behind method", "GET  / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target"},
		{"two spaces behind target", "GET /  HTTP/1.1\r\n" + host + "\r\n", "400 invalid_version"},
		{"tab behind method", "GET\t/ HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		{"tab behind target", "GET /\tHTTP/1.1\r\n" + host + "\r\n", "400 invalid_target"},
		{"space before method", " GET / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		{"space in target", "GET /a b HTTP/1.1\r\n" + host + "\r\n", "400 invalid_version"},
		{"method only", "GET\r\n\r\n", "400 invalid_method"},
		// 3.1: method
		{"lower-case method", "get / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		{"mixed-case method", "Get / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		{"method with marks", "M-SEARCH!#$%&'*+.^_`|~ / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		{"method with colon", "GET: / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		{"method in parentheses", "(GET) / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		{"method with slash", "GET/ / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		{"method with NUL", "GE\x00T / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		{"method with obs-text", "G\xc9T / HTTP/1.1\r\n" + host + "\r\n", "400 invalid_method"},
		// 3.2: target
		{"NUL in target", "GET /\x00 HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target"},
		{"DEL in target", "GET /\x7f HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target"},
		{"escape byte in target", "GET /\x1b HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target"},
		{"raw UTF-8 in target", "GET /\xc3\xa9 HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target"},
		{"fragment", "GET /a#b HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target"},
		{"fragment in query", "GET /a?b#c HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target"},
		{"half an escape", "GET /%4 HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target"},
		{"no hexadecimal escape", "GET /%zz HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target"},
		{"escape and end", "GET /% HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target"},
		{"relative path", "GET a/b HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"query alone", "GET ?a HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"network path is a path, backslash first is not", "GET \\a HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"other scheme", "GET ftp://a.example/ HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"javascript", "GET javascript:alert(1) HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"absolute without host", "GET http:///a HTTP/1.1\r\n" + host + "\r\n", "400 invalid_host"},
		{"absolute with user", "GET http://u@a.example/ HTTP/1.1\r\n" + host + "\r\n", "400 invalid_host"},
		{"absolute with bad port", "GET http://a.example:x/ HTTP/1.1\r\n" + host + "\r\n", "400 invalid_host"},
		{"absolute with backslash", "GET http://a.example\\@b/ HTTP/1.1\r\n" + host + "\r\n", "400 invalid_host"},
		{"absolute of another host", "GET http://b.example/ HTTP/1.1\r\n" + host + "\r\n", "400 host_mismatch"},
		{"absolute of another port", "GET http://a.example:81/ HTTP/1.1\r\n" + host + "\r\n", "400 host_mismatch"},
		{"absolute with https' port", "GET http://a.example:443/ HTTP/1.1\r\n" + host + "\r\n", "400 host_mismatch"},
		{"asterisk with GET", "GET * HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"asterisk with more", "OPTIONS *a HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"asterisk with query", "OPTIONS *?a HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"authority with GET", "GET a.example:80 HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"CONNECT to a path", "CONNECT /a HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"CONNECT without port", "CONNECT a.example HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"CONNECT with empty port", "CONNECT a.example: HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"CONNECT to a URI", "CONNECT http://a.example/ HTTP/1.1\r\n" + host + "\r\n", "400 invalid_target_form"},
		{"CONNECT to another host", "CONNECT b.example:443 HTTP/1.1\r\n" + host + "\r\n", "400 host_mismatch"},
		{"CONNECT with a body", "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nContent-Length: 1\r\n\r\n", "400 connect_with_body"},
		// 3.2: Host
		{"no Host", "GET / HTTP/1.1\r\n\r\n", "400 missing_host"},
		{"no Host but absolute", "GET http://a.example/ HTTP/1.1\r\n\r\n", "400 missing_host"},
		{"two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400 duplicate_host"},
		{"two equal Hosts", "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", "400 duplicate_host"},
		{"two Hosts in 1.0", "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", "400 duplicate_host"},
		{"empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "400 invalid_host"},
		{"list as Host", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "400 invalid_host"},
		{"path in Host", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "400 invalid_host"},
		{"user in Host", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", "400 invalid_host"},
		{"space in Host", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400 invalid_host"},
		{"tab in Host", "GET / HTTP/1.1\r\nHost: a\tb\r\n\r\n", "400 invalid_host"},
		{"obs-text in Host", "GET / HTTP/1.1\r\nHost: \xff\r\n\r\n", "400 invalid_host"},
		{"quote in Host", "GET / HTTP/1.1\r\nHost: \"a\"\r\n\r\n", "400 invalid_host"},
		{"empty label", "GET / HTTP/1.1\r\nHost: a..example\r\n\r\n", "400 invalid_host"},
		{"empty first label", "GET / HTTP/1.1\r\nHost: .example\r\n\r\n", "400 invalid_host"},
		{"dot alone", "GET / HTTP/1.1\r\nHost: .\r\n\r\n", "400 invalid_host"},
		{"port alone", "GET / HTTP/1.1\r\nHost: :80\r\n\r\n", "400 invalid_host"},
		{"port out of range", "GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", "400 invalid_host"},
		{"port too long", "GET / HTTP/1.1\r\nHost: a:000080\r\n\r\n", "400 invalid_host"},
		{"two ports", "GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", "400 invalid_host"},
		{"negative port", "GET / HTTP/1.1\r\nHost: a:-1\r\n\r\n", "400 invalid_host"},
		{"open bracket", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "400 invalid_host"},
		{"brackets without address", "GET / HTTP/1.1\r\nHost: []\r\n\r\n", "400 invalid_host"},
		{"v4 in brackets", "GET / HTTP/1.1\r\nHost: [127.0.0.1]\r\n\r\n", "400 invalid_host"},
		{"zone", "GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n", "400 invalid_host"},
		{"text behind bracket", "GET / HTTP/1.1\r\nHost: [::1]a\r\n\r\n", "400 invalid_host"},
		{"bare v6", "GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", "400 invalid_host"},
		// 5: fields
		{"space before colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", "400 space_before_colon"},
		{"tab before colon", "GET / HTTP/1.1\r\n" + host + "X\t: a\r\n\r\n", "400 space_before_colon"},
		{"space in name", "GET / HTTP/1.1\r\n" + host + "X Y: a\r\n\r\n", "400 space_before_colon"},
		{"no colon", "GET / HTTP/1.1\r\n" + host + "X\r\n\r\n", "400 invalid_field_name"},
		{"no name", "GET / HTTP/1.1\r\n" + host + ": a\r\n\r\n", "400 invalid_field_name"},
		{"NUL in name", "GET / HTTP/1.1\r\n" + host + "X\x00: a\r\n\r\n", "400 invalid_field_name"},
		{"DEL in name", "GET / HTTP/1.1\r\n" + host + "X\x7f: a\r\n\r\n", "400 invalid_field_name"},
		{"obs-text in name", "GET / HTTP/1.1\r\n" + host + "X\xe9: a\r\n\r\n", "400 invalid_field_name"},
		{"slash in name", "GET / HTTP/1.1\r\n" + host + "X/Y: a\r\n\r\n", "400 invalid_field_name"},
		{"quoted name", "GET / HTTP/1.1\r\n" + host + "\"X\": a\r\n\r\n", "400 invalid_field_name"},
		{"bracketed name", "GET / HTTP/1.1\r\n" + host + "X[]: a\r\n\r\n", "400 invalid_field_name"},
		{"folded by space", "GET / HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n", "400 folded_field"},
		{"folded by tab", "GET / HTTP/1.1\r\n" + host + "X: a\r\n\tb\r\n\r\n", "400 folded_field"},
		{"folded to nothing", "GET / HTTP/1.1\r\n" + host + "X: a\r\n \r\n\r\n", "400 folded_field"},
		{"NUL in value", "GET / HTTP/1.1\r\n" + host + "X: a\x00b\r\n\r\n", "400 invalid_field_value"},
		{"NUL after eight bytes", "GET / HTTP/1.1\r\n" + host + "X: 0123456789\x00b\r\n\r\n", "400 invalid_field_value"},
		{"DEL in value", "GET / HTTP/1.1\r\n" + host + "X: \xff\xff\x7f\r\n\r\n", "400 invalid_field_value"},
		{"vertical tab in value", "GET / HTTP/1.1\r\n" + host + "X: a\vb\r\n\r\n", "400 invalid_field_value"},
		{"form feed before value", "GET / HTTP/1.1\r\n" + host + "X:\fa\r\n\r\n", "400 invalid_field_value"},
		{"LF in value", "GET / HTTP/1.1\r\n" + host + "X: a\nY: b\r\n\r\n", "400 bare_lf"},
		// RFC 9110 §10.1.1: Expect
		{"unknown expectation", "GET / HTTP/1.1\r\n" + host + "Expect: tea\r\n\r\n", "417 unknown_expectation"},
		{"known and unknown expectation", "GET / HTTP/1.1\r\n" + host + "Expect: 100-continue, tea\r\n\r\n", "417 unknown_expectation"},
		{"expectation with a value", "GET / HTTP/1.1\r\n" + host + "Expect: 100-continue=yes\r\n\r\n", "417 unknown_expectation"},
		// 6.1: Transfer-Encoding
		{"gzip, chunked", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n", "501 unsupported_transfer_encoding"},
		{"gzip, then chunked on its line", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", "501 unsupported_transfer_encoding"},
		{"gzip alone", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", "400 invalid_transfer_encoding"},
		{"chunked, gzip", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, gzip\r\n\r\n", "400 invalid_transfer_encoding"},
		{"identity", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: identity\r\n\r\n", "400 invalid_transfer_encoding"},
		{"chunked twice", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, chunked\r\n\r\n", "400 invalid_transfer_encoding"},
		{"chunked on two lines", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "400 invalid_transfer_encoding"},
		{"empty member", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: , chunked\r\n\r\n", "400 invalid_transfer_encoding"},
		{"empty last member", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked,\r\n\r\n", "400 invalid_transfer_encoding"},
		{"empty Transfer-Encoding", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding:\r\n\r\n", "400 invalid_transfer_encoding"},
		{"xchunked", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n", "400 invalid_transfer_encoding"},
		{"chunked with parameter", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked;a=b\r\n\r\n", "400 invalid_transfer_encoding"},
		{"quoted chunked", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: \"chunked\"\r\n\r\n", "400 invalid_transfer_encoding"},
		{"vertical tab before chunked", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: \vchunked\r\n\r\n", "400 invalid_field_value"},
		{"Transfer-Encoding in 1.0", "POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", "400 transfer_encoding_in_http10"},
		{"length and coding", "POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "400 content_length_and_transfer_encoding"},
		{"coding and length", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", "400 content_length_and_transfer_encoding"},
		// 6.2, 6.3: Content-Length
		{"signed length", "POST / HTTP/1.1\r\n" + host + "Content-Length: +5\r\n\r\n", "400 invalid_content_length"},
		{"negative length", "POST / HTTP/1.1\r\n" + host + "Content-Length: -5\r\n\r\n", "400 invalid_content_length"},
		{"negative zero", "POST / HTTP/1.1\r\n" + host + "Content-Length: -0\r\n\r\n", "400 invalid_content_length"},
		{"hexadecimal length", "POST / HTTP/1.1\r\n" + host + "Content-Length: 0x5\r\n\r\n", "400 invalid_content_length"},
		{"grouped length", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1_0\r\n\r\n", "400 invalid_content_length"},
		{"decimal point", "POST / HTTP/1.1\r\n" + host + "Content-Length: 5.0\r\n\r\n", "400 invalid_content_length"},
		{"empty length", "POST / HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\n", "400 invalid_content_length"},
		{"space in length", "POST / HTTP/1.1\r\n" + host + "Content-Length: 5 5\r\n\r\n", "400 invalid_content_length"},
		{"overflow", "POST / HTTP/1.1\r\n" + host + "Content-Length: 9223372036854775808\r\n\r\n", "400 invalid_content_length"},
		{"overflow of 64 bits", "POST / HTTP/1.1\r\n" + host + "Content-Length: 18446744073709551621\r\n\r\n", "400 invalid_content_length"},
		{"list of lengths", "POST / HTTP/1.1\r\n" + host + "Content-Length: 5, 5\r\n\r\n", "400 invalid_content_length"},
		{"different lengths", "POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "400 conflicting_content_length"},
		{"lengths spelled differently", "POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\nContent-Length: 05\r\n\r\n", "400 conflicting_content_length"},
		{"second length empty", "POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\nContent-Length:\r\n\r\n", "400 conflicting_content_length"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, n, err := parseRequest(t, c.head); err == nil || reason(err) != c.want {
				t.Fatalf("got n=%d, %q; want %q", n, reason(err), c.want)
			}
		})
	}
}

func TestRequestIsRead(t *testing.T) {
	const body = "!body"
	for _, c := range []struct {
		name, head string
		want       Request
	}{
		{"origin form", "GET /a/b?x=1&y HTTP/1.1\r\nHost: a.example:8080\r\n\r\n",
			Request{Method: "GET", Path: "/a/b", Query: "x=1&y", HasQuery: true, Authority: "a.example:8080", Minor: 1, KeepAlive: true}},
		{"empty query", "GET /? HTTP/1.1\r\nHost: a\r\n\r\n",
			Request{Method: "GET", Path: "/", HasQuery: true, Authority: "a", Minor: 1, KeepAlive: true}},
		{"question marks in query", "GET /?a?b%zz HTTP/1.1\r\nHost: a\r\n\r\n",
			Request{Method: "GET", Path: "/", Query: "a?b%zz", HasQuery: true, Authority: "a", Minor: 1, KeepAlive: true, Unescaped: true}},
		{"slashes and escapes", "GET //a/%2e%2E/ HTTP/1.1\r\nHost: a\r\n\r\n",
			Request{Method: "GET", Path: "//a/%2e%2E/", Authority: "a", Minor: 1, KeepAlive: true}},
		{"bytes beyond RFC 3986", "GET /a\"<>\\^`{|} HTTP/1.1\r\nHost: a\r\n\r\n",
			Request{Method: "GET", Path: "/a\"<>\\^`{|}", Authority: "a", Minor: 1, KeepAlive: true, Unescaped: true}},
		{"leading empty line (2.2)", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
			Request{Method: "GET", Path: "/", Authority: "a", Minor: 1, KeepAlive: true}},
		{"absolute form (3.2.2)", "GET HTTP://a.example/p?q HTTP/1.1\r\nHost: A.example\r\n\r\n",
			Request{Method: "GET", Form: FormAbsolute, Path: "/p", Query: "q", HasQuery: true, Scheme: "http", Authority: "a.example", Minor: 1, KeepAlive: true}},
		{"absolute form with the usual port", "GET https://a:443/ HTTP/1.1\r\nHost: a\r\n\r\n",
			Request{Method: "GET", Form: FormAbsolute, Path: "/", Scheme: "https", Authority: "a:443", Minor: 1, KeepAlive: true}},
		{"absolute form without path", "GET http://a?q=/x HTTP/1.1\r\nHost: a\r\n\r\n",
			Request{Method: "GET", Form: FormAbsolute, Path: "/", Query: "q=/x", HasQuery: true, Scheme: "http", Authority: "a", Minor: 1, KeepAlive: true}},
		{"absolute OPTIONS of the server (3.2.4)", "OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n",
			Request{Method: "OPTIONS", Form: FormAbsolute, Path: "*", Scheme: "http", Authority: "a", Minor: 1, KeepAlive: true}},
		{"authority form (3.2.3)", "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
			Request{Method: "CONNECT", Form: FormAuthority, Authority: "a.example:443", Minor: 1}},
		{"asterisk form (3.2.4)", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
			Request{Method: "OPTIONS", Form: FormAsterisk, Path: "*", Authority: "a", Minor: 1, KeepAlive: true}},
		{"v6 host", "GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n",
			Request{Method: "GET", Path: "/", Authority: "[2001:db8::1]:80", Minor: 1, KeepAlive: true}},
		{"v4 mapped host", "GET / HTTP/1.1\r\nHost: [::ffff:1.2.3.4]\r\n\r\n",
			Request{Method: "GET", Path: "/", Authority: "[::ffff:1.2.3.4]", Minor: 1, KeepAlive: true}},
		{"empty port (RFC 3986 3.2.3)", "GET / HTTP/1.1\r\nHost: a:\r\n\r\n",
			Request{Method: "GET", Path: "/", Authority: "a:", Minor: 1, KeepAlive: true}},
		{"other method", "M-SEARCH_ / HTTP/1.1\r\nHost: a\r\n\r\n",
			Request{Method: "M-SEARCH_", Path: "/", Authority: "a", Minor: 1, KeepAlive: true}},
		{"1.0 without Host", "GET / HTTP/1.0\r\n\r\n", Request{Method: "GET", Path: "/"}},
		{"1.0 kept alive", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", Request{Method: "GET", Path: "/", KeepAlive: true}},
		{"1.0 ignores Expect and Upgrade", "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\nExpect: 100-continue\r\n\r\n",
			Request{Method: "GET", Path: "/"}},
		{"close", "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE\r\n\r\n",
			Request{Method: "GET", Path: "/", Authority: "a", Minor: 1, NamedHops: true}},
		{"close beats keep-alive", "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: ,close\r\n\r\n",
			Request{Method: "GET", Path: "/", Authority: "a", Minor: 1}},
		{"upgrade", "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n",
			Request{Method: "GET", Path: "/", Authority: "a", Minor: 1, KeepAlive: true, Upgrade: "websocket"}},
		{"upgrade that Connection does not list", "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
			Request{Method: "GET", Path: "/", Authority: "a", Minor: 1, KeepAlive: true}},
		{"1.0 ignores other expectations", "GET / HTTP/1.0\r\nHost: a\r\nExpect: tea\r\n\r\n", Request{Method: "GET", Path: "/", Authority: "a"}},
		{"expect", "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n",
			Request{Method: "POST", Path: "/", Authority: "a", Minor: 1, KeepAlive: true, Expect100: true, Body: Body{BodyLength, 5}}},
		{"zero length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
			Request{Method: "POST", Path: "/", Authority: "a", Minor: 1, KeepAlive: true, Body: Body{BodyLength, 0}}},
		{"largest length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0009223372036854775807\r\n\r\n",
			Request{Method: "POST", Path: "/", Authority: "a", Minor: 1, KeepAlive: true, Body: Body{BodyLength, 1<<63 - 1}}},
		{"same length twice", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\n",
			Request{Method: "POST", Path: "/", Authority: "a", Minor: 1, KeepAlive: true, Body: Body{BodyLength, 5}}},
		{"chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n",
			Request{Method: "POST", Path: "/", Authority: "a", Minor: 1, KeepAlive: true, Body: Body{Kind: BodyChunked}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, n, err := parseRequest(t, c.head+body)
			if err != nil || n != len(c.head) {
				t.Fatalf("got n=%d, %v; want %d", n, err, len(c.head))
			}
			if got, want := describe(r), describe(&c.want); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if line := r.Method + " " + r.Target + " HTTP"; !strings.Contains(c.head, line) {
				t.Errorf("target %q is not the one received", r.Target)
			}
		})
	}
}

// describe prints what a request means, its target and fields aside.
func describe(r *Request) string {
	return fmt.Sprintf("%s form=%d %q ?%q %v scheme=%q authority=%q minor=%d body=%v keep=%v expect=%v named=%v upgrade=%q unescaped=%v", r.Method, r.Form, r.Path,
		r.Query, r.HasQuery, r.Scheme, r.Authority, r.Minor, r.Body, r.KeepAlive, r.Expect100, r.NamedHops, r.Upgrade, r.Unescaped)
}

func TestFieldsAreKeptInOrderWithoutTheWhitespaceAround(t *testing.T) {
	r, _, err := parseRequest(t, "GET / HTTP/1.1\r\nHost:a\r\nX-A:\t  one\ttwo \xe9\t \r\nX-Empty:\r\nX-Blank: \t\r\nx-a: again: and again\r\ncontent-TYPE: t\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Field{{"Host", "a", FieldHost}, {"X-A", "one\ttwo \xe9", 0}, {"X-Empty", "", 0}, {"X-Blank", "", 0}, {"x-a", "again: and again", 0},
		{"content-TYPE", "t", FieldContentType}}
	if fmt.Sprint(r.Fields) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", r.Fields, want)
	}
	if v, ok := Get(r.Fields, "X-a"); v != "one\ttwo \xe9" || !ok {
		t.Errorf("Get gave %q, %v", v, ok)
	}
}

func TestRepeatedContentLengthIsListedOnce(t *testing.T) {
	r, _, err := parseRequest(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\nX: y\r\n\r\n")
	if err != nil || len(r.Fields) != 3 || r.Fields[2].Name != "X" {
		t.Fatalf("%v, %q", err, r.Fields)
	}
}

func TestTrailerThatAnnouncesWhatIsLeftOutIsDropped(t *testing.T) {
	for value, kept := range map[string]bool{"X-Sum": true, "X-Sum, X-Other": true, "": true, "Content-Length": false, "X-Sum,transfer-encoding": false,
		"Trailer": false, "if-match": false, "Set-Cookie , X": false} {
		r, _, err := parseRequest(t, "POST / HTTP/1.1\r\nHost: a\r\nTrailer: "+value+"\r\nTransfer-Encoding: chunked\r\n\r\n")
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := GetID(r.Fields, FieldTrailer); ok != kept {
			t.Errorf("Trailer: %s is kept: %v, want %v", value, ok, kept)
		}
	}
}

func TestLimits(t *testing.T) {
	head := func(target, fields int) string {
		return "GET /" + strings.Repeat("a", target-1) + " HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", fields-1) + "\r\n"
	}
	line := len("GET  HTTP/1.1\r\n")
	lim := Limits{Line: 100, Head: 200, Fields: 8}
	for _, c := range []struct{ name, head, want string }{
		{"line that just fits", head(100-line, 1), "<nil>"},
		{"line too long", head(101-line, 1), "414 request_line_too_long"},
		{"line without end", strings.Repeat("G", 100), "414 request_line_too_long"},
		{"line that just fits behind an empty one", "\r\n" + head(100-line, 1), "<nil>"},
		{"fault before the line's limit", "GET /\x01" + strings.Repeat("a", 200), "400 invalid_target"},
		{"fault behind the line's limit", "GET /" + strings.Repeat("a", 200) + "\x01", "414 request_line_too_long"},
		{"fields that just fit", head(1, 8), "<nil>"},
		{"too many fields", head(1, 9), "431 too_many_fields"},
		{"head that just fits", "GET / HTTP/1.1\r\nHost: " + strings.Repeat("a", 200-26) + "\r\n\r\n", "<nil>"},
		{"head too large", "GET / HTTP/1.1\r\nHost: " + strings.Repeat("a", 201-26) + "\r\n\r\n", "431 head_too_large"},
		{"head without end", "GET / HTTP/1.1\r\nHost: " + strings.Repeat("a", 500), "431 head_too_large"},
		{"line limit beyond that of the head", strings.Repeat("G", 300), "414 request_line_too_long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Request
			n, err := r.Parse([]byte(c.head), lim)
			if reason(err) != c.want || err == nil && n != len(c.head) {
				t.Errorf("got n=%d %s, want %s", n, reason(err), c.want)
			}
			if again, againErr := parseSlowly(&r, []byte(c.head), lim); again != n || againErr != err {
				t.Errorf("byte by byte: n=%d %v", again, againErr)
			}
		})
	}
	var r Request
	if _, err := r.Parse([]byte(strings.Repeat("G", 60)), Limits{Line: 100, Head: 50}); reason(err) != "431 head_too_large" {
		t.Errorf("head limit below that of the line: %v", err)
	}
}

// parseSlowly gives the parser one byte more at each call, in memory that moves each time.
func parseSlowly(r *Request, head []byte, lim Limits) (n int, err error) {
	for i := range len(head) + 1 {
		if n, err = r.Parse(append([]byte(nil), head[:i]...), lim); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

func TestHeadSplitAnywhereReadsTheSame(t *testing.T) {
	heads := []string{typical, "\r\nPOST http://a:80/?q HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close, x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX: y\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/3.0\r\nHost: a\r\n\r\n", "GET /%41%4 HTTP/1.1\r\nHost: a\r\n\r\n"}
	for _, head := range heads {
		whole := new(Request)
		wantN, wantErr := whole.Parse([]byte(head), Limits{})
		r := new(Request)
		for split := range head {
			n, err := r.Parse([]byte(head[:split]), Limits{})
			if n == 0 && err == nil {
				n, err = r.Parse([]byte(head), Limits{})
			}
			if n != wantN || err != wantErr {
				t.Fatalf("%q split at %d: got %d, %v; want %d, %v", head, split, n, err, wantN, wantErr)
			}
			if err == nil && (describe(r) != describe(whole) || fmt.Sprint(r.Fields) != fmt.Sprint(whole.Fields)) {
				t.Fatalf("%q split at %d: got %s", head, split, describe(r))
			}
		}
		if n, err := parseSlowly(r, []byte(head), Limits{}); n != wantN || err != wantErr {
			t.Fatalf("%q byte by byte: got %d, %v; want %d, %v", head, n, err, wantN, wantErr)
		}
	}
}

func TestIncompleteHeadIsNotParsedAtEachByte(t *testing.T) {
	head := []byte("GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 100) + "\r\n")
	var r Request
	looks := 0
	for i := range head {
		// Parsing for real is what fills Fields again.
		r.Fields = r.Fields[:0]
		if n, err := r.Parse(head[:i+1], Limits{}); err != nil || n != 0 && i != len(head)-1 {
			t.Fatal(i, n, err)
		}
		if len(r.Fields) > 0 {
			looks++
		}
	}
	if looks > 1 {
		t.Errorf("the fields were parsed %d times", looks)
	}
}

func TestFaultyFirstLineIsRefusedBeforeTheHeadIsComplete(t *testing.T) {
	var r Request
	if n, err := r.Parse([]byte("G"), Limits{}); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := r.Parse([]byte("GET / HTTP/9.9\r\n"), Limits{}); reason(err) != "400 unsupported_version" {
		t.Fatal(err)
	}
	// The error leaves no trace.
	if n, err := r.Parse([]byte(typical), Limits{}); n != len(typical) || err != nil {
		t.Fatal(n, err)
	}
}

func TestResetForgetsAPartOfAHead(t *testing.T) {
	var r Request
	r.Parse([]byte("GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), Limits{})
	r.Reset()
	const head = "GET /b HTTP/1.1\r\nHost: b\r\n\r\n"
	if n, err := r.Parse([]byte(head), Limits{}); n != len(head) || err != nil || r.Path != "/b" {
		t.Fatal(n, err, r.Path)
	}
}

func TestPipelinedRequestsAreReadOneByOne(t *testing.T) {
	buf := []byte("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: b\r\nX: y\r\n\r\n")
	var r Request
	n, err := r.Parse(buf, Limits{})
	if err != nil || r.Path != "/1" {
		t.Fatal(n, err)
	}
	m, err := r.Parse(buf[n:], Limits{})
	if err != nil || n+m != len(buf) || r.Path != "/2" || r.Authority != "b" || len(r.Fields) != 2 {
		t.Fatal(m, err, r.Path, r.Authority, r.Fields)
	}
}

func TestParsingAllocatesNothing(t *testing.T) {
	good, bad, part := []byte(typical), []byte("GET / HTTP/1.1\r\nX : y\r\n\r\n"), []byte(typical[:100])
	var r Request
	var p Response
	answer := []byte(typicalResponse)
	r.Parse(good, Limits{})
	p.Parse(answer, Limits{}, "GET")
	if allocs := testing.AllocsPerRun(100, func() {
		r.Parse(part, Limits{})
		r.Parse(good, Limits{})
		r.Parse(bad, Limits{})
		p.Parse(answer, Limits{}, "GET")
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// checkAgainstLibrary fails unless net/http reads the accepted head as r does.
func checkAgainstLibrary(t *testing.T, head string, r *Request) {
	t.Helper()
	// The library knows no leading empty line.
	q, err := http.ReadRequest(bufio.NewReaderSize(strings.NewReader(strings.TrimPrefix(head, "\r\n")), 1<<20))
	if err != nil {
		t.Fatalf("net/http refuses %q: %v", head, err)
	}
	if q.Method != r.Method || q.RequestURI != r.Target || q.ProtoMinor != r.Minor {
		t.Fatalf("net/http reads %q as %s %s 1.%d", head, q.Method, q.RequestURI, q.ProtoMinor)
	}
	if q.Host != r.Authority {
		t.Fatalf("net/http takes %q from %q as the host, not %q", q.Host, head, r.Authority)
	}
	if r.Form == FormOrigin && (q.URL.RawQuery != r.Query || q.URL.ForceQuery != (r.HasQuery && r.Query == "")) {
		t.Fatalf("net/http reads the query of %q as %q", head, q.URL.RawQuery)
	}
	var length int64
	switch r.Body.Kind {
	case BodyLength:
		length = r.Body.Length
	case BodyChunked:
		length = -1
	}
	if q.ContentLength != length || (len(q.TransferEncoding) == 1) != (r.Body.Kind == BodyChunked) {
		t.Fatalf("net/http frames %q as %d %v", head, q.ContentLength, q.TransferEncoding)
	}
	if r.Minor == 1 && r.Form != FormAuthority && q.Close == r.KeepAlive {
		t.Fatalf("net/http takes close=%v from %q", q.Close, head)
	}
	for _, f := range r.Fields {
		if name := http.CanonicalHeaderKey(f.Name); name != "Host" && name != "Transfer-Encoding" && name != "Trailer" && !contains(q.Header[name], f.Value) {
			t.Fatalf("net/http lacks %q of %q: %q", f.Value, f.Name, q.Header)
		}
	}
}

func contains(values []string, v string) bool {
	for _, o := range values {
		if o == v {
			return true
		}
	}
	return false
}

func TestRequestsAreReadAsNetHTTPReadsThem(t *testing.T) {
	for _, head := range []string{typical,
		"GET / HTTP/1.0\r\n\r\n",
		"GET //x//y HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /a:b@c;d=e,f%2Fg?h=[i]&%25&%zz HTTP/1.1\r\nHost: a:1\r\n\r\n",
		"HEAD http://a:8080/x?y HTTP/1.1\r\nHost: a:8080\r\n\r\n",
		"GET http://a HTTP/1.1\r\nHost: A\r\n\r\n",
		"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
		"CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 007\r\nContent-Length: 007\r\n\r\n1234567",
		"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n0\r\n\r\n",
		"PATCH / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tCHUNKED \r\n\r\n0\r\n\r\n",
		"DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\nX: \t a \xff b \t\r\n\r\n",
		"GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
	} {
		r, n, err := parseRequest(t, head)
		if n == 0 || err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		checkAgainstLibrary(t, head, r)
	}
}
