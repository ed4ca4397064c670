package examples_test

import (
	"io"
	"net"
	"strconv"
	"testing"
	"time"
)

// greet runs a service that greets each connection with its name and ends it when the client has.
func (s *setup) greet(name string, port int) {
	s.t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports.Of(s.t, port))))
	if err != nil {
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, name)
			c.SetDeadline(time.Now().Add(30 * time.Second))
			io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	s.t.Cleanup(func() { l.Close(); <-done })
}

// connections opens n connections to a port and counts by whom they were greeted.
func (s *setup) connections(n, port int) map[string]int {
	s.t.Helper()
	got := map[string]int{}
	for range n {
		c, err := net.Dial("tcp", s.address(port))
		if err != nil {
			s.t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(30 * time.Second))
		c.(*net.TCPConn).CloseWrite()
		name, err := io.ReadAll(c)
		c.Close()
		if err != nil {
			s.t.Fatal(err)
		}
		got[string(name)]++
	}
	return got
}

func TestATCPPortOfARootIsSplitByConnections(t *testing.T) {
	s := newSetup(t)
	s.greet("db-v1", 9001)
	s.greet("db-v2", 9002)
	s.run("split-tcp")
	if got := s.connections(40, 5432); got["db-v1"] != 30 || got["db-v2"] != 10 {
		t.Errorf("40 connections went to %v, want 30 and 10", got)
	}
}

func TestATCPRouteLeadsConnectionsToASplit(t *testing.T) {
	s := newSetup(t)
	s.greet("cache-v1", 9001)
	s.greet("cache-v2", 9002)
	s.run("tcp-route")
	if got := s.connections(40, 6379); got["cache-v1"] != 4 || got["cache-v2"] != 36 {
		t.Errorf("40 connections went to %v, want 4 and 36", got)
	}
}
