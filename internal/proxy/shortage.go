package proxy

import (
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/socket"
)

const (
	// spareDescriptors are held back for times of shortage.
	spareDescriptors = 16
	// shortageLook is the interval of checks whether a shortage is over. At each check, up to shedIdle connections end
	// that have waited for a request for shedAfter checks.
	shortageLook = 100 * time.Millisecond
	shedIdle     = 64
	shedAfter    = 10
	// shortageTold bounds how often shortages are logged.
	shortageTold = time.Minute
)

// shortage handles a process that runs out of descriptors. It releases the spare descriptors at once. So the admin
// endpoint, a reload and the connections to endpoints that clients wait for get some. No client is accepted until the
// spare descriptors are held again. New clients wait in the system's queue, and connections without a request are
// closed to make room for them.
type shortage struct {
	log  *slog.Logger
	shed func(most int) int

	now    atomic.Bool // there is a shortage
	failed atomic.Uint64

	mu     sync.Mutex
	spare  []*os.File
	timer  *time.Timer // set while there is a shortage
	since  time.Time
	lines  loglimit.Limiter
	told   bool // the current shortage was logged
	closed bool
}

// open holds descriptors back.
func (s *shortage) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold()
}

// hold opens spare descriptors until all are held. It returns false if there are too few descriptors for that; then it
// holds none.
func (s *shortage) hold() bool {
	for len(s.spare) < spareDescriptors {
		f, err := os.Open(os.DevNull)
		if err != nil {
			s.release()
			return !socket.IsShortage(err) // a system without such a file has none to hold
		}
		s.spare = append(s.spare, f)
	}
	return true
}

func (s *shortage) release() {
	for _, f := range s.spare {
		f.Close()
	}
	s.spare = nil
}

// met notes an error caused by a shortage.
func (s *shortage) met(err error) {
	s.failed.Add(1)
	if s.now.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.timer != nil {
		return
	}
	s.now.Store(true)
	s.release()
	s.since = time.Now()
	s.timer = time.AfterFunc(shortageLook, s.look)
	s.told = s.lines.Log(s.log, slog.LevelError, "", "out of file descriptors: new clients wait, connections to endpoints fail; "+
		"raise the limit (ulimit -n) or lower the load", "error", err)
}

// look ends the shortage if it is over.
func (s *shortage) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if !s.hold() {
		s.timer.Reset(shortageLook)
		s.shed(shedIdle)
		return
	}
	s.timer = nil
	s.now.Store(false)
	if n := s.failed.Swap(0); s.told {
		s.log.Info("file descriptors available again", "after", time.Since(s.since).Round(time.Millisecond), "failures", n)
	}
}

func (s *shortage) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.release()
}

// makeRoom calls shedIdle for new clients that found no place. There may be thousands of them a second, so it acts at
// most once in shortageLook.
func (s *Server) makeRoom() {
	now := time.Now()
	s.room.Lock()
	if now.Sub(s.room.made) < shortageLook {
		s.room.Unlock()
		return
	}
	refused := s.refused.Load()
	most := min(refused-s.room.refused, shedIdle)
	s.room.made, s.room.refused = now, refused
	s.room.Unlock()
	s.endHeads(s.shedIdle(int(most)))
}

// shedIdle ends up to most connections that have waited for a request during shedAfter of its calls. It returns how
// many it fell short of most.
func (s *Server) shedIdle(most int) int {
	most -= s.idle.shed(most)
	for b := range s.state.Load().ports {
		b.mu.Lock()
		for c := range b.conns {
			if most <= 0 {
				break
			}
			if h := c.h2.Load(); h != nil {
				if h.Rest() >= shedAfter*shortageLook {
					h.Shutdown()
					most--
				}
				continue
			}
			if !c.shed.Load() && c.look(shedAfter) {
				c.shed.Store(true)
				c.sock.SetReadDeadline(socket.LongAgo)
				most--
			}
		}
		b.mu.Unlock()
	}
	return most
}
