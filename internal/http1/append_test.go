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

func TestPathsAndQueriesAreEscaped(t *testing.T) {
	for s, want := range map[string]string{
		"":                                   "",
		"/a%2Fb;c=1,2/~:@!$&'()*+?/d=e":      "/a%2Fb;c=1,2/~:@!$&'()*+?/d=e",
		"\"<>[\\]^`{|}":                      "%22%3C%3E%5B%5C%5D%5E%60%7B%7C%7D",
		"100%&a=%z1&b=%1z&c=%4&d=%41&e=%%41": "100%25&a=%25z1&b=%251z&c=%254&d=%41&e=%25%41",
		"%":                                  "%25",
	} {
		if got := string(AppendEscaped(nil, s)); got != want {
			t.Errorf("%q is escaped as %q, want %q", s, got, want)
		}
		if again := string(AppendEscaped(nil, want)); again != want {
			t.Errorf("%q is escaped again as %q", want, again)
		}
	}
}

func TestTargetsAreCheckedAsTheParserDoes(t *testing.T) {
	for _, target := range []string{"/", "/a?b", "/%41", "/%4", "/%zz", "/?%zz", "/?%", "/a|b", "/?a|b", "/#", "/ ", "/\x7f", "/\xff", "/a??%", "//[]"} {
		var r Request
		_, err := r.Parse([]byte("GET "+target+" HTTP/1.1\r\nHost: a\r\n\r\n"), Limits{})
		valid, unescaped := CheckTarget(target)
		if valid != (err == nil) || valid && unescaped != r.Unescaped {
			t.Errorf("%q: %v, %v; the parser says %v, %v", target, valid, unescaped, err, r.Unescaped)
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
