package proxy

import (
	"io"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/model"
)

// unaryServer answers each call over HTTP/2 with a message, without allocating.
func unaryServer(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	workers := http2.NewWorkers(16)
	head := &http2.Head{Status: 200, Body: http1.Body{Kind: http1.BodyChunked}, Fields: []http1.Field{{Name: "content-type", Value: "application/grpc"}}}
	message, trailers := make([]byte, 1<<10), []http1.Field{{Name: "grpc-status", Value: "0"}}
	var mu sync.Mutex
	var conns []*http2.Conn
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			c := http2.NewServer(nc, http2.Config{Workers: workers}, func(s *http2.Stream) {
				for {
					if _, err := s.Next(time.Time{}); err == io.EOF {
						s.Finish(head, message, trailers)
						return
					} else if err != nil {
						return
					}
				}
			})
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { c.Run(nil, false) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
		workers.Close()
	})
	return l.Addr().String()
}

// unaryClient makes calls over HTTP/2, one after the other, without allocating.
type unaryClient struct {
	c    *http2.Conn
	head http2.Head
	body []byte
}

func newUnaryClient(t testing.TB, nc net.Conn, authority string) *unaryClient {
	c := http2.NewClient(nc, http2.Config{})
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(nil, false) })
	t.Cleanup(func() {
		c.Close()
		wg.Wait()
	})
	for c.Available() == 0 && c.Err() == nil { // until the settings have arrived
		time.Sleep(time.Millisecond)
	}
	return &unaryClient{c: c, body: make([]byte, 128), head: http2.Head{Method: "POST", Scheme: "http", Authority: authority, Path: "/shop.Cart/Add",
		Fields: []http1.Field{{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "user-agent", Value: "bench/1.0"}},
		Body:   http1.Body{Kind: http1.BodyChunked}}}
}

func (u *unaryClient) call() (status string, n int, err error) {
	s, _, err := u.c.Begin(&u.head, u.body, true, time.Time{})
	if err != nil {
		return "", 0, err
	}
	defer s.Close()
	if _, err := s.AwaitHead(time.Time{}); err != nil {
		return "", 0, err
	}
	for {
		p, err := s.Next(time.Time{})
		if n += len(p); err == io.EOF {
			for _, f := range s.Trailers() {
				if f.Name == "grpc-status" {
					status = f.Value
				}
			}
			return status, n, nil
		} else if err != nil {
			return "", n, err
		}
	}
}

// TestGRPCCallAllocatesNothing counts all allocations of the process during calls over real sockets, with HTTP/2 on
// both sides of the proxy.
func TestGRPCCallAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool drop what it is given")
	}
	// If a connection's HPACK index happens to have three fields of each call in one slot, one of them goes as a
	// literal. The library's decoder allocates for a literal. On other connections this is almost impossible, so the
	// least count matters.
	least := math.Inf(1)
	for range 4 {
		if least = min(least, allocationsOfACall(t)); least == 0 {
			return
		}
	}
	t.Errorf("%v allocations for each call", least)
}

// allocationsOfACall measures over new connections.
func allocationsOfACall(t *testing.T) float64 {
	to := ruleTo("default/a:80")
	s := serve(t, config([]model.Service{service("default/a:80", model.H2C, unaryServer(t))}, to))
	u := newUnaryClient(t, dial(t, s.addr()), "a")
	call := func() {
		if status, n, err := u.call(); status != "0" || n != 1<<10 || err != nil {
			t.Fatal(status, n, err)
		}
	}
	for range 50 {
		call()
	}
	return testing.AllocsPerRun(2000, call)
}
