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
	awaitSettings(t, c)
	return c
}

// awaitSettings waits until the peer's settings have come.
func awaitSettings(t testing.TB, c *Conn) {
	t.Helper()
	for began := time.Now(); c.Available() == 0; time.Sleep(50 * time.Microsecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("no settings came")
		}
	}
}

// Open is Begin, and Send of what is left of the body.
func (c *Conn) Open(h *Head, body []byte, end bool) (*Stream, error) {
	s, sent, err := c.Begin(h, body, end, time.Time{})
	if err != nil || sent == len(body) {
		return s, err
	}
	if err := s.Send(body[sent:], end); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Streams is the number of streams that are not closed.
func (c *Conn) Streams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams)
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

// raw is a peer made of frames.
type raw struct {
	*http2.Framer
	net.Conn
}

// headers sends a complete header block.
func (r *raw) headers(id uint32, end bool, block []byte) error {
	return r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: end, EndHeaders: true})
}

// library is the Go library's client, with prior knowledge.
func library(t testing.TB) *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}
