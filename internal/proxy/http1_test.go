package proxy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// talk is a raw connection with a buffered reader.
type talk struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func newTalk(t testing.TB, addr string) *talk { return talkOver(t, dial(t, addr)) }

func talkOver(t testing.TB, c net.Conn) *talk { return &talk{Conn: c, t: t, r: bufio.NewReader(c)} }

func (k *talk) send(text string) {
	k.t.Helper()
	if _, err := io.WriteString(k.Conn, text); err != nil {
		k.t.Fatal(err)
	}
}

// answer reads an answer to method with its body.
func (k *talk) answer(method string) (*http.Response, string) {
	k.t.Helper()
	resp, err := http.ReadResponse(k.r, &http.Request{Method: method})
	if err != nil {
		k.t.Fatalf("reading the answer: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		k.t.Fatalf("reading the answer's body: %v", err)
	}
	return resp, string(body)
}

// closed fails unless the peer has closed the connection.
func (k *talk) closed() {
	k.t.Helper()
	if b, err := k.r.ReadByte(); err != io.EOF {
		k.t.Errorf("connection is not closed: byte %q, error %v", b, err)
	}
}

// rawHead reads a head without parsing it.
func rawHead(r *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			return head.String(), err
		}
	}
}

// wire runs a backend that hands over each request's head and gives every request the same answer.
func wire(t testing.TB, response string) (addr string, heads chan string) {
	heads = make(chan string, 100)
	return rawBackend(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			h, err := rawHead(r)
			if err != nil {
				return
			}
			heads <- h
			io.WriteString(c, response)
		}
	}), heads
}

const okResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestRequestHeadOnTheWire(t *testing.T) {
	addr, heads := wire(t, okResponse)
	s := serve(t, plain(addr))
	for _, test := range []struct{ name, in, want string }{
		{"end-to-end fields keep their order and spelling",
			"GET /a?b=c HTTP/1.1\r\nhost: Shop.Example:80\r\nX-one: 1\r\nx-TWO:  2 \r\n\r\n",
			"GET /a?b=c HTTP/1.1\r\nHost: Shop.Example:80\r\nX-one: 1\r\nx-TWO: 2\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: Shop.Example:80\r\nVia: 1.1 weir\r\n\r\n"},
		{"hop-by-hop fields are removed, those that Connection names too",
			"GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Mine, keep-alive\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Authorization: x\r\nProxy-Connection: keep-alive\r\nX-Kept: 2\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nX-Kept: 2\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 weir\r\n\r\n"},
		{"what clients say of themselves is dropped",
			"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2\r\nX-Forwarded-Proto: https\r\nx-forwarded-for: 3.3.3.3\r\nX-Forwarded-Host: evil\r\nConnection: x-forwarded-for\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 weir\r\n\r\n"},
		{"dot segments are resolved, other bytes stay",
			"GET /a/./b/../%7ec//d?q=/../x HTTP/1.1\r\nHost: a\r\n\r\n",
			"GET /a/~c/d?q=/../x HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 weir\r\n\r\n"},
		{"an unusual spelling without dot segments is the client's own",
			"GET /%7ec//d%2f?  HTTP/1.1\r\nHost: a\r\n\r\n", ""},
		{"spelling stays",
			"GET /%7ec//d%2f? HTTP/1.1\r\nHost: a\r\n\r\n",
			"GET /%7ec//d%2f? HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 weir\r\n\r\n"},
		{"bytes that no URI has are escaped",
			"GET /a|{b}?c=\"[d]\"&e=100%&f=%41%zz HTTP/1.1\r\nHost: a\r\n\r\n",
			"GET /a%7C%7Bb%7D?c=%22%5Bd%5D%22&e=100%25&f=%41%25zz HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 weir\r\n\r\n"},
		{"HTTP/1.0 without Host asks for the address it came to",
			"GET / HTTP/1.0\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: " + s.addr() + "\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nVia: 1.0 weir\r\n\r\n"},
		{"a Trailer that announces what is left out is left out",
			"GET / HTTP/1.1\r\nHost: a\r\nTrailer: X, Content-Length\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 weir\r\n\r\n"},
		{"the absolute form becomes the origin form",
			"GET http://other.example/x?y HTTP/1.1\r\nHost: other.example\r\n\r\n",
			"GET /x?y HTTP/1.1\r\nHost: other.example\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: other.example\r\nVia: 1.1 weir\r\n\r\n"},
		{"a body of known length",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 weir\r\nContent-Length: 0\r\n\r\n"},
		{"without content there is nothing to expect",
			"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 weir\r\n\r\n"},
		{"nor with content of no length",
			"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue, , 100-continue\r\nContent-Length: 0\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 weir\r\nContent-Length: 0\r\n\r\n"},
		{"an upgrade to h2c is not passed on",
			"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 weir\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := newTalk(t, s.addr())
			k.send(test.in)
			resp, body := k.answer("GET")
			if test.want == "" {
				if resp.StatusCode != 400 {
					t.Errorf("status %d, want 400", resp.StatusCode)
				}
				return
			}
			if resp.StatusCode != 200 || body != "ok" {
				t.Fatalf("status %d, body %q", resp.StatusCode, body)
			}
			got := strings.Replace(<-heads, "X-Forwarded-Port: 80\r\nX-Real-IP: 127.0.0.1\r\n", "", 1) // see TestWhatClientsSayOfThemselvesIsDropped
			if got != test.want {
				t.Errorf("got\n%q, want\n%q", got, test.want)
			}
		})
	}
}

func TestResponseHeadOnTheWire(t *testing.T) {
	for _, test := range []struct{ name, request, backend, want string }{
		{"fields pass, hop-by-hop ones do not, nothing is invented", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			"HTTP/1.1 201 Made\r\nX-a: 1\r\nConnection: x-b, keep-alive\r\nKeep-Alive: 1\r\nX-B: 2\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nok",
			"HTTP/1.1 201 Made\r\nX-a: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nVia: 1.1 weir\r\nContent-Length: 2\r\n\r\nok"},
		{"HEAD keeps the length", "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nVia: 1.1 weir\r\nConnection: close\r\n\r\n"},
		{"204 has no body", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 204 No Content\r\nVia: 1.1 weir\r\nConnection: close\r\n\r\n"},
		{"304 keeps the length", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 304 Not Modified\r\nContent-Length: 12\r\nETag: \"x\"\r\n\r\n",
			"HTTP/1.1 304 Not Modified\r\nContent-Length: 12\r\nETag: \"x\"\r\nVia: 1.1 weir\r\nConnection: close\r\n\r\n"},
		{"chunks stay chunks, with trailers", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5;ext=1\r\nhello\r\n0\r\nX-Sum: 7\r\nContent-Length: 3\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nVia: 1.1 weir\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n"},
		{"HTTP/1.0 gets no chunks", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nVia: 1.1 weir\r\nConnection: close\r\n\r\nhello"},
		{"until close becomes chunks", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.0 200 OK\r\nX: y\r\n\r\nhello",
			"HTTP/1.1 200 OK\r\nX: y\r\nVia: 1.0 weir\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
		{"interim answers pass", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
			"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nVia: 1.1 weir\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"},
		{"HTTP/1.0 gets no interim answers", "GET / HTTP/1.0\r\n\r\n",
			"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
			"HTTP/1.1 200 OK\r\nVia: 1.1 weir\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"},
	} {
		t.Run(test.name, func(t *testing.T) {
			addr := rawBackend(t, func(c net.Conn) {
				if _, err := rawHead(bufio.NewReader(c)); err == nil {
					io.WriteString(c, test.backend)
				}
			})
			s := serve(t, plain(addr))
			k := newTalk(t, s.addr())
			k.send(test.request)
			got := make([]byte, len(test.want))
			if _, err := io.ReadFull(k.r, got); err != nil {
				t.Fatalf("%v after %q", err, got)
			}
			if string(got) != test.want {
				t.Errorf("got\n%q, want\n%q", got, test.want)
			}
			if strings.Contains(test.want, "Connection: close") {
				k.closed()
			}
		})
	}
}

func TestConnectionIsKeptAndRequestsMayBePipelined(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.URL.Path, b)
	})
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	k.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n" +
		"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" +
		"POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n" +
		"GET /4 HTTP/1.1\r\nHost: a\r\n\r\n")
	for _, want := range []string{"/1 ", "/2 abc", "/3 def", "/4 "} {
		if _, body := k.answer("GET"); body != want {
			t.Errorf("body %q, want %q", body, want)
		}
	}
	k.send("GET /5 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.Header.Get("Connection") != "keep-alive" {
		t.Errorf("HTTP/1.0 with keep-alive got %v", resp.Header)
	}
	k.send("GET /6 HTTP/1.0\r\n\r\n")
	k.answer("GET")
	k.closed()
	if total, open := s.metrics.Listener(":80").Connections(); total != 1 || open > 1 {
		t.Errorf("%d connections, %d open", total, open)
	}
}

// body makes size bytes of a pattern that shows when bytes are misplaced.
func body(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	return b
}

func TestLargeBodiesPassBothWays(t *testing.T) {
	t.Parallel()
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("reading the body: %v", err)
		}
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		}
		w.Header().Set("Trailer", "X-Sum")
		w.Write(b)
		w.Header().Set("X-Sum", fmt.Sprintf("%x", sha256.Sum256(b)))
	})
	s := serve(t, plain(addr))
	c := newClient(t)
	for _, size := range []int{1, 4000, 8 << 10, 16<<10 - 1, 33 << 10, 100 << 10, 1<<20 + 13} {
		for _, path := range []string{"/length", "/chunked"} {
			for _, known := range []bool{true, false} {
				want := body(size)
				var r io.Reader = bytes.NewReader(want)
				if !known {
					r = io.MultiReader(r)
				}
				resp, err := c.Post("http://"+s.addr()+path, "application/octet-stream", r)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%d bytes %s known %v: came back as %d other bytes", size, path, known, len(got))
				}
				if path == "/chunked" && size > 4<<10 && resp.Trailer.Get("X-Sum") != fmt.Sprintf("%x", sha256.Sum256(want)) {
					t.Errorf("%d bytes %s known %v: trailer %v", size, path, known, resp.Trailer)
				}
			}
		}
	}
	if n := s.failures(telemetry.ClientClosed) + s.failures(telemetry.BackendReset); n != 0 {
		t.Errorf("%d failures", n)
	}
}

func TestRequestTrailersReachTheBackend(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Trailer.Get("X-Sum"))
	})
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	k.send("POST / HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\nX-Sum: 42\r\n\r\n")
	if _, body := k.answer("POST"); body != "42" {
		t.Errorf("trailer %q", body)
	}
	// In pieces, so that the proxy streams the upload.
	k.send("POST / HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nd")
	k.send("e\r\n0\r\nX-Sum")
	k.send(": 43\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, body := k.answer("POST"); body != "43" {
		t.Errorf("trailer %q", body)
	}
	k.answer("GET")
}

func TestStreamsBothWaysAtOnce(t *testing.T) {
	addr := rawBackend(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		if _, err := rawHead(r); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		var chunks http1.ChunkReader
		var buf [100]byte
		for {
			n, err := r.Read(buf[:])
			if err != nil {
				return
			}
			for b := buf[:n]; len(b) > 0; {
				data, n, done, err := chunks.Next(b)
				if err != nil {
					return
				}
				c.Write(http1.AppendChunk(nil, data))
				if done {
					io.WriteString(c, "0\r\n\r\n")
					return
				}
				b = b[n:]
			}
		}
	})
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	k.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
	resp, err := http.ReadResponse(k.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		k.send(fmt.Sprintf("1\r\n%d\r\n", i))
		var b [1]byte
		if _, err := io.ReadFull(resp.Body, b[:]); err != nil || b[0] != byte('0'+i) {
			t.Fatalf("echo %d: %q, %v", i, b, err)
		}
	}
	k.send("0\r\n\r\n")
	if rest, err := io.ReadAll(resp.Body); len(rest) != 0 || err != nil {
		t.Fatalf("rest %q, %v", rest, err)
	}
}

func TestExpectContinueIsPassedOn(t *testing.T) {
	got := make(chan string, 1)
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(413)
			return
		}
		b, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("Expect") + " " + string(b)
	})
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	k.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	if head, err := rawHead(k.r); head != "HTTP/1.1 100 Continue\r\n\r\n" || err != nil {
		t.Fatalf("%q, %v", head, err)
	}
	k.send("hello")
	if resp, _ := k.answer("POST"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if g := <-got; g != "100-continue hello" {
		t.Errorf("backend got %q", g)
	}
	k.send("POST /refused HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	if resp, _ := k.answer("POST"); resp.StatusCode != 413 || !resp.Close {
		t.Errorf("status %d, close %v", resp.StatusCode, resp.Close)
	}
	k.closed()
}

func TestEarlyAnswerEndsTheUpload(t *testing.T) {
	addr := rawBackend(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		rawHead(r)
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!")
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, r) // until the proxy gives up
	})
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\nabc")
	resp, body := k.answer("POST")
	if resp.StatusCode != 413 || body != "no!" || !resp.Close {
		t.Errorf("status %d, body %q, close %v", resp.StatusCode, body, resp.Close)
	}
}

func TestSlowBackendHoldsTheClientBack(t *testing.T) {
	t.Parallel()
	// The backend never reads the body. The buffers on the way bound how much the client can write.
	release := make(chan struct{})
	addr := rawBackend(t, func(c net.Conn) {
		rawHead(bufio.NewReaderSize(c, 16))
		<-release
	})
	s := serve(t, plain(addr))
	t.Cleanup(func() { close(release) })
	k := newTalk(t, s.addr())
	k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
	k.SetWriteDeadline(time.Now().Add(time.Second))
	n, err := io.Copy(k.Conn, io.LimitReader(zeros{}, 1000000000))
	if err == nil || n > 100<<20 {
		t.Errorf("%d bytes went through, error %v", n, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestMalformedRequestsAreTheClientsFault(t *testing.T) {
	addr, heads := wire(t, okResponse)
	s := serve(t, plain(addr))
	for _, test := range []struct {
		request string
		status  int
	}{
		{"GET / HTTP/1.1\r\n\r\n", 400},
		{"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 400},
		{"GET /" + strings.Repeat("a", 9000) + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
		{"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 70000) + "\r\n\r\n", 431},
		{"GET /..%2f HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
		{"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 405},
		{"get / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", 417},
	} {
		k := newTalk(t, s.addr())
		k.send(test.request)
		resp, text := k.answer("GET")
		if resp.StatusCode != test.status || text == "" || resp.Header.Get("Date") == "" {
			t.Errorf("%.60q: status %d, want %d; text %q", test.request, resp.StatusCode, test.status, text)
		}
	}
	if len(heads) != 0 {
		t.Errorf("%d requests reached the backend", len(heads))
	}
	for _, x := range s.metrics.Snapshot().Exchanges {
		for _, r := range x.Reasons {
			if p := r.Reason.Party(); p != telemetry.PartyClient {
				t.Errorf("reason %s blames the %s", r.Reason, p)
			}
		}
	}
}

func TestOPTIONSOfTheServerIsAnsweredByIt(t *testing.T) {
	addr, heads := wire(t, okResponse)
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	for _, target := range []string{"*", "http://a"} {
		k.send("OPTIONS " + target + " HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("OPTIONS"); resp.StatusCode != 204 || resp.Header.Get("Allow") == "" {
			t.Errorf("%s: status %d, %v", target, resp.StatusCode, resp.Header)
		}
	}
	if len(heads) != 0 {
		t.Error("the backend was asked")
	}
}

func TestRefusedHEADHasNoContent(t *testing.T) {
	addr, _ := wire(t, okResponse)
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	k.send("HEAD / HTTP/1.1\r\nHost : a\r\n\r\n")
	if resp, _ := k.answer("HEAD"); resp.StatusCode != 400 {
		t.Errorf("status %d", resp.StatusCode)
	}
	k.closed()
}

func TestNothingIsReadBehindARefusedCONNECT(t *testing.T) {
	addr, heads := wire(t, okResponse)
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	k.send("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, _ := k.answer("CONNECT"); resp.StatusCode != 405 {
		t.Errorf("status %d", resp.StatusCode)
	}
	k.closed()
	if len(heads) != 0 {
		t.Error("what was meant for the tunnel reached the backend")
	}
}

func TestBytesBehindAnAnswerAreNotTheNextAnswer(t *testing.T) {
	for _, method := range []string{"GET", "POST", "PUT"} {
		var conns atomic.Int32
		late, sent := make(chan struct{}), make(chan struct{})
		s := serve(t, plain(rawBackend(t, func(c net.Conn) {
			first, r := conns.Add(1) == 1, bufio.NewReader(c)
			for {
				if _, err := rawHead(r); err != nil {
					return
				}
				io.WriteString(c, okResponse)
				if first {
					<-late
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
					close(sent)
					return
				}
			}
		})))
		k := newTalk(t, s.addr())
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		k.answer("GET")
		close(late)
		<-sent
		k.send(method + " / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
		if _, body := k.answer(method); body != "ok" {
			t.Errorf("%s was answered %q", method, body)
		}
	}
}

func TestBadChunksAreTheClientsFault(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	s := serve(t, plain(addr))
	for _, rest := range []string{"xyz\r\n", "2\r\nabc\r\n"} {
		k := newTalk(t, s.addr())
		k.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
		k.send(rest)
		if resp, _ := k.answer("POST"); resp.StatusCode != 400 {
			t.Errorf("%q: status %d", rest, resp.StatusCode)
		}
		k.closed()
		k.Close()
	}
	if n := s.failures(telemetry.BadBody); n != 2 {
		t.Errorf("%d failures by %s", n, telemetry.BadBody)
	}
	if s.failures(telemetry.BackendReset) != 0 {
		t.Error("the backend was blamed")
	}
}

func TestSlowHeadIsAnsweredWith408(t *testing.T) {
	addr, _ := wire(t, okResponse)
	s := serve(t, plain(addr), func(o *Options) { o.HeaderTimeout = 50 * time.Millisecond })
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost:")
	if resp, _ := k.answer("GET"); resp.StatusCode != 408 {
		t.Errorf("status %d", resp.StatusCode)
	}
	k.closed()
}

func TestIdleConnectionIsClosedSilently(t *testing.T) {
	addr, _ := wire(t, okResponse)
	s := serve(t, plain(addr), func(o *Options) { o.IdleTimeout = 50 * time.Millisecond })
	for {
		k := newTalk(t, s.addr())
		io.WriteString(k, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := k.r.Peek(1); err != nil && !upstream.IsTimeout(err) {
			continue // the machine is so busy that the request came too late
		}
		k.answer("GET")
		k.closed()
		return
	}
}

func TestConnectionsBeyondTheLimitAreRefused(t *testing.T) {
	addr, _ := wire(t, okResponse)
	s := serve(t, plain(addr), func(o *Options) { o.MaxConnections = 1 })
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	k.answer("GET")
	late := newTalk(t, s.addr())
	if resp, _ := late.answer("GET"); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !resp.Close {
		t.Errorf("%v", resp)
	}
	late.closed()
	if s.failures(telemetry.Overload) != 1 {
		t.Error("not counted")
	}
}

func TestLargeHeadsPass(t *testing.T) {
	big := strings.Repeat("v", 40000)
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Big", r.Header.Get("X-Big")) })
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	for range 2 {
		k.send("GET / HTTP/1.1\r\nHost: a\r\nX-Big: " + big + "\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.Header.Get("X-Big") != big {
			t.Errorf("%d bytes came back", len(resp.Header.Get("X-Big")))
		}
	}
}
