package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
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

// FuzzForwardedRequest holds what the proxy sends for whatever Parse accepts against net/http, in all that means something: one request, with
// the method, target, host, fields, framing and body that were meant, and the next request right behind it.
func FuzzForwardedRequest(f *testing.F) {
	for _, head := range []string{typical, "GET http://a/%41?%4\"|x HTTP/1.1\r\nHost: a\r\nConnection: close,x\r\nX: y\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 05\r\nContent-Length: 05\r\n\r\nhello", "PUT /{a} HTTP/1.0\r\nHost: a:\r\nContent-Length: 1\r\n\r\nx",
		"GET //a?? HTTP/1.1\r\nHost: [::1]:80\r\nX: \xff\r\nx:\r\nExpect: 100-continue\r\nTrailer: Host\r\n\r\n"} {
		f.Add([]byte(head))
	}
	const next = "GET /next HTTP/1.1\r\nHost: next\r\n\r\n"
	f.Fuzz(func(t *testing.T, in []byte) {
		var r Request
		n, err := r.Parse(in, Limits{Line: 512, Head: 2048, Fields: 16})
		if err != nil || n == 0 || r.Authority == "" || r.Form == FormAuthority || r.Path == "*" {
			return
		}
		body, trailers := in[n:], []Field(nil)
		switch r.Body.Kind {
		case BodyNone:
			body = nil
		case BodyLength:
			if r.Body.Length > int64(len(body)) {
				return
			}
			body = body[:r.Body.Length]
		case BodyChunked:
			if body, trailers, _, err = decode(string(body), len(body)+1); err != nil {
				return
			}
		}
		target := string(AppendEscaped(nil, r.Path))
		if r.HasQuery {
			target = string(AppendEscaped([]byte(target+"?"), r.Query))
		}
		out := AppendField(AppendRequestLine(nil, r.Method, target), "Host", r.Authority)
		want := http.Header{}
		for i := range r.Fields {
			if f := &r.Fields[i]; f.ID != FieldHost && f.ID != FieldContentLength && f.ID != FieldExpect && !HopByHop(f, r.Fields) {
				out = AppendField(out, f.Name, f.Value)
				if f.ID != FieldTrailer {
					want.Add(f.Name, f.Value)
				}
			}
		}
		out = AppendEnd(AppendBody(out, r.Body))
		if r.Body.Kind == BodyChunked {
			out = AppendLastChunk(AppendChunk(out, body), trailers)
		} else {
			out = append(out, body...)
		}
		br := bufio.NewReaderSize(bytes.NewReader(append(out, next...)), 1<<16)
		q, err := http.ReadRequest(br)
		if err != nil {
			t.Fatalf("net/http refuses %q, made of %q: %v", out, in, err)
		}
		got, err := io.ReadAll(q.Body)
		if err != nil || q.Method != r.Method || q.RequestURI != target || q.Host != r.Authority || !bytes.Equal(got, body) || q.ProtoMinor != 1 {
			t.Fatalf("net/http reads %q as %s %s of %s with %q, %v", out, q.Method, q.RequestURI, q.Host, got, err)
		}
		q.Header.Del("Content-Length") // compared above, by the body
		q.Header.Del("Trailer")        // kept here only where it means nothing
		if want.Get("Cache-Control") == "" && want.Get("Pragma") != "" {
			q.Header.Del("Cache-Control") // net/http makes it of Pragma
		}
		for name := range q.Header {
			if !slices.Equal(q.Header[name], want[name]) {
				t.Fatalf("net/http reads %q of %q as %q, want %q", name, out, q.Header[name], want[name])
			}
		}
		if len(want) > len(q.Header) {
			t.Fatalf("net/http reads the fields of %q as %q, want %q", out, q.Header, want)
		}
		for _, f := range trailers {
			if !slices.Contains(q.Trailer.Values(f.Name), f.Value) {
				t.Fatalf("net/http reads the trailers of %q as %q", out, q.Trailer)
			}
		}
		if after, err := http.ReadRequest(br); err != nil || after.RequestURI != "/next" {
			t.Fatalf("net/http does not find the next request behind %q: %v", out, err)
		}
	})
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
			if err == error(requestErrors[faultExpectation]) {
				return // HTTP/1.0 has no expectations (RFC 9110 §10.1.1)
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
		got, err := io.ReadAll(httputil.NewChunkedReader(tail))
		// The library takes no whitespace between a chunk's size and its extension, which RFC 9112 §7.1.1 has recipients remove (BWS).
		spaced := err != nil && (bytes.Contains(body, []byte(" ;")) || bytes.Contains(body, []byte("\t;")))
		if !spaced && (err != nil || !bytes.Equal(got, data)) {
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
