package proxy

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestAHeadThatBreaksOffIsForgotten: bytes of an incomplete head never reach the next connection that gets the same
// memory.
func TestAHeadThatBreaksOffIsForgotten(t *testing.T) {
	t.Parallel()
	s := serve(t, plain(backend(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })), func(o *Options) { o.HeaderTimeout = 5 * time.Second })
	for _, size := range []int{100, 7000, 30_000} {
		for range 50 {
			c := dial(t, s.addr())
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", size))
			until(t, "the connection is not there", func() bool { return s.connections.Load() == 1 })
			c.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, c)
			c.Close()
			until(t, "the connection stays", func() bool { return s.connections.Load() == 0 })
			k := newTalk(t, s.addr())
			k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
				t.Fatalf("behind a head of %d bytes that broke off: %v", size, resp)
			}
			k.Conn.Close()
			until(t, "the connection stays", func() bool { return s.connections.Load() == 0 })
		}
	}
}

// TestAnAnswersHeadThatBreaksOffIsForgotten is the same for answers: bytes of an incomplete head never reach the next
// exchange.
func TestAnAnswersHeadThatBreaksOffIsForgotten(t *testing.T) {
	var broken atomic.Bool
	addr := rawBackend(t, func(c net.Conn) {
		buf := make([]byte, 4<<10)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			if broken.Load() {
				for range 4 { // read one after the other, or not
					io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 2000))
					time.Sleep(time.Millisecond)
				}
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	s := serve(t, plain(addr), func(o *Options) { o.ResponseTimeout, o.Upstream.EjectAfter = 5*time.Second, -1 })
	k := newTalk(t, s.addr())
	for i := range 50 {
		broken.Store(true)
		k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		if resp, _ := k.answer("POST"); resp.StatusCode != 502 {
			t.Fatalf("round %d: %v", i, resp)
		}
		broken.Store(false)
		k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		if resp, _ := k.answer("POST"); resp.StatusCode != 200 {
			t.Fatalf("behind an answer that broke off: %v", resp)
		}
	}
}
