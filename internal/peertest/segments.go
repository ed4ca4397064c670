package peertest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// holder is a socket below TLS that can keep what is written to it.
type holder struct {
	net.Conn
	holds bool
	held  []byte
}

func (h *holder) Write(p []byte) (int, error) {
	if !h.holds {
		return h.Conn.Write(p)
	}
	h.held = append(h.held, p...)
	return len(p), nil
}

// Segmented is a backend whose answers come in chosen records and chosen writes to the socket, some of them only when the test says so.
type Segmented struct {
	T   testing.TB
	TLS *TLS // nil for cleartext
	// Answer says what is sent in answer to a request, one call at a time.
	Answer func(*http.Request) Segments

	mu    sync.Mutex
	conns int
	later []func() // what is still to be sent, in order
}

// Segments is an answer: plain texts that become records of their own, and where the stream of these is cut.
type Segments struct {
	Records []string
	// now are bytes of the stream to be sent at once, -1 for all of it; those up to then, if not 0, are sent by the next flush, and the others never.
	// Both count from the beginning of record number from.
	From, Now, Then int
	// Cuts are lengths of further writes that what is sent at once is cut into.
	Cuts []int
}

// Address runs the backend.
func (b *Segmented) Address() string {
	return Raw(b.T, func(_ int, c net.Conn) {
		b.mu.Lock()
		b.conns++
		b.mu.Unlock()
		h := &holder{Conn: c}
		var out net.Conn = h
		if b.TLS != nil {
			tc := tls.Server(h, b.TLS.Config)
			if tc.Handshake() != nil {
				return
			}
			out = tc
		}
		for r := bufio.NewReader(out); ; {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			b.mu.Lock()
			answer := b.Answer(req)
			b.mu.Unlock()
			b.send(h, out, answer)
		}
	})
}

func (b *Segmented) send(h *holder, out io.Writer, s Segments) {
	h.holds, h.held = true, h.held[:0]
	from := 0
	for i, text := range s.Records {
		if i == s.From {
			from = len(h.held)
		}
		io.WriteString(out, text)
	}
	if s.From == len(s.Records) {
		from = len(h.held)
	}
	h.holds = false
	whole := bytes.Clone(h.held)
	now := len(whole)
	if s.Now >= 0 {
		now = min(from+s.Now, len(whole))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if then := min(from+s.Then, len(whole)); s.Now >= 0 && then > now {
		b.later = append(b.later, func() { h.Conn.Write(whole[now:then]) })
	}
	rest := whole[:now]
	for _, n := range s.Cuts {
		n = min(n, len(rest))
		h.Conn.Write(rest[:n])
		rest = rest[n:]
	}
	if len(rest) > 0 {
		h.Conn.Write(rest)
	}
}

// Flush sends what was held back. It is in the proxy's socket, if there is one still, on return.
func (b *Segmented) Flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.later {
		f()
	}
	b.later = nil
}

// Accepted is how many connections there were.
func (b *Segmented) Accepted() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conns
}

// Poison is an answer that nobody asked for.
const Poison = "HTTP/1.1 200 OK\r\nX-Nonce: poison\r\nContent-Length: 6\r\n\r\npoison"

// EachTransport runs f in cleartext and over TLS.
func EachTransport(t *testing.T, f func(t *testing.T, side *TLS)) {
	t.Run("cleartext", func(t *testing.T) { f(t, nil) })
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) { f(t, NewTLS(t, version)) })
	}
}

// EachBehind runs f with every case of bytes behind an answer, in every split, in cleartext and over TLS. In short runs a sixth of the pairs has every
// case and every split twice.
func EachBehind(t *testing.T, f func(t *testing.T, side *TLS, test BehindCase, name string, split Segments)) {
	step := 1
	if testing.Short() {
		step = 6
	}
	EachTransport(t, func(t *testing.T, side *TLS) {
		for i, test := range BehindCases {
			splits := behindSplits(test.Answer, test.Behind)
			for j, name := range slices.Sorted(maps.Keys(splits)) {
				if (i+j)%step == 0 {
					f(t, side, test, name, splits[name])
				}
			}
		}
	})
}

// BehindCase is an answer to a method, and bytes behind it.
type BehindCase struct{ Name, Method, Answer, Behind string }

// BehindCases are answers with bytes behind them: those that no HTTP client takes for a part of the answer.
var BehindCases = []BehindCase{
	{"HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n", Poison},
	{"HEAD with a chunked body", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"},
	{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", Poison},
	{"304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 64\r\n\r\n", Poison},
	{"no content", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Poison},
	{"beyond Content-Length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Poison},
	{"beyond a long Content-Length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("x", 9000), Poison},
	{"behind the last chunk", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", Poison},
	{"behind trailers", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n", Poison},
	{"behind an interim answer and the final one", "GET", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Poison},
	{"an interim answer behind the final one", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 103 Early Hints\r\nX-Nonce: poison\r\n\r\n"},
	{"100 behind the final one", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 100 Continue\r\n\r\n"},
}

// behindSplits are ways in which the bytes behind an answer come.
func behindSplits(answer, behind string) map[string]Segments {
	two := []string{answer, behind}
	return map[string]Segments{
		"one record":               {Records: []string{answer + behind}, Now: -1},
		"two records":              {Records: two, Now: -1},
		"three records":            {Records: []string{answer, behind[:3], behind[3:]}, Now: -1},
		"across records":           {Records: []string{answer + behind[:3], behind[3:]}, Now: -1},
		"an octet":                 {Records: two, From: 1, Now: 1, Then: 1},
		"an octet, the rest later": {Records: two, From: 1, Now: 1, Then: 1 << 20},
		"a record's header":        {Records: two, From: 1, Now: 5, Then: 5},
		"a header, the rest later": {Records: two, From: 1, Now: 5, Then: 1 << 20},
		"a record in part":         {Records: two, From: 1, Now: 20, Then: 20},
		"in part, the rest later":  {Records: two, From: 1, Now: 20, Then: 1 << 20},
		"later":                    {Records: two, From: 1, Now: 0, Then: 1 << 20},
		"later, in part":           {Records: two, From: 1, Now: 0, Then: 7},
	}
}
