package http1

import (
	"strings"
	"testing"
)

func TestBeginsTellsRequestsFromOtherProtocols(t *testing.T) {
	for text, want := range map[string]Beginning{
		"":                                   BeginsOpen,
		"G":                                  BeginsOpen,
		"GET /":                              BeginsOpen,
		"GET / HTTP/1.1":                     BeginsOpen,
		"GET / HTTP/1.1\r":                   BeginsOpen,
		"\r":                                 BeginsOpen,
		"\r\nGET":                            BeginsOpen,
		"PRI * HTTP/2.0\r":                   BeginsOpen,
		strings.Repeat("A", longestMethod):   BeginsOpen,
		"GET / HTTP/1.1\r\n":                 BeginsRequest,
		"GET / HTTP/1.1\n":                   BeginsRequest,
		"\r\nGET / HTTP/1.0\r\nHost":         BeginsRequest,
		"get / HTTP/1.1\r\n":                 BeginsRequest, // Parse refuses it
		"GET / a HTTP/3.x\r\n":               BeginsRequest,
		"GET /\xc3\xa4 HTTP/1.1\r\n":         BeginsRequest,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":   BeginsRequest,
		"\r\n\r\n\x00\r\nQUIT\n":             BeginsOther, // a PROXY header
		"\rG":                                BeginsOther,
		"\n":                                 BeginsOther,
		" GET":                               BeginsOther,
		"GET\t/":                             BeginsOther,
		"GET /\r\n":                          BeginsOther,
		"GET key\r\n":                        BeginsOther, // Redis
		"GET /\x00":                          BeginsOther,
		"GET / HTTP/1.1\rX":                  BeginsOther,
		"GET  HTTP/1.1 \r\n":                 BeginsOther,
		"GET HTTP/1.1\r\n":                   BeginsOther,
		"OPTIONS rtsp://a RTSP/1.0\r\n":      BeginsOther,
		"PING\r\n":                           BeginsOther,
		"\x16\x03\x01":                       BeginsOther,
		strings.Repeat("A", longestMethod+1): BeginsOther,
	} {
		if got := Begins([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	text := []byte(typical)
	if n := testing.AllocsPerRun(100, func() { Begins(text) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzBegins holds that what Parse accepts is a request, that no beginning of a request is anything else, and that an
// answer stays when more bytes come.
func FuzzBegins(f *testing.F) {
	for _, text := range []string{typical, "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "EHLO a\r\n", "get k\r\n", "\r\n\r\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole := Begins(in)
		var r Request
		if n, err := r.Parse(in, Limits{}); n > 0 && err == nil && len(r.Method) <= longestMethod && whole != BeginsRequest {
			t.Fatalf("%q is parsed, and begins as %d", in, whole)
		}
		before := BeginsOpen
		for i := range in[:min(len(in), 300)] {
			now := Begins(in[:i])
			if before != BeginsOpen && now != before || whole == BeginsRequest && now == BeginsOther {
				t.Fatalf("%q: %d, then %d, and %d whole", in[:i], before, now, whole)
			}
			before = now
		}
	})
}
