package http2

import "time"

// tickEvery is how often a connection with something under way is looked after. The ticks come as timeouts of the reading goroutine, so that streams need no
// timers: a deadline that is nearer brings the tick forward.
const tickEvery = time.Second

// clock is a connection's knowledge of time; mu guards it.
type clock struct {
	began    time.Time
	now      time.Time // of the last tick, or later
	next     time.Time // the read deadline that is set
	over     bool      // no deadline is set any more: reading ends
	active   bool      // something was read since the last tick
	heard    time.Time // when something was last known to be read
	idleAt   time.Time // since when there has been no stream; zero if there is one
	endBy    time.Time // settleEnd
	pinged   time.Time // when the peer was asked for a sign of life; zero if it is not
	writeNo  uint64    // the write under way at the last tick
	writeAt  time.Time // since when the peer has read nothing of it, as far as is known
	blockAt  time.Time // since when a header block is incomplete
	partAt   time.Time // since when a frame is
	partData bool      // of a body
}

// arm brings the next tick forward; mu is held.
func (c *Conn) arm(t time.Time) {
	if c.over || !c.next.IsZero() && !t.Before(c.next) {
		return
	}
	c.next = t
	c.nc.SetReadDeadline(t)
}

// tick looks after the connection. An error ends it.
func (c *Conn) tick() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return c.overErr()
	}
	now := time.Now()
	c.now = now
	c.next = time.Time{}
	c.wrote.Broadcast() // waiting goroutines check the time
	if c.active || c.heard.IsZero() {
		c.active, c.heard, c.pinged = false, now, time.Time{}
	}
	c.scores.refill(now)
	next := now.Add(tickEvery)
	soon := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if !c.peer.settled || !c.peer.acked {
		t := c.began.Add(c.cfg.HeaderTimeout)
		if !now.Before(t) {
			return &ConnError{Code: SettingsTimeout, Detail: "timeout waiting for the peer's SETTINGS or its acknowledgement of ours"}
		}
		soon(t)
	}
	if !c.blockAt.IsZero() {
		t := c.blockAt.Add(c.cfg.HeaderTimeout)
		if !now.Before(t) {
			return &ConnError{Code: EnhanceYourCalm, Detail: "timeout waiting for the rest of a header block"}
		}
		soon(t)
	}
	if !c.partAt.IsZero() {
		limit := c.cfg.HeaderTimeout
		if c.partData {
			limit = c.cfg.StallTimeout
		}
		if t := c.partAt.Add(limit); now.Before(t) {
			soon(t)
		} else {
			return &ConnError{Code: EnhanceYourCalm, Detail: "timeout waiting for the rest of a frame"}
		}
	}
	c.stalls(!c.partAt.IsZero() && now.Sub(c.partAt) >= tickEvery/2)
	if c.ending == endAnnounced {
		if now.Before(c.endBy) {
			soon(c.endBy)
		} else {
			c.settleEnd()
			if c.over {
				return errOver
			}
		}
	}
	if err := c.watchOutput(now); err != nil {
		return err
	}
	c.flushSoon()
	if len(c.streams) > 0 || c.writing || len(c.out) > 0 {
		c.idleAt = time.Time{}
		for _, s := range c.streams {
			c.expire(s, now, soon)
		}
		if err := c.ping(now, soon); err != nil {
			return err
		}
	} else {
		if c.idleAt.IsZero() {
			c.idleAt = now
		}
		c.goIdle()
		if c.partAt.IsZero() && c.blockAt.IsZero() && c.peer.acked && c.ending == endNone {
			next = now.Add(24 * time.Hour)
		}
		if limit := c.cfg.IdleTimeout; limit > 0 {
			t := c.idleAt.Add(limit)
			if !now.Before(t) {
				return &ConnError{Code: NoError, Unprocessed: true, Detail: "idle timeout: no open stream"}
			}
			soon(t)
		}
	}
	c.arm(next)
	return nil
}

// expire ends waits of s whose time is over.
func (c *Conn) expire(s *Stream, now time.Time, soon func(time.Time)) {
	for _, w := range [...]*wait{&s.reading, &s.sending} {
		if !w.on || w.until.IsZero() {
			continue
		}
		if now.Before(w.until) {
			if !w.coarse {
				soon(w.until)
			}
			continue
		}
		w.timedOut = true
		w.cond.Signal()
	}
}

// ping asks a silent peer for a sign of life.
func (c *Conn) ping(now time.Time, soon func(time.Time)) error {
	if c.cfg.PingAfter < 0 {
		return nil
	}
	if c.pinged.IsZero() {
		if t := c.heard.Add(c.cfg.PingAfter); now.Before(t) {
			soon(t)
			return nil
		}
		c.pinged = now
		c.framer.WritePing(false, alivePing)
		c.flushSoon()
	}
	t := c.pinged.Add(c.cfg.PingTimeout)
	if !now.Before(t) {
		return &ConnError{Code: NoError, Remote: true, Detail: "timeout waiting for the answer to a PING", Err: ErrTimeout}
	}
	soon(t)
	return nil
}
