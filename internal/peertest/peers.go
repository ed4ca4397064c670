package peertest

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// Raw accepts connections and gives each to f with its number, until the test ends; then it closes them.
func Raw(t testing.TB, f func(n int, c net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { c.Close() })
			wg.Go(func() {
				defer stop()
				defer c.Close()
				f(n, c)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		cancel()
		wg.Wait()
	})
	return ln.Addr().String()
}

// OK is an answer.
const OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// Respond reads requests and answers each with answer until the connection ends or answer is empty.
func Respond(c net.Conn, answer string) {
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.ReadAll(req.Body); err != nil {
			return
		}
		if answer == "" {
			return
		}
		c.Write([]byte(answer))
	}
}

// Silent accepts connections and never reads.
func Silent(t testing.TB) string {
	done := make(chan struct{})
	addr := Raw(t, func(int, net.Conn) { <-done })
	t.Cleanup(func() { close(done) })
	return addr
}

// Service is a service in cleartext at the addresses.
func Service(name string, protocol model.Protocol, addresses ...string) model.Service {
	s := model.Service{Name: name, Ref: model.Ref{Kind: "Service", Namespace: "default", Name: "app"}, Protocol: protocol}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Address: a})
	}
	return s
}

// Backend runs h as an HTTP/1.1 server.
func Backend(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
