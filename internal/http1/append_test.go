package http1

import "testing"

func TestHeadsAreSerialised(t *testing.T) {
	b := AppendRequestLine(nil, "GET", "/a?b")
	b = AppendField(b, "Host", "a")
	b = AppendBody(b, Body{BodyLength, 1234567890123})
	b = AppendBody(b, Body{Kind: BodyChunked})
	b = AppendBody(b, Body{})
	b = AppendBody(b, Body{Kind: BodyUntilClose})
	b = AppendEnd(b)
	const want = "GET /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 1234567890123\r\nTransfer-Encoding: chunked\r\n\r\n"
	if string(b) != want {
		t.Errorf("got %q", b)
	}
	for _, c := range []struct {
		status       int
		reason, want string
	}{
		{200, "", "HTTP/1.1 200 OK\r\n"}, {200, "Fine", "HTTP/1.1 200 Fine\r\n"}, {404, "", "HTTP/1.1 404 Not Found\r\n"}, {599, "", "HTTP/1.1 599 \r\n"},
		{100, "Continue", "HTTP/1.1 100 Continue\r\n"},
	} {
		if got := string(AppendStatusLine(nil, c.status, c.reason)); got != c.want {
			t.Errorf("%d %q: %q", c.status, c.reason, got)
		}
	}
}

func TestSerialisingAllocatesNothing(t *testing.T) {
	dst := make([]byte, 0, 4096)
	data := make([]byte, 100)
	trailers := []Field{{Name: "A", Value: "b"}}
	if allocs := testing.AllocsPerRun(100, func() {
		dst = AppendRequestLine(dst[:0], "GET", "/")
		dst = AppendStatusLine(dst, 503, "")
		dst = AppendField(dst, "A", "b")
		dst = AppendContentLength(dst, 1<<40)
		dst = AppendChunk(dst, data)
		dst = AppendLastChunk(dst, trailers)
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
