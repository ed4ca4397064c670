package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/size"
)

// onceEach answers one request on each connection with the request's body. Then it closes the connection without
// announcing it, and reports each close.
func onceEach(t testing.TB, side *peertest.TLS) (addr string, closed chan struct{}) {
	closed = make(chan struct{}, 1)
	return peertest.Raw(t, func(_ int, c net.Conn) {
		side.Serve(func(tc net.Conn) {
			req, err := http.ReadRequest(bufio.NewReader(tc))
			if err != nil {
				return
			}
			if req.Header.Get("Expect") != "" {
				io.WriteString(tc, "HTTP/1.1 100 Continue\r\n\r\n")
			}
			b, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			fmt.Fprintf(tc, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(b), b)
			tc.Close()
			closed <- struct{}{}
		})(c)
	}), closed
}

func rounds() int { return size.Of(8, 60) }

// TestAClosedIdleConnectionCostsNoRequestWhateverItsBody: each request finds that the backend has closed the idle
// connection. Nothing was sent over it, so nothing is lost.
func TestAClosedIdleConnectionCostsNoRequestWhateverItsBody(t *testing.T) {
	t.Parallel()
	chunked := "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
	large := "Content-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000)
	manyChunks := "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("3e8\r\n"+strings.Repeat("x", 1000)+"\r\n", 100) + "0\r\n\r\n"
	for name, body := range map[string]struct {
		rest string
		size int
	}{
		"chunked": {chunked, 5}, "chunked and long": {manyChunks, 100_000}, "chunked with trailers": {strings.Replace(chunked, "0\r\n", "0\r\nX-Sum: 1\r\n", 1), 5},
		"length": {"Content-Length: 5\r\n\r\nhello", 5}, "long": {large, 100_000},
		"expected": {"Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello", 5}, "expected chunks": {"Expect: 100-continue\r\n" + chunked, 5},
	} {
		for _, retries := range []bool{false, true} {
			peertest.EachTransport(t, func(t *testing.T, side *peertest.TLS) {
				addr, closed := onceEach(t, side)
				cfg := side.OverTLS(plain(addr))
				if retries {
					cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1}
				}
				s := serve(t, cfg)
				lost := 0
				for i := range rounds() {
					k := newTalk(t, s.addr())
					method := []string{"PUT", "POST", "PATCH", "DELETE"}[i%4]
					k.send(method + " / HTTP/1.1\r\nHost: a\r\n" + body.rest)
					resp, got := k.answer(method)
					if resp.StatusCode == 100 {
						resp, got = k.answer(method)
					}
					if resp.StatusCode != 200 || len(got) != body.size {
						lost++
					}
					if resp.StatusCode == 200 {
						<-closed
					}
					k.Close()
				}
				if lost > 0 {
					t.Errorf("%s, retries %t: %d of %d were lost", name, retries, lost, rounds())
				}
				if n := s.failures(telemetry.BackendReset); n != 0 {
					t.Errorf("%s, retries %t: %d failures counted", name, retries, n)
				}
			})
		}
	}
}

func TestAClosedIdleConnectionCostsNoStream(t *testing.T) {
	t.Parallel()
	peertest.EachTransport(t, func(t *testing.T, side *peertest.TLS) {
		addr, closed := onceEach(t, side)
		s := serve(t, side.OverTLS(plain(addr)))
		c := h2cClient(t)
		for i := range rounds() {
			method := []string{"PUT", "POST", "PATCH", "DELETE"}[i%4]
			size := []int{5, 100_000}[i/4%2]
			var body io.Reader = bytes.NewReader(body(size))
			if i%3 == 0 {
				body = io.MultiReader(body) // of unknown length
			}
			req, err := http.NewRequest(method, "http://"+s.addr()+"/", body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || len(b) != size {
				t.Errorf("%s of %d bytes: status %d, %d bytes", method, size, resp.StatusCode, len(b))
				continue
			}
			<-closed
		}
	})
}

// TestAClosedIdleHTTP2ConnectionCostsNoRequest: an HTTP/2 backend closes its idle connection, with GOAWAY or without.
func TestAClosedIdleHTTP2ConnectionCostsNoRequest(t *testing.T) {
	t.Parallel()
	for _, goAway := range []bool{true, false} {
		closed := make(chan struct{}, 1)
		addr := framed(t, func(c *frames, f http2.Frame) bool {
			id := ended(f)
			if id == 0 {
				return true
			}
			c.echo(id)
			if goAway {
				c.WriteGoAway(id, http2.ErrCodeNo, nil)
			}
			c.c.Close()
			closed <- struct{}{}
			return false
		})
		s := serve(t, toFrames(addr))
		for i := range rounds() {
			method := []string{"PUT", "DELETE", "POST"}[i%3]
			if !goAway {
				method = "PUT"
			}
			k := newTalk(t, s.addr())
			k.send(method + " / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")
			resp, got := k.answer(method)
			if resp.StatusCode != 200 || got != "hello" {
				t.Errorf("GOAWAY %t: %s %d: status %d, %q", goAway, method, i, resp.StatusCode, got)
				continue
			}
			<-closed
			k.Close()
		}
	}
}

// TestABodyInMemoryIsRepeatedOverANewConnection: an idle connection may end before the first byte of the answer. Then a
// repeatable request is sent again, as long as its body is in memory.
func TestABodyInMemoryIsRepeatedOverANewConnection(t *testing.T) {
	for name, test := range map[string]struct {
		method, body string
		status       int
	}{
		"PUT, chunked":            {"PUT", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200},
		"PUT, chunked, long":      {"PUT", "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("3e8\r\n"+strings.Repeat("x", 1000)+"\r\n", 20) + "0\r\n\r\n", 200},
		"PUT, chunked, very long": {"PUT", "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("3e8\r\n"+strings.Repeat("x", 1000)+"\r\n", 500) + "0\r\n\r\n", 502},
		"PUT":                     {"PUT", "Content-Length: 5\r\n\r\nhello", 200},
		"POST, chunked":           {"POST", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 502},
		"POST":                    {"POST", "Content-Length: 5\r\n\r\nhello", 502},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, plain(peertest.Raw(t, func(n int, c net.Conn) {
				for r := bufio.NewReader(c); ; {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					if _, err := io.Copy(io.Discard, req.Body); err != nil || n == 0 && req.Method != "GET" {
						return // without an answer
					}
					io.WriteString(c, okResponse)
				}
			})))
			k := newTalk(t, s.addr())
			k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			k.answer("GET")
			k.send(test.method + " / HTTP/1.1\r\nHost: a\r\n" + test.body)
			if resp, _ := k.answer(test.method); resp.StatusCode != test.status {
				t.Errorf("status %d, want %d", resp.StatusCode, test.status)
			}
		})
	}
}
