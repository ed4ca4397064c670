package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
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

// segmented is a backend whose answers come in chosen records and chosen writes to the socket, some of them only when the test says so.
type segmented struct {
	t   testing.TB
	tls *backendTLS // nil for cleartext
	// answer says what is sent in answer to a request, one call at a time.
	answer func(*http.Request) segments

	mu    sync.Mutex
	conns int
	later []func() // what is still to be sent, in order
}

// segments is an answer: plain texts that become records of their own, and where the stream of these is cut.
type segments struct {
	records []string
	// now are bytes of the stream to be sent at once, -1 for all of it; those up to then, if not 0, are sent by the next flush, and the others never.
	// Both count from the beginning of record number from.
	from, now, then int
	// cuts are lengths of further writes that what is sent at once is cut into.
	cuts []int
}

// address runs the backend.
func (b *segmented) address() string {
	return rawMirror(b.t, func(_ int, c net.Conn) {
		b.mu.Lock()
		b.conns++
		b.mu.Unlock()
		h := &holder{Conn: c}
		var out net.Conn = h
		if b.tls != nil {
			tc := tls.Server(h, b.tls.config)
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
			answer := b.answer(req)
			b.mu.Unlock()
			b.send(h, out, answer)
		}
	})
}

func (b *segmented) send(h *holder, out io.Writer, s segments) {
	h.holds, h.held = true, h.held[:0]
	from := 0
	for i, text := range s.records {
		if i == s.from {
			from = len(h.held)
		}
		io.WriteString(out, text)
	}
	if s.from == len(s.records) {
		from = len(h.held)
	}
	h.holds = false
	whole := bytes.Clone(h.held)
	now := len(whole)
	if s.now >= 0 {
		now = min(from+s.now, len(whole))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if then := min(from+s.then, len(whole)); s.now >= 0 && then > now {
		b.later = append(b.later, func() { h.Conn.Write(whole[now:then]) })
	}
	rest := whole[:now]
	for _, n := range s.cuts {
		n = min(n, len(rest))
		h.Conn.Write(rest[:n])
		rest = rest[n:]
	}
	if len(rest) > 0 {
		h.Conn.Write(rest)
	}
}

// flush sends what was held back. It is in the proxy's socket, if there is one still, on return.
func (b *segmented) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.later {
		f()
	}
	b.later = nil
}

func (b *segmented) accepted() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conns
}

const poison = "HTTP/1.1 200 OK\r\nX-Nonce: poison\r\nContent-Length: 6\r\n\r\npoison"

// eachTransport runs f in cleartext and over TLS.
func eachTransport(t *testing.T, f func(t *testing.T, side *backendTLS)) {
	t.Run("cleartext", func(t *testing.T) { f(t, nil) })
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) { f(t, newBackendTLS(t, version)) })
	}
}

// behindCases are answers with bytes behind them: those that no HTTP client takes for a part of the answer.
var behindCases = []struct{ name, method, answer, behind string }{
	{"HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n", poison},
	{"HEAD with a chunked body", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"},
	{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", poison},
	{"304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 64\r\n\r\n", poison},
	{"no content", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", poison},
	{"beyond Content-Length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", poison},
	{"beyond a long Content-Length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("x", 9000), poison},
	{"behind the last chunk", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", poison},
	{"behind trailers", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n", poison},
	{"behind an interim answer and the final one", "GET", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", poison},
	{"an interim answer behind the final one", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 103 Early Hints\r\nX-Nonce: poison\r\n\r\n"},
	{"100 behind the final one", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 100 Continue\r\n\r\n"},
}

// behindSplits are ways in which the bytes behind an answer come.
func behindSplits(answer, behind string) map[string]segments {
	two := []string{answer, behind}
	return map[string]segments{
		"one record":               {records: []string{answer + behind}, now: -1},
		"two records":              {records: two, now: -1},
		"three records":            {records: []string{answer, behind[:3], behind[3:]}, now: -1},
		"across records":           {records: []string{answer + behind[:3], behind[3:]}, now: -1},
		"an octet":                 {records: two, from: 1, now: 1, then: 1},
		"an octet, the rest later": {records: two, from: 1, now: 1, then: 1 << 20},
		"a record's header":        {records: two, from: 1, now: 5, then: 5},
		"a header, the rest later": {records: two, from: 1, now: 5, then: 1 << 20},
		"a record in part":         {records: two, from: 1, now: 20, then: 20},
		"in part, the rest later":  {records: two, from: 1, now: 20, then: 1 << 20},
		"later":                    {records: two, from: 1, now: 0, then: 1 << 20},
		"later, in part":           {records: two, from: 1, now: 0, then: 7},
	}
}

func TestBytesBehindAnyAnswerReachNobody(t *testing.T) {
	eachTransport(t, func(t *testing.T, side *backendTLS) {
		for _, test := range behindCases {
			for name, split := range behindSplits(test.answer, test.behind) {
				for _, next := range []string{"GET", "POST"} {
					first := true
					b := &segmented{t: t, tls: side, answer: func(*http.Request) segments {
						if first {
							first = false
							return split
						}
						return segments{records: []string{"HTTP/1.1 200 OK\r\nX-Nonce: own\r\nContent-Length: 3\r\n\r\nown"}, now: -1}
					}}
					s := serve(t, side.overTLS(plain(b.address())))
					k := newTalk(t, s.addr())
					k.send(test.method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
					for {
						resp, _ := k.answer(test.method)
						if resp.StatusCode >= 400 {
							t.Fatalf("%s, %s: the first request was answered %d", test.name, name, resp.StatusCode)
						}
						if resp.StatusCode >= 200 {
							break
						}
					}
					b.flush()
					k.send(next + " / HTTP/1.1\r\nHost: b\r\nContent-Length: 0\r\n\r\n")
					resp, body := k.answer(next)
					if resp.StatusCode != 200 || body != "own" || resp.Header.Get("X-Nonce") != "own" {
						t.Errorf("%s, %s: the next %s was answered %d %q", test.name, name, next, resp.StatusCode, body)
					}
					if n := b.accepted(); n != 2 {
						t.Errorf("%s, %s: %d connections, want 2", test.name, name, n)
					}
					k.Close()
					s.stop()
					<-s.ended
				}
			}
		}
	})
}

func TestBytesBehindAnAnswerToACopyEndItsConnection(t *testing.T) {
	eachTransport(t, func(t *testing.T, side *backendTLS) {
		for _, test := range behindCases {
			for name, split := range behindSplits(test.answer, test.behind) {
				first := true
				b := &segmented{t: t, tls: side, answer: func(*http.Request) segments {
					if first {
						first = false
						return split
					}
					return segments{records: []string{mirrorAnswer}, now: -1}
				}}
				to := toMirror(b.address())
				side.reach(&to)
				f := newMirrorFixture(t, MirrorOptions{}, to)
				for range 2 {
					head := mirrorGet("/")
					head.method = test.method
					f.copy(head, nil)
					f.wait(t, 1)
					b.flush()
				}
				if n := b.accepted(); n != 2 {
					t.Errorf("%s, %s: %d connections, want 2", test.name, name, n)
				}
				f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 2})
				f.close(t.Context())
			}
		}
	})
}

func TestConnectionsAreKeptWhereNothingIsBehind(t *testing.T) {
	eachTransport(t, func(t *testing.T, side *backendTLS) {
		for _, test := range behindCases {
			for name, split := range map[string]segments{
				"one record":  {records: []string{test.answer}, now: -1},
				"two records": {records: []string{test.answer[:9], test.answer[9:]}, now: -1},
				"in octets":   {records: []string{test.answer[:20], test.answer[20:]}, now: -1, cuts: []int{1, 1, 1, 1, 1, 1, 20, 1, 1, 1, 1, 1}},
			} {
				b := &segmented{t: t, tls: side, answer: func(*http.Request) segments { return split }}
				s := serve(t, side.overTLS(plain(b.address())))
				k := newTalk(t, s.addr())
				for range 5 {
					k.send(test.method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
					for {
						if resp, _ := k.answer(test.method); resp.StatusCode >= 200 {
							break
						}
					}
				}
				if n := b.accepted(); n != 1 {
					t.Errorf("%s, %s: %d connections for 5 requests, want 1", test.name, name, n)
				}
				k.Close()
				s.stop()
				<-s.ended
			}
		}
	})
}

// TestAnswersAreTheirOwnRequests sends requests that each carry a number, to a backend whose answers carry it, are cut into records and writes at
// random and often have something behind them.
func TestAnswersAreTheirOwnRequests(t *testing.T) {
	answers := 10_000
	if testing.Short() || raceEnabled {
		answers = 1000
	}
	eachTransport(t, func(t *testing.T, side *backendTLS) {
		r := rand.New(rand.NewPCG(1, uint64(answers)))
		b := &segmented{t: t, tls: side, answer: func(req *http.Request) segments {
			return randomSegments(r, req.Method, req.Header.Get("X-Nonce"))
		}}
		s := serve(t, side.overTLS(plain(b.address())))
		k := newTalk(t, s.addr())
		wrong := 0
		for i := range answers / 3 {
			method := []string{"GET", "HEAD", "POST"}[i%3]
			nonce := fmt.Sprint(i)
			k.send(method + " / HTTP/1.1\r\nHost: a\r\nX-Nonce: " + nonce + "\r\nContent-Length: 0\r\n\r\n")
			resp, body := k.answer(method)
			for resp.StatusCode < 200 {
				resp, body = k.answer(method)
			}
			if got := resp.Header.Get("X-Nonce"); got != nonce || body != "" && !strings.HasPrefix(body, nonce+" ") {
				if wrong++; wrong < 5 {
					t.Errorf("%s %s was answered %d %q %.80q", method, nonce, resp.StatusCode, got, body)
				}
			}
			b.flush()
		}
		if wrong > 0 {
			t.Errorf("%d of %d answers were others' or none", wrong, answers/3)
		}
		if n := b.accepted(); n < 2 || n > answers/3 {
			t.Errorf("%d connections", n)
		}
	})
}

// randomSegments is an answer with the number, cut at random, with something behind it in every other case.
func randomSegments(r *rand.Rand, method, nonce string) segments {
	content := nonce + " " + strings.Repeat("x", 1<<r.IntN(14))
	answer := ""
	if r.IntN(4) == 0 {
		answer = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
	}
	switch r.IntN(4) {
	case 0:
		answer += fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Nonce: %s\r\nContent-Length: %d\r\n\r\n", nonce, len(content))
		if method != "HEAD" {
			answer += content
		}
	case 1:
		answer += "HTTP/1.1 200 OK\r\nX-Nonce: " + nonce + "\r\nTransfer-Encoding: chunked\r\n\r\n"
		if method != "HEAD" {
			half := r.IntN(len(content)-1) + 1
			answer = string(http1.AppendChunk(http1.AppendChunk([]byte(answer), []byte(content[:half])), []byte(content[half:])))
			answer = string(http1.AppendLastChunk([]byte(answer), []http1.Field{{Name: "X-Sum", Value: "1"}}[:r.IntN(2)]))
		}
	case 2:
		answer += "HTTP/1.1 204 No Content\r\nX-Nonce: " + nonce + "\r\n\r\n"
	case 3:
		answer += fmt.Sprintf("HTTP/1.1 304 Not Modified\r\nX-Nonce: %s\r\nContent-Length: %d\r\n\r\n", nonce, len(content))
	}
	s := segments{now: -1}
	behind := ""
	if r.IntN(2) == 0 {
		switch r.IntN(4) {
		case 0:
			behind = content
		case 1:
			behind = poison[:1+r.IntN(len(poison)-1)]
		default:
			behind = strings.Repeat(poison, 1+r.IntN(3))
		}
	}
	if r.IntN(2) == 0 {
		// The answer and what is behind it share a record.
		s.records = pieces(r, answer+behind)
	} else {
		s.records = pieces(r, answer)
		s.from = len(s.records)
		if behind != "" {
			s.records = append(s.records, pieces(r, behind)...)
			if r.IntN(3) > 0 {
				// Some of it comes later, or never.
				s.now = r.IntN(len(behind) + 30)
				s.then = s.now + r.IntN(3)*r.IntN(len(behind)+30)
				if s.now == 0 {
					s.then++ // nothing to be seen of it is nothing behind
				}
			}
		}
	}
	for range r.IntN(4) {
		s.cuts = append(s.cuts, 1+r.IntN(300))
	}
	return s
}

// pieces cuts text at random.
func pieces(r *rand.Rand, text string) (all []string) {
	for range r.IntN(3) {
		if len(text) < 2 {
			break
		}
		n := 1 + r.IntN(len(text)-1)
		all, text = append(all, text[:n]), text[n:]
	}
	return append(all, text)
}

func TestBytesBehindAnAnswerThatIsRetriedEndItsConnection(t *testing.T) {
	eachTransport(t, func(t *testing.T, side *backendTLS) {
		for _, test := range []struct {
			name, method string
			segments     segments
			connections  int
		}{
			{"nothing behind HEAD", "HEAD", segments{records: []string{"HTTP/1.1 503 Not Now\r\nContent-Length: 64\r\n\r\n"}, now: -1}, 1},
			{"nothing behind a body", "GET", segments{records: []string{"HTTP/1.1 503 Not Now\r\nContent-Length: 2\r\n\r\nno"}, now: -1}, 1},
			{"a body behind HEAD", "HEAD", segments{records: []string{"HTTP/1.1 503 Not Now\r\nContent-Length: 64\r\n\r\n" + poison[:20], poison[20:]},
				from: 1, then: 1 << 20}, 2},
			{"part of a body behind HEAD", "HEAD", segments{records: []string{"HTTP/1.1 503 Not Now\r\nContent-Length: 64\r\n\r\n" + poison[:20]}, now: -1}, 2},
			{"beyond Content-Length", "GET", segments{records: []string{"HTTP/1.1 503 Not Now\r\nContent-Length: 2\r\n\r\nno" + poison[:20]}, now: -1}, 2},
		} {
			first := true
			b := &segmented{t: t, tls: side, answer: func(*http.Request) segments {
				if first {
					first = false
					return test.segments
				}
				return segments{records: []string{"HTTP/1.1 204 No Content\r\nX-Nonce: own\r\n\r\n"}, now: -1}
			}}
			cfg := side.overTLS(plain(b.address()))
			cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1, Codes: []int{503}}
			s := serve(t, cfg)
			k := newTalk(t, s.addr())
			k.send(test.method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
			if resp, _ := k.answer(test.method); resp.StatusCode != 204 || resp.Header.Get("X-Nonce") != "own" {
				t.Errorf("%s: answered %d", test.name, resp.StatusCode)
			}
			if n := b.accepted(); n != test.connections {
				t.Errorf("%s: %d connections, want %d", test.name, n, test.connections)
			}
			k.Close()
			s.stop()
			<-s.ended
		}
	})
}

// A request that was not sent whole leaves a connection on which the next one would be taken for the rest of its body.
func TestAConnectionWithHalfARequestIsNotKept(t *testing.T) {
	eachTransport(t, func(t *testing.T, side *backendTLS) {
		const size = 16 << 20
		var conns atomic.Int32
		release := make(chan struct{})
		addr := rawMirror(t, func(_ int, c net.Conn) {
			c.(*net.TCPConn).SetReadBuffer(4 << 10)
			first := conns.Add(1) == 1
			side.serve(func(c net.Conn) {
				for r := bufio.NewReader(c); ; {
					if _, err := rawHead(r); err != nil {
						return
					}
					io.WriteString(c, okResponse) // early
					if first {
						<-release
						io.CopyN(io.Discard, r, size)
					}
				}
			})(c)
		})
		cfg := side.overTLS(plain(addr))
		cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1, Codes: []int{599}} // has the body in memory
		s := serve(t, cfg, func(o *Options) { o.MaxRetryBody, o.StreamTimeout = size, time.Second })
		k := newTalk(t, s.addr())
		k.send(fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size))
		k.send(strings.Repeat("x", size))
		if resp, _ := k.answer("PUT"); resp.StatusCode != 200 {
			t.Errorf("status %d", resp.StatusCode)
		}
		close(release)
		k = newTalk(t, s.addr())
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 200 || conns.Load() < 2 {
			t.Errorf("status %d over %d connections, want another", resp.StatusCode, conns.Load())
		}
	})
}
