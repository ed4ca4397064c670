package http2

import (
	"time"

	"github.com/weirmesh/weir/internal/pace"
)

// taking is the peer's pace over the whole connection; mu guards it.
//
// While the system's buffers hold something, the pace is what the peer's system acknowledges: the buffers take
// megabytes at once and report room in large steps only. When they are empty, a window is waited for. The connection's
// window is judged here, by what it lets through, a stream's by Stream.awaitSending.
type taking struct {
	pace  pace.Pace
	at    time.Time // time of the last check; zero if nothing was waited for
	acked uint64    // then
	sent  uint64    // bytes of bodies, since ever
	seen  uint64    // of sent, at the last look
	short int       // streams that wait for window, and have the rule
}

// watchOutput ends a connection whose peer accepts output too slowly, or not at all.
func (c *Conn) watchOutput(now time.Time) error {
	stuck := c.writing && c.writeNo == c.writes
	if !stuck {
		c.writeNo, c.writeAt = c.writes, now
	}
	if c.cfg.Acked == nil {
		c.taking.at = time.Time{}
	} else if !c.takesEnough(now, stuck) {
		return &ConnError{Code: NoError, Remote: true, Detail: "the peer reads too slowly", Err: ErrTimeout}
	}
	if stuck && now.Sub(c.writeAt) >= c.cfg.StallTimeout {
		return &ConnError{Code: NoError, Remote: true, Detail: "the peer reads nothing", Err: ErrTimeout}
	}
	return nil
}

// takesEnough judges the peer's pace; stuck means that a write has been under way since the last tick.
func (c *Conn) takesEnough(now time.Time, stuck bool) bool {
	t := &c.taking
	if !stuck && len(c.queue) == 0 && t.short == 0 {
		t.at = time.Time{}
		return true
	}
	acked, queued := c.cfg.Acked()
	n, d := int64(t.sent-t.seen), time.Duration(0)
	if queued {
		if n = int64(acked - t.acked); n > 0 && stuck {
			c.writeAt, c.heard = now, now // it is alive, although our PING has not reached it yet
		}
	}
	if !t.at.IsZero() && (queued || len(c.queue) > 0 && c.window <= 0) {
		d = now.Sub(t.at)
	}
	t.pace.Waited(c.cfg.Pace, d, n)
	t.at, t.acked, t.seen = now, acked, t.sent
	return t.pace.Left(c.cfg.Pace, time.Hour) > 0
}

// awaitSending waits for an event of a stream that cannot send. It returns true at the latest or, if only the stream's
// window is missing, when the peer's pace is too slow. While the peer still has earlier output to accept, only the
// connection is judged. mu is held.
func (s *Stream) awaitSending(latest time.Time) (timedOut bool) {
	c := s.c
	rule := c.cfg.Pace
	if s.window > 0 || s.patient || rule.Rate == 0 {
		return s.await(&s.sending, latest)
	}
	start := time.Now()
	left := s.taking.Left(rule, latest.Sub(start))
	if left <= 0 {
		return true
	}
	c.taking.short++
	s.await(&s.sending, start.Add(min(left, rule.LookAfter())))
	c.taking.short--
	now := time.Now()
	queued := false
	if c.cfg.Acked != nil {
		_, queued = c.cfg.Acked()
	}
	if !queued {
		s.taking.Waited(rule, now.Sub(start), 0)
	}
	return !now.Before(latest)
}

// Patient lifts Config.Pace from the stream: its peer may pause.
func (s *Stream) Patient() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.patient = true
}

// Arrived returns the progress of a body: how many bytes have arrived, including those of an incomplete frame, and for
// how long, since the connection began, the peer could send no body because others had used up the connection's window.
func (s *Stream) Arrived() (bytes int64, blocked time.Duration) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes, blocked = s.received, c.blocked
	if c.partID == s.id {
		bytes += int64(c.partLen)
	}
	if !c.blockedAt.IsZero() {
		blocked += time.Since(c.blockedAt)
	}
	return bytes, blocked
}
