package proxy

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/test/size"
)

func TestBytesBehindAnyAnswerReachNobody(t *testing.T) {
	t.Parallel()
	peertest.EachBehind(t, func(t *testing.T, side *peertest.TLS, test peertest.BehindCase, name string, split peertest.Segments) {
		for _, next := range []string{"GET", "POST"} {
			first := true
			b := &peertest.Segmented{T: t, TLS: side, Answer: func(*http.Request) peertest.Segments {
				if first {
					first = false
					return split
				}
				return peertest.Segments{Records: []string{"HTTP/1.1 200 OK\r\nX-Nonce: own\r\nContent-Length: 3\r\n\r\nown"}, Now: -1}
			}}
			s := serve(t, side.OverTLS(plain(b.Address())))
			k := newTalk(t, s.addr())
			k.send(test.Method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
			for {
				resp, _ := k.answer(test.Method)
				if resp.StatusCode >= 400 {
					t.Fatalf("%s, %s: the first request was answered %d", test.Name, name, resp.StatusCode)
				}
				if resp.StatusCode >= 200 {
					break
				}
			}
			b.Flush()
			k.send(next + " / HTTP/1.1\r\nHost: b\r\nContent-Length: 0\r\n\r\n")
			resp, body := k.answer(next)
			if resp.StatusCode != 200 || body != "own" || resp.Header.Get("X-Nonce") != "own" {
				t.Errorf("%s, %s: the next %s was answered %d %q", test.Name, name, next, resp.StatusCode, body)
			}
			if n := b.Accepted(); n != 2 {
				t.Errorf("%s, %s: %d connections, want 2", test.Name, name, n)
			}
			k.Close()
			s.stop()
			<-s.ended
		}
	})
}

func TestConnectionsAreKeptWhereNothingIsBehind(t *testing.T) {
	t.Parallel()
	peertest.EachTransport(t, func(t *testing.T, side *peertest.TLS) {
		for _, test := range peertest.BehindCases {
			for name, split := range map[string]peertest.Segments{
				"one record":  {Records: []string{test.Answer}, Now: -1},
				"two records": {Records: []string{test.Answer[:9], test.Answer[9:]}, Now: -1},
				"in octets":   {Records: []string{test.Answer[:20], test.Answer[20:]}, Now: -1, Cuts: []int{1, 1, 1, 1, 1, 1, 20, 1, 1, 1, 1, 1}},
			} {
				b := &peertest.Segmented{T: t, TLS: side, Answer: func(*http.Request) peertest.Segments { return split }}
				s := serve(t, side.OverTLS(plain(b.Address())))
				k := newTalk(t, s.addr())
				for range 5 {
					k.send(test.Method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
					for {
						if resp, _ := k.answer(test.Method); resp.StatusCode >= 200 {
							break
						}
					}
				}
				if n := b.Accepted(); n != 1 {
					t.Errorf("%s, %s: %d connections for 5 requests, want 1", test.Name, name, n)
				}
				k.Close()
				s.stop()
				<-s.ended
			}
		}
	})
}

// TestAnswersAreTheirOwnRequests sends numbered requests. The backend's answers carry the number. They are cut into
// records and writes at random, and often have extra bytes behind them.
func TestAnswersAreTheirOwnRequests(t *testing.T) {
	t.Parallel()
	answers := size.Of(300, 10_000)
	if raceEnabled {
		answers = min(answers, 1000)
	}
	peertest.EachTransport(t, func(t *testing.T, side *peertest.TLS) {
		r := rand.New(rand.NewPCG(1, uint64(answers)))
		b := &peertest.Segmented{T: t, TLS: side, Answer: func(req *http.Request) peertest.Segments {
			return randomSegments(r, req.Method, req.Header.Get("X-Nonce"))
		}}
		s := serve(t, side.OverTLS(plain(b.Address())))
		k := newTalk(t, s.addr())
		wrong := 0
		for i := range answers / 3 {
			method := []string{"GET", "HEAD", "POST"}[i%3]
			nonce := fmt.Sprint(i)
			k.SetDeadline(time.Now().Add(patience))
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
			b.Flush()
		}
		if wrong > 0 {
			t.Errorf("%d of %d answers were others' or none", wrong, answers/3)
		}
		if n := b.Accepted(); n < 2 || n > answers/3 {
			t.Errorf("%d connections", n)
		}
	})
}

// randomSegments is an answer with the number, cut at random. In every other case it has extra bytes behind it.
func randomSegments(r *rand.Rand, method, nonce string) peertest.Segments {
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
	s := peertest.Segments{Now: -1}
	behind := ""
	if r.IntN(2) == 0 {
		switch r.IntN(4) {
		case 0:
			behind = content
		case 1:
			behind = peertest.Poison[:1+r.IntN(len(peertest.Poison)-1)]
		default:
			behind = strings.Repeat(peertest.Poison, 1+r.IntN(3))
		}
	}
	if r.IntN(2) == 0 {
		// The answer and the bytes behind it share a record.
		s.Records = pieces(r, answer+behind)
	} else {
		s.Records = pieces(r, answer)
		s.From = len(s.Records)
		if behind != "" {
			s.Records = append(s.Records, pieces(r, behind)...)
			if r.IntN(3) > 0 {
				// Some of these bytes come later, or never.
				s.Now = r.IntN(len(behind) + 30)
				s.Then = s.Now + r.IntN(3)*r.IntN(len(behind)+30)
				if s.Now == 0 {
					s.Then++ // at least one byte must arrive to count as extra
				}
			}
		}
	}
	for range r.IntN(4) {
		s.Cuts = append(s.Cuts, 1+r.IntN(300))
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
	peertest.EachTransport(t, func(t *testing.T, side *peertest.TLS) {
		for _, test := range []struct {
			name, method string
			segments     peertest.Segments
			connections  int
		}{
			{"nothing behind HEAD", "HEAD", peertest.Segments{Records: []string{"HTTP/1.1 503 Not Now\r\nContent-Length: 64\r\n\r\n"}, Now: -1}, 1},
			{"nothing behind a body", "GET", peertest.Segments{Records: []string{"HTTP/1.1 503 Not Now\r\nContent-Length: 2\r\n\r\nno"}, Now: -1}, 1},
			{"a body behind HEAD", "HEAD", peertest.Segments{Records: []string{"HTTP/1.1 503 Not Now\r\nContent-Length: 64\r\n\r\n" + peertest.Poison[:20], peertest.Poison[20:]},
				From: 1, Then: 1 << 20}, 2},
			{"part of a body behind HEAD", "HEAD", peertest.Segments{Records: []string{"HTTP/1.1 503 Not Now\r\nContent-Length: 64\r\n\r\n" + peertest.Poison[:20]}, Now: -1}, 2},
			{"beyond Content-Length", "GET", peertest.Segments{Records: []string{"HTTP/1.1 503 Not Now\r\nContent-Length: 2\r\n\r\nno" + peertest.Poison[:20]}, Now: -1}, 2},
		} {
			first := true
			b := &peertest.Segmented{T: t, TLS: side, Answer: func(*http.Request) peertest.Segments {
				if first {
					first = false
					return test.segments
				}
				return peertest.Segments{Records: []string{"HTTP/1.1 204 No Content\r\nX-Nonce: own\r\n\r\n"}, Now: -1}
			}}
			cfg := side.OverTLS(plain(b.Address()))
			cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1, Codes: []int{503}}
			s := serve(t, cfg)
			k := newTalk(t, s.addr())
			k.send(test.method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
			if resp, _ := k.answer(test.method); resp.StatusCode != 204 || resp.Header.Get("X-Nonce") != "own" {
				t.Errorf("%s: answered %d", test.name, resp.StatusCode)
			}
			if n := b.Accepted(); n != test.connections {
				t.Errorf("%s: %d connections, want %d", test.name, n, test.connections)
			}
			k.Close()
			s.stop()
			<-s.ended
		}
	})
}

// TestAConnectionWithHalfARequestIsNotKept: if a request was not sent completely, the backend would take the next one
// on the connection for the rest of its body.
func TestAConnectionWithHalfARequestIsNotKept(t *testing.T) {
	t.Parallel()
	peertest.EachTransport(t, func(t *testing.T, side *peertest.TLS) {
		t.Parallel()
		const size = 16 << 20
		var conns atomic.Int32
		release := make(chan struct{})
		addr := peertest.Raw(t, func(_ int, c net.Conn) {
			c.(*net.TCPConn).SetReadBuffer(4 << 10)
			first := conns.Add(1) == 1
			side.Serve(func(c net.Conn) {
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
		cfg := side.OverTLS(plain(addr))
		cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1, Codes: []int{599}} // keeps the body in memory
		s := serve(t, cfg, func(o *Options) { o.MaxRetryBody, o.StreamTimeout = size, 4*time.Second })
		put := fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
		status := http.StatusRequestTimeout
		// The stream timeout is the client's, too. On a busy machine the body may come too late: then nothing of it was sent.
		for try := 0; status == http.StatusRequestTimeout && conns.Load() == 0 && try < 10; try++ {
			k := newTalk(t, s.addr())
			k.send(put)
			resp, _ := k.answer("PUT")
			status = resp.StatusCode
		}
		if status != 200 {
			t.Errorf("status %d", status)
		}
		close(release)
		k := newTalk(t, s.addr())
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 200 || conns.Load() < 2 {
			t.Errorf("status %d over %d connections, want another", resp.StatusCode, conns.Load())
		}
	})
}
