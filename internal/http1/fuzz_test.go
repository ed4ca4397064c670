package http1

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httputil"
	"strings"
	"testing"
)

// serialise writes r again as a proxy would: its own request line and framing, the other fields as they came.
func serialise(r *Request) []byte {
	b := AppendRequestLine(nil, r.Method, r.Target)
	for i := range r.Fields {
		if f := &r.Fields[i]; f.ID != FieldContentLength && f.ID != FieldTransferEncoding {
			b = AppendField(b, f.Name, f.Value)
		}
	}
	return AppendEnd(AppendBody(b, r.Body))
}

func FuzzRequest(f *testing.F) {
	for _, head := range []string{typical, "\r\nGET http://a/%41?%4 HTTP/1.1\r\nHost: a\r\nConnection: close,x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 05\r\nContent-Length: 05\r\n\r\n",
		"CONNECT [::1]:1 HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", "OPTIONS * HTTP/1.0\r\nHost: a:\r\nUpgrade: x\r\nExpect: 100-continue\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX: \t\xff\x7f\r\n\r\n", "GET / HTTP/1.1\nHost: a\r\n b\r\n\r\n"} {
		f.Add([]byte(head), uint8(7))
	}
	lim := Limits{Line: 512, Head: 2048, Fields: 16}
	f.Fuzz(func(t *testing.T, head []byte, step uint8) {
		var r, slow Request
		n, err := r.Parse(head, lim)
		if n < 0 || n > len(head) || n > 0 && err != nil {
			t.Fatalf("n=%d of %d, %v", n, len(head), err)
		}

		slowN, slowErr := 0, error(nil)
		for end := 0; slowN == 0 && slowErr == nil; end += int(step)%64 + 1 {
			slowN, slowErr = slow.Parse(bytes.Clone(head[:min(end, len(head))]), lim)
			if end >= len(head) {
				break
			}
		}
		if slowN == 0 && slowErr == nil && err != nil {
			// A fault in a head that is not complete may be found out later.
			_, slowErr = slow.Parse(append(bytes.Clone(head), "\r\n\r\n"...), lim)
		}
		if slowN != n || slowErr != err {
			t.Fatalf("in steps: n=%d, %v; at once: n=%d, %v", slowN, slowErr, n, err)
		}
		if n == 0 {
			return
		}
		if describe(&slow) != describe(&r) || fmt.Sprint(slow.Fields) != fmt.Sprint(r.Fields) {
			t.Fatalf("in steps: %s %q", describe(&slow), slow.Fields)
		}

		checkAgainstLibrary(t, string(head[:n]), &r)

		again := serialise(&r)
		var r2 Request
		n2, err := r2.Parse(again, Limits{})
		if r.Minor == 0 {
			// Serialised as HTTP/1.1, it needs a Host, keeps alive, and means its Expect and Upgrade.
			if _, ok := GetID(r.Fields, FieldHost); !ok {
				return
			}
			r2.Minor, r2.KeepAlive, r2.Expect100, r2.Upgrade = 0, r.KeepAlive, false, ""
		}
		if err != nil || n2 != len(again) || describe(&r2) != describe(&r) {
			t.Fatalf("serialised: %q: %v\n%s\n%s", again, err, describe(&r2), describe(&r))
		}
		if third := serialise(&r2); !bytes.Equal(third, again) {
			t.Fatalf("serialised twice: %q, %q", again, third)
		}
	})
}

func FuzzResponse(f *testing.F) {
	for _, head := range []string{typicalResponse, "HTTP/1.1 204\r\nContent-Length: 5\r\n\r\n", "HTTP/1.0 101 \r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 304 Not Modified\nX : y\r\n\r\n"} {
		f.Add([]byte(head), uint8(0), uint8(7))
	}
	lim := Limits{Line: 512, Head: 2048, Fields: 16}
	f.Fuzz(func(t *testing.T, head []byte, which, step uint8) {
		method := []string{"GET", "HEAD", "CONNECT"}[which%3]
		var r, slow Response
		n, err := r.Parse(head, lim, method)
		if n < 0 || n > len(head) || n > 0 && err != nil {
			t.Fatalf("n=%d of %d, %v", n, len(head), err)
		}
		slowN, slowErr := 0, error(nil)
		for end := 0; slowN == 0 && slowErr == nil; end += int(step)%64 + 1 {
			slowN, slowErr = slow.Parse(bytes.Clone(head[:min(end, len(head))]), lim, method)
			if end >= len(head) {
				break
			}
		}
		if slowN == 0 && slowErr == nil && err != nil {
			_, slowErr = slow.Parse(append(bytes.Clone(head), "\r\n\r\n"...), lim, method)
		}
		if slowN != n || slowErr != err {
			t.Fatalf("in steps: n=%d, %v; at once: n=%d, %v", slowN, slowErr, n, err)
		}
		if n == 0 {
			return
		}
		if (r.Body.Kind == BodyNone || r.Body.Kind == BodyUntilClose) && r.Body.Length != 0 || r.Body.Kind == BodyUntilClose && r.KeepAlive {
			t.Fatalf("body %v, keep-alive %v", r.Body, r.KeepAlive)
		}
		if r.Status != 101 {
			checkResponseAgainstLibrary(t, string(head[:n]), method, &r)
		}
		b := AppendStatusLine(nil, r.Status, r.Reason)
		for i := range r.Fields {
			if f := &r.Fields[i]; f.ID != FieldContentLength && f.ID != FieldTransferEncoding {
				b = AppendField(b, f.Name, f.Value)
			}
		}
		b = AppendEnd(AppendBody(b, r.Body))
		var r2 Response
		if n, err := r2.Parse(b, Limits{}, method); err != nil || n != len(b) || r2.Status != r.Status || r2.Body != r.Body {
			t.Fatalf("serialised %q: %v, %v", b, err, r2.Body)
		}
	})
}

func FuzzChunked(f *testing.F) {
	for _, body := range []string{"5\r\nhello\r\n0\r\n\r\n", "1;a=\"b\\\"\" ; c\r\nx\r\n0\r\nX: y\r\n\r\n", "00000000000000f\r\n", "1\r\nx\n0\r\n\r\n", "0\r\nContent-Length: 1\r\nX: y\r\n\r\nmore"} {
		f.Add([]byte(body), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, step uint8) {
		data, trailers, rest, err := decode(string(body), len(body)+1)
		slowData, slowTrailers, slowRest, slowErr := decode(string(body), int(step)%16+1)
		if err != slowErr || !bytes.Equal(data, slowData) || rest != slowRest || fmt.Sprint(trailers) != fmt.Sprint(slowTrailers) {
			t.Fatalf("at once %q %q %v; in steps %q %q %v", data, rest, err, slowData, slowRest, slowErr)
		}
		if err != nil {
			return
		}
		// The library's reader leaves the trailer section behind.
		tail := bytes.NewReader(body)
		if got, err := io.ReadAll(httputil.NewChunkedReader(tail)); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("net/http decodes %q as %q, %v", body, got, err)
		}
		if !strings.HasSuffix(string(body), rest) {
			t.Fatalf("rest %q of %q", rest, body)
		}
		again := AppendLastChunk(AppendChunk(nil, data), trailers)
		data2, trailers2, rest2, err := decode(string(again), len(again))
		if err != nil || !bytes.Equal(data, data2) || fmt.Sprint(trailers) != fmt.Sprint(trailers2) || rest2 != "" {
			t.Fatalf("serialised %q: %q %v %v", again, data2, trailers2, err)
		}
	})
}
