package http1

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestMalformedResponseIsRefused(t *testing.T) {
	for _, c := range []struct{ name, head, want string }{
		// RFC 9112 §4: status line
		{"not HTTP", "SSH-2.0-OpenSSH_9.2\r\n", "invalid_status_line"},
		{"HTTP/2.0", "HTTP/2.0 200 OK\r\n\r\n", "invalid_status_line"},
		{"HTTP/1.2", "HTTP/1.2 200 OK\r\n\r\n", "unsupported_version"},
		{"lower case", "http/1.1 200 OK\r\n\r\n", "invalid_status_line"},
		{"empty line first", "\r\nHTTP/1.1 200 OK\r\n\r\n", "invalid_status_line"},
		{"two digits", "HTTP/1.1 20 OK\r\n\r\n", "invalid_status_line"},
		{"four digits", "HTTP/1.1 2000 OK\r\n\r\n", "invalid_status_line"},
		{"below 100", "HTTP/1.1 099 OK\r\n\r\n", "invalid_status_line"},
		{"above 599", "HTTP/1.1 600 OK\r\n\r\n", "invalid_status_line"},
		{"signed status", "HTTP/1.1 +20 OK\r\n\r\n", "invalid_status_line"},
		{"two spaces", "HTTP/1.1  200 OK\r\n\r\n", "invalid_status_line"},
		{"tab", "HTTP/1.1\t200 OK\r\n\r\n", "invalid_status_line"},
		{"no status", "HTTP/1.1\r\n\r\n", "invalid_status_line"},
		{"NUL in reason", "HTTP/1.1 200 O\x00K\r\n\r\n", "invalid_status_line"},
		{"bare LF", "HTTP/1.1 200 OK\nX: y\r\n\r\n", "bare_lf"},
		{"bare CR", "HTTP/1.1 200 OK\rX: y\r\n\r\n", "bare_cr"},
		// §5: fields
		{"bare LF behind field", "HTTP/1.1 200 OK\r\nX: y\n\r\n", "bare_lf"},
		{"folded", "HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n", "folded_field"},
		{"space before colon", "HTTP/1.1 200 OK\r\nX : y\r\n\r\n", "space_before_colon"},
		{"control byte", "HTTP/1.1 200 OK\r\nX: \x01\r\n\r\n", "invalid_field_value"},
		// §6.3: framing
		{"length and coding", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "content_length_and_transfer_encoding"},
		{"different lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "conflicting_content_length"},
		{"bad length", "HTTP/1.1 200 OK\r\nContent-Length: 1a\r\n\r\n", "invalid_content_length"},
		{"gzip", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "invalid_transfer_encoding"},
		{"gzip, chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "unsupported_transfer_encoding"},
		{"coding in 1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "transfer_encoding_in_http10"},
		// limits
		{"line too long", "HTTP/1.1 200 " + strings.Repeat("a", 200) + "\r\n\r\n", "status_line_too_long"},
		{"head too large", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 300) + "\r\n\r\n", "head_too_large"},
		{"too many fields", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: a\r\n", 9) + "\r\n", "too_many_fields"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Response
			n, err := r.Parse([]byte(c.head), Limits{Line: 100, Head: 200, Fields: 8}, "GET")
			if err == nil || reason(err) != "502 "+c.want {
				t.Fatalf("got n=%d, %q; want %q", n, reason(err), c.want)
			}
		})
	}
}

func TestResponseBodyIsFramedByRequestAndStatus(t *testing.T) {
	for _, c := range []struct {
		name, method, head string
		want               Body
		keep               bool
		fields             int
	}{
		{"length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Body{BodyLength, 5}, true, 1},
		{"zero length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Body{BodyLength, 0}, true, 1},
		{"chunked", "POST", "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n", Body{Kind: BodyChunked}, true, 1},
		{"until close", "GET", "HTTP/1.1 200 OK\r\n\r\n", Body{Kind: BodyUntilClose}, false, 0},
		{"close", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n", Body{BodyLength, 5}, false, 2},
		{"1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", Body{BodyLength, 5}, false, 1},
		{"1.0 kept alive", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n", Body{BodyLength, 5}, true, 2},
		{"HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Body{}, true, 1},
		{"HEAD, chunked", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Body{}, true, 1},
		{"HEAD, unknown length", "HEAD", "HTTP/1.1 200 OK\r\n\r\n", Body{}, true, 0},
		{"304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", Body{}, true, 1},
		{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", Body{}, true, 0},
		{"204 with length 0", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nX: y\r\n\r\n", Body{}, true, 1},
		{"204 that announces a body", "GET", "HTTP/1.1 204 No Content\r\nX: y\r\nContent-Length: 5\r\n\r\n", Body{}, false, 1},
		{"204, chunked", "GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", Body{}, false, 0},
		{"100", "POST", "HTTP/1.1 100 Continue\r\n\r\n", Body{}, true, 0},
		{"103", "GET", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", Body{}, true, 1},
		{"101", "GET", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", Body{}, false, 2},
		{"tunnel", "CONNECT", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Body{}, false, 0},
		{"refused tunnel", "CONNECT", "HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\n\r\n", Body{BodyLength, 5}, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Response
			n, err := r.Parse([]byte(c.head+"body"), Limits{}, c.method)
			if err != nil || n != len(c.head) {
				t.Fatalf("got n=%d, %v", n, err)
			}
			if r.Body != c.want || r.KeepAlive != c.keep || len(r.Fields) != c.fields {
				t.Errorf("got %v, keep-alive %v, fields %q", r.Body, r.KeepAlive, r.Fields)
			}
		})
	}
}

func TestStatusLineIsRead(t *testing.T) {
	for _, c := range []struct {
		line   string
		status int
		reason string
		minor  int
	}{
		{"HTTP/1.1 200 OK", 200, "OK", 1},
		{"HTTP/1.0 599 Any \tword \xe9", 599, "Any \tword \xe9", 0},
		{"HTTP/1.1 200 ", 200, "", 1},
		{"HTTP/1.1 200", 200, "", 1},
		{"HTTP/1.1 100 Continue", 100, "Continue", 1},
	} {
		var r Response
		if n, err := r.Parse([]byte(c.line+"\r\n\r\n"), Limits{}, "GET"); n == 0 || err != nil || r.Status != c.status || r.Reason != c.reason || r.Minor != c.minor {
			t.Errorf("%q: %d %v %d %q", c.line, n, err, r.Status, r.Reason)
		}
	}
}

func TestUpgradeOfResponse(t *testing.T) {
	var r Response
	for head, want := range map[string]string{
		"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n": "websocket",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n":                        "",
		"HTTP/1.1 426 Upgrade Required\r\nConnection: upgrade\r\nUpgrade: TLS/1.0\r\n\r\n":      "",
	} {
		if _, err := r.Parse([]byte(head), Limits{}, "GET"); err != nil || r.Upgrade != want {
			t.Errorf("%q: %v, %q", head, err, r.Upgrade)
		}
	}
}

func TestResponseSplitAnywhereReadsTheSame(t *testing.T) {
	for _, head := range []string{typicalResponse, "HTTP/1.1 200\r\nX: y\r\n\r\n", "HTTP/1.1 200 OK\r\nX: y\n\r\n", "HTTP/1.1 700 OK\r\n\r\n"} {
		var whole, r Response
		wantN, wantErr := whole.Parse([]byte(head), Limits{}, "GET")
		for step := 1; step <= len(head); step++ {
			n, err := 0, error(nil)
			for end := step; n == 0 && err == nil; end += step {
				n, err = r.Parse([]byte(head[:min(end, len(head))]), Limits{}, "GET")
			}
			if n != wantN || err != wantErr || err == nil && fmt.Sprint(r.Fields) != fmt.Sprint(whole.Fields) {
				t.Fatalf("%q in steps of %d: got %d, %v; want %d, %v", head, step, n, err, wantN, wantErr)
			}
		}
	}
}

// checkResponseAgainstLibrary fails unless net/http reads the accepted head as r does.
func checkResponseAgainstLibrary(t *testing.T, head, method string, r *Response) {
	t.Helper()
	q, err := http.ReadResponse(bufio.NewReaderSize(strings.NewReader(head), 1<<20), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("net/http refuses %q: %v", head, err)
	}
	if q.StatusCode != r.Status || q.ProtoMinor != r.Minor {
		t.Fatalf("net/http reads %q as %d 1.%d", head, q.StatusCode, q.ProtoMinor)
	}
	if r.Body.Kind == BodyLength && q.ContentLength != r.Body.Length || r.Body.Kind == BodyChunked && len(q.TransferEncoding) != 1 {
		t.Fatalf("net/http frames %q as %d %v", head, q.ContentLength, q.TransferEncoding)
	}
	if r.KeepAlive && q.Close {
		t.Fatalf("net/http closes after %q", head)
	}
}
