package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/size"
)

var postBlock = encode([][2]string{{":method", "POST"}, {":path", "/"}, {":scheme", "http"}, {":authority", "a"}})

// post opens stream 1 with a request whose body is still to come. fields are names and values.
func (f *h2Frames) post(fields ...string) {
	block := bytes.Clone(postBlock)
	for i := 0; i < len(fields); i += 2 {
		block = append(block, encode([][2]string{{fields[i], fields[i+1]}})...)
	}
	f.WriteSettingsAck()
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: block})
}

// read gives each frame to see until see returns true. It returns false if the connection ends before.
func (f *h2Frames) read(t *testing.T, see func(http2.Frame) (enough bool)) bool {
	t.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Fatal("the connection is open, and nothing comes any more")
			}
			return false
		}
		if see(frame) {
			return true
		}
	}
}

// status reads up to the answer's head.
func (f *h2Frames) status(t *testing.T) (status string) {
	t.Helper()
	f.ReadMetaHeaders = decoder()
	f.read(t, func(frame http2.Frame) bool {
		h, ok := frame.(*http2.MetaHeadersFrame)
		if ok {
			status = h.PseudoValue("status")
		}
		return ok
	})
	return status
}

// crumbs calls f often until the test, or the returned function, ends it.
func crumbs(t *testing.T, f func() error) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for f() == nil {
			select {
			case <-quit:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	stop = func() {
		select {
		case <-quit:
		default:
			close(quit)
		}
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// strict sets a minimum rate that crumbs do not reach. No other limit ends a client that keeps sending or reading
// crumbs.
func strict(o *Options) { o.MinBodyRate, o.BodyGrace = 1<<20, 500*time.Millisecond }

// blamed checks for one client_timeout and no fault of the backend.
func blamed(t *testing.T, s *testServer) {
	t.Helper()
	if n := s.failures(telemetry.ClientTimeout); n != 1 {
		t.Errorf("client_timeout is counted %d times: %v", n, reasonsOf(s))
	}
	for _, r := range reasonsOf(s) {
		if r.Party() == telemetry.PartyBackend {
			t.Errorf("the backend is blamed: %s", r)
		}
	}
}

func TestHTTP2BodyThatTricklesIsTheClientsFault(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fields []string
		begin  []byte // bytes of the request as sent
		crumb  []byte
	}{
		"length":           {[]string{"content-length", "100000"}, nil, []byte{0, 0, 1, 0, 0, 0, 0, 0, 1, 'x'}},
		"unknown length":   {nil, nil, []byte{0, 0, 1, 0, 0, 0, 0, 0, 1, 'x'}},
		"one large frame":  {nil, []byte{0, 0x40, 0, 0, 0, 0, 0, 0, 1}, []byte{'x'}},
		"padding":          {nil, nil, append([]byte{0, 0, 51, 0, byte(http2.FlagDataPadded), 0, 0, 0, 1, 50}, make([]byte, 50)...)},
		"nothing":          {[]string{"content-length", "1"}, nil, nil},
		"nothing but PING": {nil, nil, []byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := backend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
			s := serve(t, plain(addr), strict)
			f := newH2Frames(t, s.addr())
			f.post(test.fields...)
			f.c.Write(test.begin)
			crumbs(t, func() error { _, err := f.c.Write(test.crumb); return err })
			if got := f.status(t); got != "408" {
				t.Errorf("status %q", got)
			}
			if !f.read(t, func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameRSTStream }) {
				t.Error("the stream was not reset")
			}
			blamed(t, s)
		})
	}
}

// TestHTTP2BodyThatComesOrCannotIsNotSlow: each frame counts when it arrives. If slow backends fill the connection's
// window, the client is not slow.
func TestHTTP2BodyThatComesOrCannotIsNotSlow(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Wait") != "" {
			<-release
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	t.Run("one large frame", func(t *testing.T) {
		t.Parallel()
		s := serve(t, plain(addr), func(o *Options) { o.MinBodyRate, o.BodyGrace = 1000, time.Second })
		f := newH2Frames(t, s.addr())
		f.post()
		f.c.Write([]byte{0, 0x40, 0, 0, byte(http2.FlagDataEndStream), 0, 0, 0, 1})
		for range 16 { // twice the grace, at several times the rate
			f.c.Write(body(1 << 10))
			time.Sleep(125 * time.Millisecond)
		}
		if got := f.status(t); got != "200" {
			t.Errorf("status %q, %v", got, reasonsOf(s))
		}
	})
	t.Run("no window", func(t *testing.T) {
		t.Parallel()
		whole := int64(size.Of(2<<20, 16<<20)) // more than a connection's window
		s := serve(t, plain(addr), func(o *Options) { o.MinBodyRate, o.BodyGrace = 1, 2*time.Second })
		c := h2cClient(t)
		results := make(chan string, 6)
		for range cap(results) {
			go func() {
				req, _ := http.NewRequest("POST", "http://"+s.addr()+"/", io.LimitReader(zeros{}, whole))
				req.Header.Set("X-Wait", "1")
				resp, err := c.Do(req)
				if err != nil {
					results <- err.Error()
					return
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				results <- fmt.Sprintf("%d %s %v", resp.StatusCode, b, err)
			}()
		}
		time.Sleep(5 * time.Second) // several graces
		close(release)
		for range cap(results) {
			if got := <-results; got != fmt.Sprintf("200 %d <nil>", whole) {
				t.Error(got)
			}
		}
	})
}

// TestHTTP2ConversationIsNoSlowness: once the answer has begun, both sides may pause if the body's length is unknown.
// In gRPC they may always pause.
func TestHTTP2ConversationIsNoSlowness(t *testing.T) {
	t.Parallel()
	for _, grpc := range []bool{false, true} {
		t.Run(fmt.Sprintf("gRPC %v", grpc), func(t *testing.T) {
			t.Parallel()
			addr := h2cBackend(t, func(w http.ResponseWriter, r *http.Request) {
				if !grpc {
					w.WriteHeader(200)
					http.NewResponseController(w).Flush()
				}
				n, _ := io.Copy(io.Discard, r.Body)
				fmt.Fprint(w, n)
			})
			s := serve(t, config([]model.Service{service(serviceName, model.H2C, addr)}, ruleTo(serviceName)), paced)
			f := newH2Frames(t, s.addr())
			if grpc {
				f.post("content-type", "application/grpc")
			} else {
				f.post()
			}
			time.Sleep(graces)
			f.WriteData(1, true, []byte("late"))
			if got := f.status(t); got != "200" {
				t.Errorf("status %q, %v", got, reasonsOf(s))
			}
		})
	}
}

// TestHTTP2AnswerThatIsTakenByCrumbsEnds: an answer ends if its client opens the window of the stream or the connection
// by crumbs, or reads by crumbs.
func TestHTTP2AnswerThatIsTakenByCrumbsEnds(t *testing.T) {
	t.Parallel()
	if !socket.CanAcknowledge {
		t.Skip("this system does not tell what a client has taken")
	}
	const much = 1 << 30
	for _, kind := range []string{"stream's window", "connection's window", "reading"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
				_, err := io.CopyN(w, zeros{}, much)
				ended <- err
			})
			s := serve(t, plain(addr), strict)
			f := newH2Frames(t, s.addr())
			f.WriteSettingsAck()
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: requestBlock})
			switch kind {
			case "stream's window":
				f.WriteWindowUpdate(0, much)
				crumbs(t, func() error { return f.WriteWindowUpdate(1, 1) })
			case "connection's window":
				f.WriteWindowUpdate(1, much)
				crumbs(t, func() error { return f.WriteWindowUpdate(0, 1) })
			case "reading":
				f.WriteWindowUpdate(0, much)
				f.WriteWindowUpdate(1, much)
				crumbs(t, func() error { _, err := f.c.Read(make([]byte, 100)); return err })
			}
			if err := <-ended; err == nil {
				t.Error("the backend sent all of it")
			}
			if kind != "reading" {
				f.read(t, func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameRSTStream })
			}
			blamed(t, s)
		})
	}
}

func TestTrailersThatAreForbiddenAreNotAnnounced(t *testing.T) {
	addr, heads := wire(t, okResponse)
	s := serve(t, plain(addr))
	f := newH2Frames(t, s.addr())
	f.post("trailer", "x-sum, content-length", "trailer", "x-sum")
	f.WriteData(1, false, []byte("data"))
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
		BlockFragment: encode([][2]string{{"x-sum", "1"}, {"content-length", "3"}, {"host", "evil"}, {"authorization", "x"}})})
	head := <-heads
	if got := strings.Count(strings.ToLower(head), "\r\ntrailer:"); got != 1 || strings.Contains(strings.ToLower(head), "content-length") {
		t.Errorf("%q", head)
	}
}

// TestIdleConnectionsMakeRoom: at the limit, connections without a recent request are closed for new ones, in HTTP/1.1
// and in HTTP/2. Connections in use stay.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Hold") != "" {
			<-hold
		}
	})
	release := sync.OnceFunc(func() { close(hold) })
	s := serve(t, plain(addr), func(o *Options) { o.MaxConnections = 3 })
	t.Cleanup(release)
	busy := newH2Frames(t, s.addr())
	busy.WriteSettingsAck()
	busy.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
		BlockFragment: append(bytes.Clone(requestBlock), encode([][2]string{{"x-hold", "1"}})...)})
	idle := newH2Frames(t, s.addr())
	idle.WriteSettingsAck()
	idle.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: requestBlock})
	if got := idle.status(t); got != "200" {
		t.Fatalf("status %q", got)
	}
	parked := newTalk(t, s.addr())
	parked.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	parked.answer("GET")

	// New clients with long requests come until the idle ones are gone.
	ended := make(chan bool, 2)
	go func() {
		graceful := false
		for {
			frame, err := idle.ReadFrame()
			if err != nil {
				ended <- graceful
				return
			}
			if g, ok := frame.(*http2.GoAwayFrame); ok && g.ErrCode == http2.ErrCodeNo {
				graceful = true
			}
		}
	}()
	go func() {
		_, err := parked.r.ReadByte()
		ended <- err == io.EOF
	}()
	for left := 2; left > 0; {
		newTalk(t, s.addr()).send("GET / HTTP/1.1\r\nHost: a\r\nX-Hold: 1\r\n\r\n")
		select {
		case graceful := <-ended:
			if left--; !graceful {
				t.Error("an idle connection did not end in order")
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
	release()
	if got := busy.status(t); got != "200" {
		t.Errorf("the one in use: status %q", got)
	}
}
