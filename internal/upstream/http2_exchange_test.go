package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// framed serves HTTP/2 frame by frame: on gets every request's headers with the connection's number, from 1, and returns false to close.
func framed(t testing.TB, on func(f *http2.Framer, conn int, stream uint32) bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	serve := func(c net.Conn, number int) {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(c, c)
		f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					f.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				if !on(f, number, frame.StreamID) {
					return
				}
			}
		}
	}
	wg.Go(func() {
		for number := 1; ; number++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(c, number) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		wg.Wait()
	})
	return l.Addr().String()
}

func respond(f *http2.Framer, stream uint32) {
	var block bytes.Buffer
	hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
}

func TestRequestsThatWereNotProcessedAreSentAgain(t *testing.T) {
	cases := map[string]func(f *http2.Framer, conn int, stream uint32) bool{
		"GOAWAY": func(f *http2.Framer, conn int, stream uint32) bool {
			if conn == 1 {
				f.WriteGoAway(0, http2.ErrCodeNo, nil)
			} else {
				respond(f, stream)
			}
			return true
		},
		"REFUSED_STREAM": func(f *http2.Framer, conn int, stream uint32) bool {
			if stream == 1 {
				f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
			} else {
				respond(f, stream)
			}
			return true
		},
	}
	for name, on := range cases {
		t.Run(name, func(t *testing.T) {
			address := framed(t, on)
			e := one(t, newSet(t, Options{}), address)
			if resp, _ := roundTrip(t, e, request(t, "GET", "/", nil)); resp.StatusCode != 200 {
				t.Errorf("%d", resp.StatusCode)
			}
			if st := e.Stats(); st.Failures != 0 || st.InFlight != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestARequestThatIsRefusedAgainFailsWithItsBodyClosed(t *testing.T) {
	requests := make(chan uint32, 10)
	address := framed(t, func(f *http2.Framer, _ int, stream uint32) bool {
		requests <- stream
		f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
		return true
	})
	e := one(t, newSet(t, Options{}), address)
	for _, c := range []struct {
		body     *trackedBody
		requests int
	}{{nil, 2}, {&trackedBody{Reader: strings.NewReader("x")}, 1}} {
		req := request(t, "POST", "/", nil)
		if c.body != nil {
			req.Body, req.ContentLength = c.body, 1
		}
		_, err := e.HTTP2().RoundTrip(req)
		var se http2.StreamError
		if !errors.As(err, &se) || se.Code != http2.ErrCodeRefusedStream {
			t.Fatalf("%v", err)
		}
		n := len(requests)
		for range n {
			<-requests
		}
		if c.body == nil {
			if n != 2 {
				t.Errorf("sent %d times, want 2", n)
			}
			continue
		}
		if n < 1 || n > 2 || c.body.reads() > 0 && n != 1 {
			t.Errorf("sent %d times though the body was read %d times", n, c.body.reads())
		}
		if c.body.closes() != 1 {
			t.Errorf("the body was closed %d times", c.body.closes())
		}
	}
	if st := e.Stats(); st.Failures != 0 || st.InFlight != 0 || st.HTTP2 != 1 {
		t.Errorf("%+v", st)
	}
}

// trackedBody counts.
type trackedBody struct {
	io.Reader
	mu        sync.Mutex
	nr, nc    int
	failAfter error
}

func (b *trackedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nr++
	if b.failAfter != nil {
		return 0, b.failAfter
	}
	return b.Reader.Read(p)
}

func (b *trackedBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nc++
	return nil
}

func (b *trackedBody) reads() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nr
}

func (b *trackedBody) closes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nc
}

func TestAConnectionThatIsGoingAwayTakesNoNewExchanges(t *testing.T) {
	finish := make(chan struct{})
	address := framed(t, func(f *http2.Framer, conn int, stream uint32) bool {
		if conn == 1 {
			f.WriteGoAway(stream, http2.ErrCodeNo, nil)
			<-finish
		}
		respond(f, stream)
		return true
	})
	e := one(t, newSet(t, Options{}), address)
	done := make(chan struct{})
	go func() {
		defer close(done)
		roundTrip(t, e, request(t, "GET", "/slow", nil))
	}()
	eventually(t, "the first request is under way", func() bool { return e.Stats().HTTP2 == 1 && e.InFlight() == 1 })
	for range 5 {
		if e.Stats().HTTP2 == 2 {
			break
		}
		// Before the GOAWAY arrives a request may still share the first connection, and is sent again then.
		roundTrip(t, e, request(t, "GET", "/", nil))
	}
	close(finish)
	<-done
	eventually(t, "the first connection ends", func() bool { return e.Stats().HTTP2 == 1 })
	if st := e.Stats(); st.Failures != 0 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

func TestWhatCountsAgainstAnHTTP2Endpoint(t *testing.T) {
	t.Run("connection lost before the answer", func(t *testing.T) {
		e := one(t, newSet(t, Options{}), framed(t, func(*http2.Framer, int, uint32) bool { return false }))
		for range 3 {
			if _, err := e.HTTP2().RoundTrip(request(t, "GET", "/", nil)); err == nil {
				t.Fatal("answered")
			}
		}
		if st := e.Stats(); st.Failures != 3 || st.Denied != 1 || st.InFlight != 0 || st.HTTP2 != 0 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("no HTTP/2 at all", func(t *testing.T) {
		e := one(t, newSet(t, Options{}), echoServer(t).address())
		if _, err := e.HTTP2().RoundTrip(request(t, "GET", "/", nil)); err == nil {
			t.Fatal("answered")
		}
		if st := e.Stats(); st.Failures != 1 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("refused", func(t *testing.T) {
		e := one(t, newSet(t, Options{}), refused(t))
		_, err := e.HTTP2().RoundTrip(request(t, "GET", "/", nil))
		var ce *ConnectError
		if !errors.As(err, &ce) || ce.Reason != ConnectRefused {
			t.Fatalf("%v", err)
		}
		if st := e.Stats(); st.Failures != 1 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("not a reset stream, a failing body, a cancelled or an invalid request", func(t *testing.T) {
		e := one(t, newSet(t, Options{}), framed(t, func(f *http2.Framer, _ int, stream uint32) bool {
			if stream == 1 {
				f.WriteRSTStream(stream, http2.ErrCodeInternal)
			}
			return true
		}))
		var se http2.StreamError
		if _, err := e.HTTP2().RoundTrip(request(t, "GET", "/", nil)); !errors.As(err, &se) || se.Code != http2.ErrCodeInternal {
			t.Errorf("%v", err)
		}
		broken := errors.New("the client went away")
		body := &trackedBody{failAfter: broken}
		req := request(t, "POST", "/", nil)
		req.Body = body
		if _, err := e.HTTP2().RoundTrip(req); !errors.Is(err, broken) || body.closes() != 1 {
			t.Errorf("%v, closed %d times", err, body.closes())
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if _, err := e.HTTP2().RoundTrip(request(t, "GET", "/", nil).WithContext(ctx)); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		req = request(t, "GET", "/", nil)
		req.Header.Set("Bad Name", "x")
		if _, err := e.HTTP2().RoundTrip(req); err == nil {
			t.Error("an invalid field was sent")
		}
		if st := e.Stats(); st.Failures != 0 || st.InFlight != 0 || st.HTTP2 != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestAnUntouchedBodySurvivesAFailedAttempt(t *testing.T) {
	rc := &trackedBody{Reader: strings.NewReader("whole")}
	body := &requestBody{rc: rc}
	first := &bodyAttempt{body: body}
	first.Close()
	if !first.detach() || rc.closes() != 0 {
		t.Fatal("the first attempt took the body with it")
	}
	second := &bodyAttempt{body: body}
	if n, err := first.Read(make([]byte, 8)); n != 0 || err == nil {
		t.Error("a late read of the first attempt got something")
	}
	first.Close()
	body.settle()
	if got, err := io.ReadAll(second); string(got) != "whole" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if second.detach() {
		t.Error("a body that was read counts as untouched")
	}
	second.Close()
	second.Close()
	if rc.closes() != 1 {
		t.Errorf("closed %d times", rc.closes())
	}
}

func TestABodyThatIsNotNeededIsClosed(t *testing.T) {
	rc := &trackedBody{}
	body := &requestBody{rc: rc}
	attempt := &bodyAttempt{body: body}
	attempt.Close() // as when the answer came before the transport read anything
	body.settle()
	if rc.closes() != 1 || rc.reads() != 0 {
		t.Errorf("closed %d, read %d times", rc.closes(), rc.reads())
	}
	rc = &trackedBody{}
	body = &requestBody{rc: rc}
	attempt = &bodyAttempt{body: body}
	body.settle()
	attempt.Close()
	if rc.closes() != 1 {
		t.Errorf("closed %d times", rc.closes())
	}
}

func TestARequestIsNotChangedOnItsWay(t *testing.T) {
	address := http2Server(t, nil, 0, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Got", r.Host+" "+r.UserAgent()+" "+r.URL.Path)
	})
	e := one(t, newSet(t, Options{}), address)
	req := request(t, "GET", "/a", nil)
	req.URL.Host = ""
	resp, _ := roundTrip(t, e, req)
	if got := resp.Header.Get("Got"); got != "shop.test  /a" {
		t.Errorf("got %q", got)
	}
	if req.URL.Host != "" || len(req.Header) != 0 {
		t.Errorf("the caller's request was changed: %v, %v", req.URL, req.Header)
	}
	req.Header.Set("User-Agent", "curl")
	resp, _ = roundTrip(t, e, req)
	if got := resp.Header.Get("Got"); got != "shop.test curl /a" {
		t.Errorf("got %q", got)
	}
}
