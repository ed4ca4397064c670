package http2

import (
	"time"

	"github.com/weirmesh/weir/internal/pace"
)

// taking is how the peer takes what is sent, over the whole connection; mu guards it.
//
// What fills the system's buffers is judged by what the peer's system acknowledges, since these take megabytes at once and tell of room in large
// steps only. When they are empty it is a window that is waited for: that of the connection is judged here, by what it lets through, that of a stream by
// Stream.awaitSending.
type taking struct {
	pace  pace.Pace
	at    time.Time // the last look; zero if nothing was waited for
	acked uint64    // then
	sent  uint64    // bytes of bodies, since ever
	seen  uint64    // of sent, at the last look
	short int       // streams that wait for window, and have the rule
}

// watchOutput ends a connection whose peer takes too little of what is sent, or nothing.
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

// takesEnough looks at the peer's pace; stuck says that a write has been under way since the last tick.
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
			c.writeAt, c.heard = now, now // it is alive, though what it is asked is still to come to it
		}
	}
	if !t.at.IsZero() && (queued || len(c.queue) > 0 && c.window <= 0) {
		d = now.Sub(t.at)
	}
	t.pace.Waited(c.cfg.Pace, d, n)
	t.at, t.acked, t.seen = now, acked, t.sent
	return t.pace.Left(c.cfg.Pace, time.Hour) > 0
}

// awaitSending waits for something to happen to a stream that cannot send, until the latest or, if it is for want of the stream's window, as long as the
// peer's pace allows. While the peer still has to take what was sent before, only the connection is judged. mu is held.
func (s *Stream) awaitSending(latest time.Time) (late bool) {
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

// Arrived tells how a body comes: how many bytes of it have, those of an incomplete frame included, and for how long, since the connection began, the
// peer could send no body because others had used the connection's window up.
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
