package proxy

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
)

const ownAnswer = "HTTP/1.1 200 OK\r\nX-Nonce: own\r\nContent-Length: 3\r\n\r\nown"

// warm is how many exchanges it takes for a system to delay acknowledgements of a connection.
const warm = 4

// heldCases are the answers of peertest.BehindCases, whose bytes behind them a client could take for an answer.
func heldCases(t *testing.T, f func(t *testing.T, side *peertest.TLS, test peertest.BehindCase)) {
	peertest.EachTransport(t, func(t *testing.T, side *peertest.TLS) {
		for _, test := range peertest.BehindCases {
			if test.Behind == peertest.Poison {
				f(t, side, test)
			}
		}
	})
}

// A backend's system may hold bytes behind an answer back until the answer is acknowledged. If the next request were to
// acknowledge it, they would come in answer to that.
func TestBytesThatWaitForAnAcknowledgementReachNobody(t *testing.T) {
	heldCases(t, func(t *testing.T, side *peertest.TLS, test peertest.BehindCase) {
		var n atomic.Int32
		b := &peertest.Holding{TLS: side, Answer: func(*http.Request) (answer, behind string) {
			if n.Add(1) == warm {
				return test.Answer, test.Behind
			}
			return ownAnswer, ""
		}}
		s := serve(t, side.OverTLS(plain(b.Address(t))))
		k := newTalk(t, s.addr())
		for i := 1; i <= warm+1; i++ {
			method := "GET"
			if i == warm {
				method = test.Method
			}
			k.send(method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
			resp, body := k.answer(method)
			for resp.StatusCode < 200 {
				resp, body = k.answer(method)
			}
			if i == warm {
				b.Sent()
			} else if body != "own" || resp.Header.Get("X-Nonce") != "own" {
				t.Errorf("%s: request %d was answered %d %q", test.Name, i, resp.StatusCode, body)
			}
		}
		if n := b.Accepted(); n != 2 {
			t.Errorf("%s: %d connections, want 2", test.Name, n)
		}
		k.Close()
		s.stop()
		<-s.ended
	})
}

// The same behind an answer that is retried: its connection is put back, too, and used for another client.
func TestBytesBehindAnAnswerThatIsRetriedWaitForNobody(t *testing.T) {
	for _, test := range []struct{ name, method, answer string }{
		{"HEAD", "HEAD", "HTTP/1.1 503 Not Now\r\nContent-Length: 64\r\n\r\n"},
		{"beyond Content-Length", "GET", "HTTP/1.1 503 Not Now\r\nContent-Length: 2\r\n\r\nno"},
		{"behind the last chunk", "GET", "HTTP/1.1 503 Not Now\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"},
	} {
		peertest.EachTransport(t, func(t *testing.T, side *peertest.TLS) {
			const before = 8 // so that both backends are warm
			var n atomic.Int32
			backends := [2]*peertest.Holding{}
			answer := func(mine, other int) func(*http.Request) (string, string) {
				return func(*http.Request) (answer, behind string) {
					switch n.Add(1) {
					case before + 1:
						return test.answer, peertest.Poison
					case before + 2: // the retry
						backends[other].Sent()
					}
					return ownAnswer[:len(ownAnswer)-3] + map[bool]string{true: "own"}[test.method != "HEAD"], ""
				}
			}
			backends[0] = &peertest.Holding{TLS: side, Answer: answer(0, 1)}
			backends[1] = &peertest.Holding{TLS: side, Answer: answer(1, 0)}
			cfg := side.OverTLS(plain(backends[0].Address(t), backends[1].Address(t)))
			cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1, Codes: []int{503}}
			s := serve(t, cfg)
			k := newTalk(t, s.addr())
			for i := range before + 8 {
				k.send(test.method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
				if resp, _ := k.answer(test.method); resp.StatusCode != 200 || resp.Header.Get("X-Nonce") != "own" {
					t.Errorf("%s: request %d was answered %d %q", test.name, i, resp.StatusCode, resp.Header.Get("X-Nonce"))
				}
			}
			k.Close()
			s.stop()
			<-s.ended
		})
	}
}
