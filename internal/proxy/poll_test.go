package proxy

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestFragmentedAndPipelinedRequestsAreAllAnswered sends requests in fragments of any size at any time, also before
// earlier answers. The poller must not miss any of them.
func TestFragmentedAndPipelinedRequestsAreAllAnswered(t *testing.T) {
	t.Parallel()
	s := serve(t, plain(tellsLengths(t)))
	fragments(t, func() *talk { return newTalk(t, s.addr()) })
}

// TestFragmentsOfRecordsAreAllAnswered has each fragment be a record, and cuts these anywhere again.
func TestFragmentsOfRecordsAreAllAnswered(t *testing.T) {
	t.Parallel()
	cfg := plain(tellsLengths(t))
	roots := secure(t, cfg, "shop.example")
	s := serve(t, cfg)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, largest := range []int{3, 100, 40000} {
			fragments(t, func() *talk {
				c := tls.Client(&cutter{dial(t, s.addr()), largest, rand.New(rand.NewPCG(2, uint64(largest)))}, &tls.Config{ServerName: "shop.example", RootCAs: roots, MaxVersion: version})
				return talkOver(t, c)
			})
		}
	}
}

// cutter writes in pieces of any size up to a largest one.
type cutter struct {
	net.Conn
	largest int
	rng     *rand.Rand
}

func (c *cutter) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = c.Conn.Write(p[n:min(len(p), n+1+c.rng.IntN(c.largest))])
		n += m
	}
	return n, err
}

// tellsLengths answers with the path and how long the body was.
func tellsLengths(t *testing.T) string {
	return backend(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %d", r.URL.Path, len(b))
	})
}

func fragments(t *testing.T, talks func() *talk) {
	t.Helper()
	for _, largest := range []int{20, 400, 20000} {
		k := talks()
		rng := rand.New(rand.NewPCG(1, uint64(largest)))
		var stream bytes.Buffer
		var want []string
		for i := range 400 {
			n := rng.IntN(3) * rng.IntN(200)
			if rng.IntN(50) == 0 {
				n = 20000 // more than the read buffer
			}
			switch rng.IntN(3) {
			case 0:
				n = 0
				fmt.Fprintf(&stream, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i)
			case 1:
				fmt.Fprintf(&stream, "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", i, n)
				stream.Write(body(n))
			case 2:
				fmt.Fprintf(&stream, "PUT /%d HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", i)
				if n > 0 {
					fmt.Fprintf(&stream, "%x\r\n%s\r\n", n, body(n))
				}
				stream.WriteString("0\r\n\r\n")
			}
			want = append(want, fmt.Sprintf("/%d %d", i, n))
		}
		sent := make(chan error, 1)
		go func() {
			for stream.Len() > 0 {
				if _, err := k.Write(stream.Next(1 + rng.IntN(largest))); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		for i, w := range want {
			if _, got := k.answer("GET"); got != w {
				t.Fatalf("fragments up to %d, answer %d: %q, want %q", largest, i, got, w)
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		k.Close()
	}
}

func TestEndThatComesWithALaterRequestIsNoticed(t *testing.T) {
	t.Parallel()
	addr, _ := wire(t, okResponse)
	s := serve(t, plain(addr))
	for _, n := range []int{0, 2} {
		k := newTalk(t, s.addr())
		for range n {
			k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			k.answer("GET")
		}
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		k.Conn.(*net.TCPConn).CloseWrite()
		k.answer("GET")
		k.closed()
	}
}

func TestEndThatComesWithALaterRequestOverTLSIsNoticed(t *testing.T) {
	t.Parallel()
	addr, _ := wire(t, okResponse)
	cfg := plain(addr)
	roots := secure(t, cfg, "shop.example")
	s := serve(t, cfg)
	for _, n := range []int{0, 2} {
		for _, said := range []bool{true, false} {
			w := &tapped{Conn: dial(t, s.addr())}
			c := tls.Client(w, &tls.Config{ServerName: "shop.example", RootCAs: roots})
			k := talkOver(t, c)
			for range n {
				k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				k.answer("GET")
			}
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			w.hold = true
			k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if said {
				c.CloseWrite()
				c.SetWriteDeadline(time.Time{}) // which that sets
			}
			w.send(t, len(w.kept))
			w.Conn.(*net.TCPConn).CloseWrite()
			k.answer("GET")
			k.closed()
		}
	}
}

func TestSlowReaderGetsTheWholeAnswer(t *testing.T) {
	t.Parallel()
	const size = 20 << 20
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", fmt.Sprint(size))
		}
		io.CopyN(w, zeros{}, size)
	})
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	for _, path := range []string{"/chunked", "/length"} {
		k.send("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(k.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, struct{ io.Reader }{resp.Body})
		if n != size || err != nil {
			t.Errorf("%s: %d bytes, %v", path, n, err)
		}
	}
}
