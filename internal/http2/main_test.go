package http2

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirmesh/weir/internal/http1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen gives each connection to f, until the test ends.
func listen(t testing.TB, f func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f(nc) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}

// server is a listening server and its connections.
type server struct {
	addr    string
	workers *Workers
	mu      sync.Mutex
	conns   []*Conn
	ends    chan error
}

// serve runs a server with the handler; what its connections' Run returns goes to ends.
func serve(t testing.TB, cfg Config, h func(*Stream)) *server {
	t.Helper()
	s := &server{ends: make(chan error, 1000), workers: NewWorkers(16)}
	t.Cleanup(s.workers.Close)
	cfg.Workers = s.workers
	s.addr = listen(t, func(nc net.Conn) {
		c := NewServer(nc, cfg, h)
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		err := c.Run(nil, false)
		if testing.Verbose() {
			t.Log(err)
		}
		s.ends <- err
	})
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.conns {
			c.Close()
		}
	})
	return s
}

// open makes a client's connection, which is closed at the test's end.
func open(t testing.TB, addr string, cfg Config) *Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(nc, cfg)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(nil, false)
	}()
	t.Cleanup(func() {
		c.Close()
		<-ended
	})
	select {
	case <-c.Settled():
	case <-time.After(10 * time.Second):
		t.Fatal("no settings came")
	}
	return c
}

// get is a request's head.
func get(path string) *Head {
	return &Head{Method: "GET", Scheme: "http", Authority: "a.example", Path: path}
}

// readAll is the rest of the body.
func readAll(s *Stream) (b []byte, err error) {
	for {
		p, err := s.Next(time.Now().Add(10 * time.Second))
		b = append(b, p...)
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// echo answers with the request's body, its fields and trailers.
func echo(s *Stream) {
	h := s.Head()
	if err := s.Answer(&Head{Status: 200, Fields: h.Fields, Body: http1.Body{Kind: http1.BodyChunked}}, nil, false); err != nil {
		return
	}
	for {
		p, err := s.Next(time.Time{})
		if err == io.EOF {
			break
		}
		if err != nil || s.Send(p, false) != nil {
			return
		}
	}
	s.SendTrailers(s.Trailers())
}

// hello answers with a short body.
func hello(s *Stream) {
	s.Answer(&Head{Status: 200, Body: http1.Body{Kind: http1.BodyLength, Length: 5}}, []byte("hello"), true)
}

// raw is a peer made of frames. Reads and writes end after 20 s.
type raw struct {
	*http2.Framer
	net.Conn
	t     testing.TB
	enc   *hpack.Encoder
	block []byte
}

func (r *raw) Write(p []byte) (int, error) {
	r.block = append(r.block, p...)
	return len(p), nil
}

// dialRaw is a client that has sent its preface and settings.
func dialRaw(t testing.TB, addr string, settings ...http2.Setting) *raw {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	r := &raw{Framer: http2.NewFramer(nc, nc), Conn: nc, t: t}
	r.AllowIllegalWrites = true
	r.enc = hpack.NewEncoder(r)
	io.WriteString(nc, http2.ClientPreface)
	if err := r.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return r
}

// encode is a header block of names and values.
func (r *raw) encode(fields ...string) []byte {
	r.block = nil
	for i := 0; i < len(fields); i += 2 {
		r.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return r.block
}

// request is the block of a simple request.
func (r *raw) request(more ...string) []byte {
	return r.encode(append([]string{":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a"}, more...)...)
}

// headers sends a complete header block.
func (r *raw) headers(id uint32, end bool, block []byte) error {
	return r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: end, EndHeaders: true})
}

// goAway reads until GOAWAY and gives its code; ok is false if the connection ended without.
func (r *raw) goAway() (code http2.ErrCode, ok bool) {
	for {
		f, err := r.ReadFrame()
		if err != nil {
			return 0, false
		}
		if g, is := f.(*http2.GoAwayFrame); is {
			return g.ErrCode, true
		}
	}
}

// await reads until a frame of the type comes for the stream.
func (r *raw) await(kind http2.FrameType, id uint32) http2.Frame {
	r.t.Helper()
	for {
		f, err := r.ReadFrame()
		if err != nil {
			r.t.Fatalf("awaiting %v on stream %d: %v", kind, id, err)
		}
		if h := f.Header(); h.Type == kind && h.StreamID == id && !(kind == http2.FrameSettings && h.Flags.Has(http2.FlagSettingsAck)) {
			return f
		}
	}
}

// library is the Go library's client, with prior knowledge.
func library(t testing.TB) *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}
