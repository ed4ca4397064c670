package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/http1"
)

// bodies of answers over HTTP/1.1 that end, and that break off.
func TestCallReadsAnswersToTheirEnd(t *testing.T) {
	big := strings.Repeat("x", 100<<10)
	for answer, want := range map[string]struct {
		body  string
		again bool
		err   bool
	}{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello":                                                         {body: "hello", again: true},
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":                                                              {again: true},
		"HTTP/1.1 204 No Content\r\n\r\n":                                                                           {again: true},
		"HTTP/1.1 200 OK\r\nContent-Length: 102400\r\n\r\n" + big:                                                   {body: big, again: true},
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n":                              {body: "hello", again: true},
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello":                                    {body: "hello"},
		"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello":                                                         {body: "hello"},
		"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello":                                    {body: "hello", err: true},
		"HTTP/1.1 200 OK\r\nContent-Length: 102401\r\nConnection: close\r\n\r\n" + big:                              {body: big, err: true},
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n":                  {body: "hello", err: true},
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\nno number\r\n\r\n": {body: "hello", err: true},
	} {
		address := wireServer(t, func(_ int, nc net.Conn, r *bufio.Reader) {
			for {
				if _, err := readHead(r); err != nil {
					return
				}
				if io.WriteString(nc, answer); strings.Contains(answer, "Connection: close") {
					return
				}
			}
		})
		e := one(t, newSet(t, Options{}), address)
		var c Call
		for range 2 {
			begin(&c, "GET", http1.Body{}, false)
			c.End(nil)
			var r http1.Response
			if err := errors.Join(c.Open(e, &Waiting{}, 1, time.Now()), c.Send(true)); err != nil {
				t.Fatal(err)
			}
			finalHead(t, &c, &r)
			got, err := rest(&c)
			if got != want.body || (err != nil) != want.err {
				t.Errorf("%.80q: %d bytes, %v", answer, len(got), err)
			}
			if err != nil {
				c.Blame(err)
			}
			c.Close()
		}
		st := e.Stats()
		if again := st.Dials == 1; again != want.again || (st.Failures > 0) != want.err {
			t.Errorf("%.80q: %d connections, %d failures", answer, st.Dials, st.Failures)
		}
	}
}

func TestCallThatIsGivenUpCostsItsConnection(t *testing.T) {
	for name, give := range map[string]func(c *Call, r *http1.Response){
		"before the answer's head": func(*Call, *http1.Response) {},
		"before its end":           func(c *Call, r *http1.Response) { c.Head(r); c.Next() },
		"aborted":                  func(c *Call, r *http1.Response) { c.Head(r); rest(c); c.Abort() },
	} {
		address := wireServer(t, func(_ int, nc net.Conn, r *bufio.Reader) {
			if _, err := readHead(r); err == nil {
				io.WriteString(nc, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
				if name == "aborted" {
					io.WriteString(nc, "0\r\n\r\n")
				}
				io.Copy(io.Discard, r)
			}
		})
		e := one(t, newSet(t, Options{}), address)
		var c Call
		var r http1.Response
		begin(&c, "GET", http1.Body{}, false)
		c.End(nil)
		if err := errors.Join(c.Open(e, &Waiting{}, 1, time.Now()), c.Send(false)); err != nil {
			t.Fatal(err)
		}
		give(&c, &r)
		c.Close()
		if st := e.Stats(); st.Open != 0 || st.InFlight != 0 {
			t.Errorf("%s: %d connections are open, %d in flight", name, st.Open, st.InFlight)
		}
	}
}

// An answer that comes before the request is whole leaves a connection on which the rest of the request would be taken for the next.
func TestCallWithoutItsWholeRequestCostsItsConnection(t *testing.T) {
	address := wireServer(t, func(_ int, nc net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		io.Copy(io.Discard, r)
	})
	e := one(t, newSet(t, Options{}), address)
	var c Call
	var r http1.Response
	begin(&c, "POST", http1.Body{Kind: http1.BodyLength, Length: 10}, false)
	c.First([]byte("half"))
	if err := errors.Join(c.Open(e, &Waiting{}, 1, time.Now()), c.Send(true)); err != nil || c.Sent() {
		t.Fatal(err, c.Sent())
	}
	finalHead(t, &c, &r)
	if _, err := rest(&c); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if st := e.Stats(); st.Idle != 0 || st.Open != 0 {
		t.Errorf("%d connections are idle, %d open", st.Idle, st.Open)
	}
}

func TestCallSkipsAnswersThatAreInMemory(t *testing.T) {
	address := wireServer(t, func(_ int, nc net.Conn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			io.WriteString(nc, "HTTP/1.1 503 Unavailable\r\nContent-Length: 5\r\n\r\nhello")
		}
	})
	e := one(t, newSet(t, Options{}), address)
	var c Call
	for range 3 {
		var r http1.Response
		begin(&c, "GET", http1.Body{}, false)
		c.End(nil)
		if err := errors.Join(c.Open(e, &Waiting{}, 1, time.Now()), c.Send(true)); err != nil {
			t.Fatal(err)
		}
		finalHead(t, &c, &r)
		c.Skip()
		c.Close()
	}
	if st := e.Stats(); st.Dials != 1 {
		t.Errorf("%d connections", st.Dials)
	}
}

// A connection that was closed while it was idle says nothing of the endpoint: what may be sent again is, over a new one.
func TestCallSaysWhatMayBeSentAgain(t *testing.T) {
	long := bytes.Repeat([]byte("x"), JoinBody+1)
	for name, test := range map[string]struct {
		idempotent, reused bool
		seen               bool // the request comes, and the connection ends without an answer
		body               []byte
		whole              bool
		again, unsent      bool
	}{
		"nothing was taken":                     {reused: true, whole: true, again: true, unsent: true},
		"it may be repeated":                    {reused: true, seen: true, idempotent: true, whole: true, again: true, unsent: true},
		"it may be repeated, is large":          {reused: true, seen: true, idempotent: true, body: long, whole: true, again: true, unsent: true},
		"it may be repeated, but is not whole":  {reused: true, seen: true, idempotent: true, body: []byte("a"), again: true},
		"it may not be repeated":                {reused: true, seen: true, whole: true},
		"the connection is new, and was broken": {seen: true, idempotent: true, whole: true},
	} {
		t.Run(name, func(t *testing.T) {
			closed := make(chan struct{})
			address := wireServer(t, func(n int, nc net.Conn, r *bufio.Reader) {
				if n == 1 && test.reused {
					readHead(r)
					io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					if !test.seen {
						nc.Close()
						close(closed)
						return
					}
				}
				if n == 1 {
					readHead(r)
					return
				}
				if _, err := http.ReadRequest(r); err == nil {
					io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond")
				}
			})
			e := one(t, newSet(t, Options{}), address)
			var c Call
			var r http1.Response
			if test.reused {
				begin(&c, "GET", http1.Body{}, false)
				c.End(nil)
				if err := errors.Join(c.Open(e, &Waiting{}, 1, time.Now()), c.Send(true)); err != nil {
					t.Fatal(err)
				}
				finalHead(t, &c, &r)
				c.Close()
			}
			if !test.seen {
				<-closed
				eventually(t, "the connection's end", func() bool { return !e.idle[0].Alive() })
			}
			body := http1.Body{Kind: http1.BodyLength, Length: int64(len(test.body))}
			if !test.whole {
				body.Length++
			}
			begin(&c, "PUT", body, false)
			if c.First(test.body); test.whole {
				c.End(nil)
			}
			if err := c.Open(e, &Waiting{}, 1, time.Now()); err != nil {
				t.Fatal(err)
			}
			err := c.Send(true)
			if err == nil {
				r.Reset()
				err = c.Head(&r)
			}
			if err == nil {
				t.Fatalf("answered %d", r.Status)
			}
			c.Blame(err)
			again := c.Again(err, test.idempotent)
			c.Close()
			if failed := e.Stats().Failures > 0; again != test.again || c.Unsent() != test.unsent || failed == test.reused {
				t.Fatalf("again %v, want %v; unsent %v, want %v; blamed %v; after %v", again, test.again, c.Unsent(), test.unsent, failed, err)
			}
			if !c.Unsent() {
				return
			}
			if err := errors.Join(c.Open(e, &Waiting{}, 2, time.Now()), c.Send(true)); err != nil {
				t.Fatal(err)
			}
			r.Reset()
			finalHead(t, &c, &r)
			if got, err := rest(&c); got != "second" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			c.Close()
		})
	}
}

func TestCallTakesNoSwitchThatNobodyAskedFor(t *testing.T) {
	for _, test := range []struct {
		upgrade, answer string
		want            int
		err             error
	}{
		{"websocket", "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 101, nil},
		{"websocket", "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n", 0, ErrInterim},
		{"", "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 0, ErrInterim},
		{"", strings.Repeat("HTTP/1.1 103 Hints\r\n\r\n", maxInterim) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, nil},
		{"", strings.Repeat("HTTP/1.1 103 Hints\r\n\r\n", maxInterim+1), 0, ErrInterim},
	} {
		address := wireServer(t, func(_ int, nc net.Conn, r *bufio.Reader) {
			readHead(r)
			io.WriteString(nc, test.answer)
			io.Copy(nc, r)
		})
		e := one(t, newSet(t, Options{}), address)
		var c Call
		var r http1.Response
		begin(&c, "GET", http1.Body{}, false)
		c.Request.Upgrade = test.upgrade
		c.Begin()
		c.End(nil)
		if err := errors.Join(c.Open(e, &Waiting{}, 1, time.Now()), c.Send(true)); err != nil {
			t.Fatal(err)
		}
		var err error
		for err == nil {
			if err = c.Head(&r); err == nil && (r.Status == 101 || r.Status >= 200) {
				break
			}
		}
		if err != test.err || err == nil && r.Status != test.want {
			t.Errorf("%q, %.80q: %d, %v", test.upgrade, test.answer, r.Status, err)
		}
		if err != nil {
			if c.Blame(err); e.Stats().Failures != 1 {
				t.Errorf("%q, %.80q: %d failures", test.upgrade, test.answer, e.Stats().Failures)
			}
			c.Close()
			continue
		}
		if r.Status == 101 {
			k := c.Detach()
			if c.Opened() || e.InFlight() != 1 {
				t.Errorf("opened %v, %d in flight", c.Opened(), e.InFlight())
			}
			exchange(t, k, "tunnelled")
			k.Close()
		}
		c.Close()
	}
}

func TestCallSplicesLongBodies(t *testing.T) {
	const size = 3 << 20
	body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	address := callServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		w.Write(body)
	})
	e := one(t, newSet(t, Options{}), address)
	near, far := tcpPair(t)
	got := make(chan []byte, 1)
	var c Call
	for range 2 {
		go func() {
			b := make([]byte, size)
			io.ReadFull(far, b)
			got <- b
		}()
		var r http1.Response
		begin(&c, "GET", http1.Body{}, false)
		c.End(nil)
		if err := errors.Join(c.Open(e, &Waiting{}, 1, time.Now()), c.Send(true)); err != nil {
			t.Fatal(err)
		}
		finalHead(t, &c, &r)
		for c.Ready() {
			p, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			near.Write(p)
		}
		if !c.Splices() {
			t.Fatalf("%d bytes are not spliced", c.Left())
		}
		for c.Left() > 0 {
			if n, err := c.Splice(near, 1<<20, time.Now()); n == 0 || err != nil {
				t.Fatal(n, err)
			}
		}
		if p, err := c.Next(); err != io.EOF {
			t.Errorf("%d bytes, %v behind the end", len(p), err)
		}
		c.Close()
		if !bytes.Equal(<-got, body) {
			t.Error("other bytes came")
		}
	}
	if st := e.Stats(); st.Dials != 1 {
		t.Errorf("%d connections", st.Dials)
	}
}

func tcpPair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

// An exchange after the other over a kept connection costs no memory.
func TestCallAllocatesNothing(t *testing.T) {
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello")
	address := wireServer(t, func(_ int, nc net.Conn, r *bufio.Reader) {
		buf := make([]byte, 4<<10)
		for {
			if _, err := r.Read(buf); err != nil {
				return
			}
			nc.Write(answer)
		}
	})
	e := one(t, newSet(t, Options{}), address)
	var c Call
	var r http1.Response
	var w Waiting
	fields := []http1.Field{{Name: "x-one", Value: "1"}}
	do := func() {
		c.Reset()
		c.Stall, c.Look = 10*time.Second, time.Second
		c.Request = Request{Method: "GET", Target: "/", Authority: "a.example", Fields: fields}
		c.Begin()
		c.End(nil)
		if c.Open(e, &w, 1, time.Now()) != nil || c.Send(true) != nil || c.Head(&r) != nil {
			t.Fatal("failed")
		}
		if p, err := c.Next(); string(p) != "hello" || err != nil {
			t.Fatal(string(p), err)
		}
		c.Close()
		r.Reset()
	}
	for range 20 {
		do()
	}
	if n := testing.AllocsPerRun(1000, do); n != 0 {
		t.Errorf("%v allocations for each call", n)
	}
	if st := e.Stats(); st.Dials != 1 {
		t.Errorf("%d connections", st.Dials)
	}
}
