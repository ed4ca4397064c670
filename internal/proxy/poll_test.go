package proxy

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
)

// TestFragmentedAndPipelinedRequestsAreAllAnswered sends requests in fragments of any size at any time, also before
// earlier answers. The poller must not miss any of them.
func TestFragmentedAndPipelinedRequestsAreAllAnswered(t *testing.T) {
	t.Parallel()
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %d", r.URL.Path, len(b))
	})
	s := serve(t, plain(addr))
	for _, largest := range []int{20, 400, 20000} {
		k := newTalk(t, s.addr())
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
