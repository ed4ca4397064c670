package proxy

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/upstream"
)

// age makes parked connections idle for longer, by the given time.
func (s *testServer) age(by time.Duration) {
	s.mu.Lock()
	p := s.idle
	s.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := p.oldest; k != nil; k = k.newer {
		k.since = k.since.Add(-by)
	}
	p.setAlarm()
}

// allParked waits until no open connection has a goroutine.
func (s *testServer) allParked(t *testing.T) {
	t.Helper()
	until(t, "idle connections keep their goroutines", func() bool { return s.withGoroutine() == 0 })
}

// idleFor sets a time that is longer than any test takes.
func idleFor(o *Options) { o.IdleTimeout = time.Hour }

func TestParkedConnectionsEndWithTheirTime(t *testing.T) {
	s := serve(t, plain(cannedBackend(t, cannedResponse(10))), idleFor)
	all := requesters(t, s.addr(), 10)
	s.allParked(t)
	s.age(time.Hour - time.Minute)
	for _, r := range all[:5] { // their idle time begins again
		if err := r.do(); err != nil {
			t.Fatalf("before the end of its time: %v", err)
		}
	}
	s.allParked(t)
	s.age(time.Minute)
	for _, r := range all[5:] {
		if n, err := r.c.Read(r.buf); n > 0 || upstream.IsTimeout(err) {
			t.Errorf("read %d bytes, %v, want the end", n, err)
		}
	}
	until(t, "the wrong number has ended", func() bool { return s.connections.Load() == 5 })
	for _, r := range all[:5] {
		if err := r.do(); err != nil {
			t.Errorf("one that was busy: %v", err)
		}
	}
}

func TestParkedTLSConnectionsEndWithTheirTime(t *testing.T) {
	t.Parallel()
	cfg, roots := securePlain(t, 10)
	s := serve(t, cfg, idleFor)
	all, wires := tlsRequesters(t, s.addr(), roots, 140) // more than are closed in one batch
	s.allParked(t)
	s.age(time.Hour)
	ends(t, all, wires)
	until(t, "connections that ended are counted", func() bool { return s.connections.Load() == 0 })
}

func TestPartsOfRecordsDoNotKeepConnections(t *testing.T) {
	t.Parallel()
	cfg, roots := securePlain(t, 10)
	const limit = 10 * time.Second // it is kept with a precision of an eighth
	s := serve(t, cfg, func(o *Options) { o.IdleTimeout = limit })
	r, w := tlsRequester(t, s.addr(), roots, tls.VersionTLS13)
	w.hold = true
	r.c.Write(make([]byte, 16<<10)) // takes longer than the test may take, byte by byte
	s.allParked(t)
	s.age(limit - 200*time.Millisecond)
	until(t, "the connection does not end", func() bool {
		w.Conn.Write(w.kept[:1])
		w.kept = w.kept[1:]
		time.Sleep(4 * time.Millisecond)
		return s.connections.Load() == 0
	})
}

func TestParkedTLSConnectionsAreShed(t *testing.T) {
	cfg, roots := securePlain(t, 10)
	s := serve(t, cfg)
	all, wires := tlsRequesters(t, s.addr(), roots, 3)
	s.allParked(t)
	s.age(shedAfter * shortageLook)
	s.shedIdle(2)
	until(t, "the wrong number ends", func() bool { return s.connections.Load() == 1 })
	s.shedIdle(2)
	ends(t, all, wires)
}
