package peertest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Holding is a backend without TCP_NODELAY, as most are that are not written in Go. It writes each answer and the bytes
// behind it in two writes. Its system holds the second back until the first is acknowledged (RFC 896).
type Holding struct {
	TLS *TLS // nil for cleartext
	// Answer says what is sent in answer to a request, and behind it. It is called from several goroutines.
	Answer func(*http.Request) (answer, behind string)

	conns atomic.Int32
	sent  chan struct{}
}

// heldFor is how long a Holding waits for its system to send what is behind an answer: less than the 40 ms for which a
// system delays an acknowledgement.
const heldFor = 20 * time.Millisecond

// Address runs the backend.
func (b *Holding) Address(t testing.TB) string {
	b.sent = make(chan struct{}, 1<<10)
	return Raw(t, func(_ int, c net.Conn) {
		b.conns.Add(1)
		tcp := c.(*net.TCPConn)
		tcp.SetNoDelay(false)
		b.TLS.Serve(func(c net.Conn) {
			for r := bufio.NewReader(c); ; {
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				if _, err := io.Copy(io.Discard, req.Body); err != nil {
					return
				}
				answer, behind := b.Answer(req)
				io.WriteString(c, answer)
				if behind != "" {
					io.WriteString(c, behind)
					for end := time.Now().Add(heldFor); unsent(tcp) && time.Now().Before(end); {
						time.Sleep(time.Millisecond)
					}
					b.sent <- struct{}{}
				}
			}
		})(c)
	})
}

// Sent waits until the bytes behind an answer were written, and the system had time to send them.
func (b *Holding) Sent() { <-b.sent }

// Accepted is how many connections there were.
func (b *Holding) Accepted() int { return int(b.conns.Load()) }

// unsent is true if the system has bytes of the connection that it did not send yet.
func unsent(tcp *net.TCPConn) (is bool) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		is = err == nil && info.Notsent_bytes > 0
	})
	return is
}
