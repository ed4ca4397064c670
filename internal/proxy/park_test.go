package proxy

import (
	"testing"
	"time"
)

// requesters opens n connections that have served one request each.
func requesters(t testing.TB, addr string, n int) []*requester {
	t.Helper()
	buf := make([]byte, 8<<10)
	all := make([]*requester, n)
	for i := range all {
		all[i] = &requester{c: dial(t, addr), request: []byte(benchRequest), buf: buf}
		if err := all[i].do(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// until waits for a condition that must become true.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// withGoroutine is how many connections of the server have a goroutine.
func (s *testServer) withGoroutine() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, b := range s.binds {
		b.each(func(*conn) { n++ })
	}
	return n
}

// parkAndServe waits until connections that have served a request have no goroutines. Then it sends requests over them
// and waits again.
func parkAndServe(t *testing.T, s *testServer, all []*requester) {
	t.Helper()
	parked := func() bool { return s.withGoroutine() == 0 }
	until(t, "idle connections keep their goroutines", parked)
	if got := s.connections.Load(); got != int64(len(all)) {
		t.Fatalf("%d connections, want %d", got, len(all))
	}
	for round := range 3 { // from the second round on they may keep their goroutines for a while
		for _, r := range all {
			r.c.SetDeadline(time.Now().Add(patience))
			if err := r.do(); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
	}
	until(t, "connections that were busy keep their goroutines", parked)
}

func TestIdleConnectionsNeedNoGoroutine(t *testing.T) {
	needsParking(t)
	t.Parallel()
	s := serve(t, plain(cannedBackend(t, cannedResponse(1024))))
	all := requesters(t, s.addr(), 100)
	parkAndServe(t, s, all)
	for _, r := range all {
		r.c.Close()
	}
	until(t, "ends of idle connections are not noticed", func() bool { return s.connections.Load() == 0 })
}

func TestSilentConnectionsNeedNoGoroutine(t *testing.T) {
	needsParking(t)
	s := serve(t, plain(cannedBackend(t, cannedResponse(10))))
	k := newTalk(t, s.addr())
	until(t, "the connection is not there", func() bool { return s.connections.Load() == 1 })
	until(t, "a connection without a request keeps its goroutine", func() bool { return s.withGoroutine() == 0 })
	// The connection may still turn out to be of any protocol, for example HTTP/2.
	k.send(http2Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	var frame [9]byte
	if _, err := k.r.Read(frame[:]); err != nil || frame[3] != 4 {
		t.Errorf("got %x, %v, want SETTINGS", frame, err)
	}
}

func TestParkedConnectionsAreServedWhileTheServerDrains(t *testing.T) {
	s := serve(t, plain(cannedBackend(t, cannedResponse(10))), func(o *Options) { o.DrainGrace = 20 * time.Second })
	all := requesters(t, s.addr(), 10)
	servedWhileDraining(t, s, all)
}

// servedWhileDraining ends the server and sends one more request over each connection.
func servedWhileDraining(t *testing.T, s *testServer, all []*requester) {
	t.Helper()
	s.stop()
	until(t, "the server does not drain", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.Server.ended
	})
	for _, r := range all {
		if err := r.do(); err != nil {
			t.Error(err)
		}
	}
	for _, r := range all {
		r.c.Close()
	}
	<-s.ended
}
