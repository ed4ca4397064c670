package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
)

// callServer serves HTTP/1.1 and h2c.
func callServer(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
	return l.Addr().String()
}

// wireServer gives each connection to serve, with its number.
func wireServer(t testing.TB, serve func(n int, c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(20 * time.Second))
				serve(n, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// readHead reads the head of a request.
func readHead(r *bufio.Reader) (head string, err error) {
	for !strings.HasSuffix(head, "\r\n\r\n") {
		line, err := r.ReadString('\n')
		if err != nil {
			return head, err
		}
		head += line
	}
	return head, nil
}

// begin lays out a request without its body.
func begin(c *Call, method string, body http1.Body, http2 bool) {
	c.Stall = 10 * time.Second
	c.Deadline, c.Look = time.Now().Add(20*time.Second), 0
	c.Request = Request{Method: method, Target: "/path?query", Authority: "a.example", Body: body, HTTP2: http2,
		Fields: []http1.Field{{Name: "x-one", Value: "1"}, {Name: "trailer", Value: "x-two"}}}
	c.Begin()
}

// finalHead waits for the final head.
func finalHead(t testing.TB, c *Call, r *http1.Response) (interim []int) {
	t.Helper()
	for {
		if err := c.Head(r); err != nil {
			t.Fatal(err)
		}
		if r.Status >= 200 {
			return interim
		}
		interim = append(interim, r.Status)
	}
}

func rest(c *Call) (string, error) {
	var all []byte
	for {
		p, err := c.Next()
		if all = append(all, p...); err == io.EOF {
			return string(all), nil
		} else if err != nil {
			return string(all), err
		}
	}
}

var bothProtocols = map[string]bool{"HTTP/1.1": false, "HTTP/2": true}

func TestCallCarriesBothMessagesWhole(t *testing.T) {
	address := callServer(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprintf(w, "%s %s %s %s %q: ", r.Method, r.Host, r.RequestURI, r.Header.Get("X-One"), r.Trailer.Get("X-Two"))
		if r.URL.Query().Has("flush") {
			w.(http.Flusher).Flush()
		}
		w.Write(b)
		w.Header().Set("X-Sum", fmt.Sprint(len(b)))
	})
	long := strings.Repeat("0123456789abcdef", 20<<10)
	trailers := []http1.Field{{Name: "X-Two", Value: "2"}}
	chunked := http1.Body{Kind: http1.BodyChunked}
	length := func(s string) http1.Body { return http1.Body{Kind: http1.BodyLength, Length: int64(len(s))} }
	for name, overHTTP2 := range bothProtocols {
		for what, test := range map[string]struct {
			method   string
			body     http1.Body
			lay      func(c *Call) // before Open
			write    func(c *Call) error
			trailers bool
			want     string
		}{
			"no body":          {method: "GET", lay: func(c *Call) { c.End(nil) }},
			"in memory":        {method: "POST", body: length("short"), lay: func(c *Call) { c.First([]byte("short")); c.End(nil) }, want: "short"},
			"large, in memory": {method: "POST", body: length(long), lay: func(c *Call) { c.First([]byte(long)); c.End(nil) }, want: long},
			"half in memory": {method: "POST", body: length(long), lay: func(c *Call) { c.First([]byte(long[:100])) },
				write: func(c *Call) error {
					return errors.Join(c.Write([]byte(long[100:5000]), true), c.Write([]byte(long[5000:]), false), c.Finish(nil))
				}, want: long},
			"chunks in memory": {method: "POST", body: chunked, lay: func(c *Call) { c.First([]byte("one,")); c.Add([]byte("two")); c.End(trailers) }, trailers: true, want: "one,two"},
			"chunks": {method: "POST", body: chunked, lay: func(c *Call) { c.First([]byte("one,")) },
				write: func(c *Call) error {
					return errors.Join(c.Write(nil, false), c.Write([]byte("two,"), true), c.Write([]byte("three,"), true), c.Write([]byte("four,"), false),
						c.Write([]byte("five"), true), c.Finish(trailers))
				}, trailers: true, want: "one,two,three,four,five"},
			"large chunks": {method: "POST", body: chunked, lay: func(c *Call) {},
				write: func(c *Call) error { return errors.Join(c.Write([]byte(long), true), c.Finish(nil)) }, want: long},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				set := newSet(t, Options{})
				e := one(t, set, address)
				var c Call
				for range 3 { // the connection is used again
					begin(&c, test.method, test.body, overHTTP2)
					if test.lay(&c); !c.Unsent() || c.Whole() != (test.write == nil) {
						t.Fatalf("laid out: unsent %v, whole %v", c.Unsent(), c.Whole())
					}
					if err := c.Open(e, &Waiting{}, 1, time.Now()); err != nil {
						t.Fatal(err)
					}
					if err := c.Send(true); err != nil {
						t.Fatal(err)
					}
					sent := make(chan error, 1)
					go func() {
						switch {
						case c.Sent():
							sent <- nil
						case c.Whole():
							sent <- c.Finish(nil)
						default:
							sent <- test.write(&c)
						}
					}()
					var r http1.Response
					interim := finalHead(t, &c, &r)
					want := fmt.Sprintf("%s a.example /path?query 1 %q: %s", test.method, map[bool]string{true: "2"}[test.trailers], test.want)
					got, err := rest(&c)
					if got != want || err != nil || r.Status != 200 || len(interim) != 1 || interim[0] != 103 {
						t.Errorf("%d after %v, %v, %d bytes, want %d: %.80q", r.Status, interim, err, len(got), len(want), got)
					}
					summed := slices.ContainsFunc(c.Trailers(), func(f http1.Field) bool {
						return strings.EqualFold(f.Name, "x-sum") && f.Value == fmt.Sprint(len(test.want))
					})
					if !summed && r.Body.Kind == http1.BodyChunked {
						t.Errorf("trailers %q", c.Trailers())
					}
					if err := <-sent; err != nil || !c.Sent() {
						t.Errorf("sending: %v, sent %v", err, c.Sent())
					}
					if c.Close(); c.Opened() || e.InFlight() != 0 {
						t.Errorf("after Close: opened %v, %d in flight", c.Opened(), e.InFlight())
					}
				}
				if st := e.Stats(); st.Dials != 1 || st.Failures != 0 {
					t.Errorf("%d connections, %d failures", st.Dials, st.Failures)
				}
			})
		}
	}
}

// An endpoint that refuses a stream did not look at the request (RFC 9113 §8.7).
func TestCallMaySendRefusedStreamsAgain(t *testing.T) {
	refused := &http2.StreamError{Code: http2.RefusedStream, Remote: true}
	broken := &http2.ConnError{Remote: true, Code: http2.NoError}
	address := callServer(t, func(w http.ResponseWriter, r *http.Request) {})
	e := one(t, newSet(t, Options{}), address)
	for i, test := range []struct {
		err        error
		try        int
		idempotent bool
		again      bool
	}{
		{refused, 1, false, true}, {refused, 2, false, false}, {broken, 1, true, false}, {broken, 1, true, true}, {broken, 1, false, false},
		{broken, 2, true, false}, {io.EOF, 1, true, false},
	} {
		var c Call
		begin(&c, "GET", http1.Body{}, true)
		c.End(nil)
		if err := c.Open(e, &Waiting{}, test.try, time.Now()); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			c.stream.Close()
			c.stream, _, _ = one(t, newSet(t, Options{}), address).Open(&c.head, nil, true, &Waiting{}) // the first of its connection
		}
		if got := c.Again(test.err, test.idempotent); got != test.again || c.Unsent() {
			t.Errorf("%d, try %d, idempotent %v: again %v, want %v", i, test.try, test.idempotent, got, test.again)
		}
		c.Close()
	}
}

// The caller looks now and then whether the answer is still wanted.
func TestCallLooksAndGoesOn(t *testing.T) {
	for name, overHTTP2 := range bothProtocols {
		t.Run(name, func(t *testing.T) {
			proceed := make(chan struct{})
			address := callServer(t, func(w http.ResponseWriter, r *http.Request) {
				<-proceed
				w.(http.Flusher).Flush()
				<-proceed
				io.WriteString(w, "hello")
			})
			e := one(t, newSet(t, Options{}), address)
			var c Call
			var r http1.Response
			begin(&c, "GET", http1.Body{}, overHTTP2)
			c.Deadline, c.Look = time.Time{}, 10*time.Millisecond
			c.End(nil)
			if err := errors.Join(c.Open(e, &Waiting{}, 1, time.Now()), c.Send(true)); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := c.Head(&r); err != ErrTimeout {
					t.Fatalf("%v before a head", err)
				}
			}
			proceed <- struct{}{}
			err := ErrTimeout
			for err == ErrTimeout {
				err = c.Head(&r)
			}
			if err != nil || r.Status != 200 {
				t.Fatalf("%d, %v", r.Status, err)
			}
			for range 3 {
				if p, err := c.Next(); err != ErrTimeout {
					t.Fatalf("%q, %v before the body", p, err)
				}
			}
			proceed <- struct{}{}
			var body []byte
			for err != io.EOF {
				var p []byte
				if p, err = c.Next(); err != nil && err != ErrTimeout && err != io.EOF {
					t.Fatal(err)
				}
				body = append(body, p...)
			}
			if string(body) != "hello" {
				t.Errorf("%q", body)
			}
			c.Close()
			if st := e.Stats(); st.Failures != 0 || !overHTTP2 && st.Idle != 1 {
				t.Errorf("%d failures, %d idle", st.Failures, st.Idle)
			}
		})
	}
}

func TestCallIsAbortedFromOutside(t *testing.T) {
	for name, overHTTP2 := range bothProtocols {
		t.Run(name, func(t *testing.T) {
			came := make(chan struct{})
			address := callServer(t, func(w http.ResponseWriter, r *http.Request) {
				close(came)
				<-r.Context().Done()
			})
			e := one(t, newSet(t, Options{}), address)
			var c Call
			var r http1.Response
			begin(&c, "GET", http1.Body{}, overHTTP2)
			c.End(nil)
			if err := errors.Join(c.Open(e, &Waiting{}, 1, time.Now()), c.Send(false)); err != nil {
				t.Fatal(err)
			}
			go func() {
				<-came
				c.Abort()
			}()
			if err := c.Head(&r); err == nil || err == ErrTimeout {
				t.Errorf("%v, %d", err, r.Status)
			}
			c.Close()
			if e.InFlight() != 0 {
				t.Errorf("%d in flight", e.InFlight())
			}
		})
	}
}
