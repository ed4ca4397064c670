package http2

import (
	"github.com/weirmesh/weir/internal/budget"
	"github.com/weirmesh/weir/internal/socket"
)

// Memory is the budget from which connections draw for bytes of others that they keep, and to which they give them
// back. The memory that each connection and each stream needs anyway is not drawn.
type Memory interface {
	// Draw asks for n bytes. With wait no lock is held and the peer may be kept waiting for a while; without it Draw answers at once.
	Draw(n int, wait bool) bool
	// Give gives n bytes back, at once and with locks held.
	Give(n int)
	// Unfinished reports that the peer has begun an incomplete header block, or that this is no longer so.
	Unfinished(is bool)
}

const (
	// inFree is how much of headers and bodies a connection keeps before it draws, inStep how much it then draws at once.
	inFree, inStep = 16 << 10, 32 << 10
	// outFree is how many bytes may wait to be written where there is no memory for Config.MaxOutput.
	outFree = 32 << 10
	// smallBlock is the largest header block, and smallBody the largest part of a body, that a stream may keep without
	// drawing.
	smallBlock, smallBody = 2 << 10, 4 << 10
)

// keeping is what a connection keeps for its peer; mu guards it.
type keeping struct {
	used     int64 // weight of the streams, and the block that is being gathered
	cover    budget.Cover
	room     int       // how many bytes may wait to be written
	gathered int       // of used, the part of a block that is not complete
	stalled  bool      // a frame is incomplete for a while
	heavy    []*Stream // streams that weigh anything
	evicted  error
}

func (k *keeping) init(cfg *Config) {
	k.cover = budget.NewCover(inFree, inStep)
	if k.room = cfg.MaxOutput; cfg.Memory != nil {
		k.room = min(outFree, cfg.MaxOutput)
	}
}

// weigh updates what s keeps now: the decoded head, and the largest amount of the body that it kept at once, in buffers
// that double and are two. mu is held.
func (c *Conn) weigh(s *Stream) {
	if n := len(s.fill) + len(s.piece); n > s.most {
		s.most = n
	}
	w := int64(0)
	if s.block > smallBlock {
		w += 2 * int64(s.block) // it is about to be sent on
	}
	if s.most > smallBody {
		w += 2 * int64(s.most)
	}
	if s.weight == 0 && w > 0 {
		s.place = len(c.heavy)
		c.heavy = append(c.heavy, s)
	} else if s.weight > 0 && w == 0 {
		c.lighten(s)
	}
	c.used += w - s.weight
	s.weight = w
}

// lighten takes s from heavy; mu is held.
func (c *Conn) lighten(s *Stream) {
	n := len(c.heavy) - 1
	last := c.heavy[n]
	c.heavy[s.place], last.place = last, s.place
	c.heavy[n] = nil
	c.heavy = c.heavy[:n]
}

// unweigh ends that; mu is held.
func (c *Conn) unweigh(s *Stream) {
	if s.weight != 0 {
		c.lighten(s)
		c.used -= s.weight
		s.weight = 0
		c.spare()
	}
}

// gathers notes whether a header block is incomplete. It counts with its largest possible size, since a reader that
// waits for memory must not hold much. So does the reader's buffer, which is only kept for that block. mu is held.
func (c *Conn) gathers(is bool) {
	n := 0
	if is {
		n = readBuffer + inFree + c.cfg.MaxHeader
	}
	if m := c.cfg.Memory; m != nil && (n == 0) != (c.gathered == 0) {
		m.Unfinished(n > 0)
	}
	c.used += int64(n - c.gathered)
	if c.gathered = n; n == 0 {
		c.spare()
	}
}

// stalls notes whether a frame has been incomplete since the last tick or longer: the reader's buffer is kept for no more than that. mu is held.
func (c *Conn) stalls(is bool) {
	switch {
	case is && !c.stalled:
		c.used += readBuffer + inFree // no connection has that much free
	case !is && c.stalled:
		c.used -= readBuffer + inFree
		c.spare()
	}
	c.stalled = is
}

// spare gives back memory that is no longer needed; mu is held.
func (c *Conn) spare() {
	if c.cover.Drawn() > 0 {
		if n := c.cover.Spare(c.used); n > 0 {
			c.cfg.Memory.Give(int(n))
		}
	}
}

var errMemory = &ConnError{Code: EnhanceYourCalm, Detail: "memory limit for unread data reached"}

// draw draws for what was kept since the last time, by Run's goroutine; no lock is held. A server waits, and ends the
// connection if there is no memory, so that others get it. A client continues: the streams that keep most are reset.
func (c *Conn) draw() error {
	m := c.cfg.Memory
	if m == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		n := c.cover.Lacks(c.used)
		if n == 0 {
			return nil
		}
		if c.client {
			if m.Draw(int(n), false) {
				c.cover.Drew(n)
			} else if !c.starveLargest() {
				return nil // the rest has its own bound: an incomplete block
			}
			continue
		}
		c.mu.Unlock()
		ok := m.Draw(int(n), true)
		c.mu.Lock()
		if !ok {
			if c.evicted == nil {
				c.evicted = errMemory
			}
			return c.evicted
		}
		c.cover.Drew(n)
	}
}

// starveLargest ends the stream that keeps most, even if it is complete and only its reader is not; false if no stream
// keeps anything. mu is held.
func (c *Conn) starveLargest() bool {
	var s *Stream
	for _, h := range c.heavy {
		if !h.starved && (s == nil || h.weight > s.weight) {
			s = h
		}
	}
	if s == nil {
		return false
	}
	if !s.removed {
		c.framer.WriteRSTStream(s.id, Cancel)
		c.drop(s, ErrNoMemory)
		c.closed.add(s.id, true)
		c.flushSoon()
	}
	s.starved = true
	s.reading.cond.Broadcast()
	if !s.interrupted {
		s.interrupted = true
		c.giveRoom(len(s.fill))
	}
	s.fill = nil
	s.block, s.most = 0, len(s.piece)
	c.weigh(s)
	c.spare()
	return true
}

// moreRoom lets more bytes wait to be written, if there is memory for that; mu is held.
func (c *Conn) moreRoom() bool {
	more := c.cfg.MaxOutput - c.room
	if more <= 0 || !c.cfg.Memory.Draw(2*more, false) {
		return false
	}
	c.room += more
	return true
}

// awaitMoreRoom is moreRoom that may wait for memory; mu is held, and released meanwhile.
func (c *Conn) awaitMoreRoom() bool {
	m, more := c.cfg.Memory, c.cfg.MaxOutput-c.room
	c.mu.Unlock()
	ok := m.Draw(2*more, true)
	c.mu.Lock()
	if ok && c.room+more > c.cfg.MaxOutput { // another stream was faster
		m.Give(2 * more)
	} else if ok {
		c.room += more
	}
	return ok
}

// lessRoom ends that; mu is held.
func (c *Conn) lessRoom() {
	if c.cfg.Memory == nil {
		return
	}
	if more := c.room - min(outFree, c.cfg.MaxOutput); more > 0 {
		c.room -= more
		c.cfg.Memory.Give(2 * more)
	}
}

// forgo gives everything back when the connection has ended; mu is held.
func (c *Conn) forgo() {
	c.gathers(false)
	c.stalls(false)
	c.lessRoom()
	if n := c.cover.Spare(0); n > 0 {
		c.cfg.Memory.Give(int(n))
	}
}

// Evict ends the connection at once, as others need its memory: the peer is told with GOAWAY, ENHANCE_YOUR_CALM, as far as that needs no waiting.
func (c *Conn) Evict(detail string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead || c.evicted != nil {
		return
	}
	c.evicted = &ConnError{Code: EnhanceYourCalm, Detail: detail}
	c.over = true
	c.nc.SetReadDeadline(socket.LongAgo)
}

// Crowded is true while output must wait for the peer.
func (s *Stream) Crowded() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.full() || s.shut()
}

// Shut is true while the peer gives no window for the stream's body.
func (s *Stream) Shut() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.shut()
}

func (s *Stream) shut() bool { return s.window <= 0 || s.c.window <= 0 }
