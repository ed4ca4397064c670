package http2

import (
	"errors"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/http1"
)

// sendTurn is how many bytes a stream sends at once while others wait.
const sendTurn = 4 * maxFrame

var errEnded = errors.New("http2: the message is already complete")

// Begin is Open that does not wait for the peer to take the body: sent is how much of it went with the head. The rest, which end then completes, is for
// Stream.Send. It waits while too much is to be written before it, and gives up with ErrTimeout up to a second after until, if that is not zero.
func (c *Conn) Begin(h *Head, body []byte, end bool, until time.Time) (s *Stream, sent int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.full() && c.err == nil {
		if !until.IsZero() && !c.now.Before(until) {
			return nil, 0, ErrTimeout
		}
		c.awaitWrite() // before the stream has its number: they are sent in order
	}
	if c.available() == 0 {
		if c.err != nil {
			return nil, 0, &ConnError{Code: NoError, Unprocessed: true, Detail: "no stream was opened", Err: c.err}
		}
		return nil, 0, ErrUnavailable
	}
	if c.lastID == 0 {
		c.lastID = 1
	} else {
		c.lastID += 2
	}
	s = c.newStream(c.lastID)
	c.streams[s.id] = s
	s.noBody = h.Method == "HEAD"
	c.opened(s, time.Now())
	s.begun = true
	c.block = c.enc.request(c.block[:0], h)
	c.appendBlock(s.id, end && len(body) == 0)
	switch n := min(int64(len(body)), s.window, c.window); {
	case len(body) == 0 && end:
		s.ended()
	case n > 0 && len(c.queue) == 0:
		sent = int(s.sendData(body, int(n), end))
	}
	c.flush()
	return s, sent, nil
}

// opened notes a new stream; mu is held.
func (c *Conn) opened(s *Stream, now time.Time) {
	s.born = now
	c.now = now
	c.idleAt = time.Time{}
	c.arm(now.Add(tickEvery))
}

// Answer sends a server's head, interim or final, and behind a final one the first bytes of the body, which end completes. Everything is
// copied before it returns. With end and no body, a Body of known length is announced nonetheless: for HEAD and 304.
func (s *Stream) Answer(h *Head, body []byte, end bool) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if err := s.beginAnswer(h); err != nil {
		return err
	}
	return s.send(true, body, end && s.begun)
}

// beginAnswer makes the header block of h; mu is held.
func (s *Stream) beginAnswer(h *Head) error {
	if s.err != nil {
		return s.err
	}
	if s.begun {
		return errEnded
	}
	if err := s.awaitRoom(blockSize(h.Fields)); err != nil {
		return err
	}
	s.begun = h.Status >= 200
	s.c.block = s.c.enc.response(s.c.block[:0], h)
	return nil
}

// Send sends more of the body; end completes it. It waits for the peer to give room, up to StallTimeout without any.
func (s *Stream) Send(p []byte, end bool) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.send(false, p, end)
}

// SendTrailers completes the body with trailers; there may be none.
func (s *Stream) SendTrailers(fields []http1.Field) error { return s.Finish(nil, nil, fields) }

// Finish sends the rest of a server's answer or a client's request, in one write if the peer gives the room: the
// answer's head if h is not nil, the rest of the body and the trailers, if there are any.
func (s *Stream) Finish(h *Head, body []byte, trailers []http1.Field) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	end := len(trailers) == 0
	if h != nil {
		if err := s.beginAnswer(h); err != nil {
			return err
		}
		if err := s.append(true, body, end); err != nil {
			return err
		}
	} else if err := s.append(false, body, end); err != nil {
		return err
	}
	if !end {
		if err := s.awaitRoom(blockSize(trailers)); err != nil {
			return err
		}
		c.block = c.enc.trailers(c.block[:0], trailers)
		if err := s.append(true, nil, true); err != nil {
			return err
		}
	}
	c.flush()
	return nil
}

// send is append and flush; mu is held.
func (s *Stream) send(block bool, p []byte, end bool) error {
	if err := s.append(block, p, end); err != nil {
		return err
	}
	if s.c.flush(); s.c.dead {
		return s.err // maybe of this very write
	}
	return nil
}

// append appends the header block in c.block, if there is one, then p. It only writes to get room. mu is held.
func (s *Stream) append(block bool, p []byte, end bool) error {
	c := s.c
	if s.err != nil {
		return s.err
	}
	if s.localEnd {
		return errEnded
	}
	if block {
		c.appendBlock(s.id, end && len(p) == 0)
		if end && len(p) == 0 {
			s.ended()
		}
	} else if len(p) == 0 && end {
		c.out = appendFrame(c.out, 0, http2.FrameData, http2.FlagDataEndStream, s.id)
		s.ended()
	}
	var stalled time.Time
	for len(p) > 0 {
		n := min(int64(len(p)), s.window, c.window)
		others := len(c.queue) > 0 && !s.turn
		if n > 0 && !c.full() && !others {
			n = s.sendData(p, int(n), end)
			p = p[n:]
			stalled = time.Time{}
			if s.queued {
				c.unqueue(s)
				c.wakeSenders()
			}
			continue
		}
		if s.window <= 0 && s.queued {
			c.unqueue(s)
		} else if s.window > 0 && !s.queued {
			s.queued = true
			c.queue = append(c.queue, s)
			if !others {
				c.wakeSenders()
			}
		}
		if len(c.out) > 0 && !c.writing {
			c.flush()
		} else {
			if stalled.IsZero() {
				stalled = time.Now().Add(c.cfg.StallTimeout)
			}
			if s.awaitSending(stalled) {
				if s.queued {
					c.unqueue(s)
				}
				return ErrTimeout
			}
		}
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

// sendData appends DATA frames with at most most bytes of p, and returns how many; mu is held.
func (s *Stream) sendData(p []byte, most int, end bool) int64 {
	c := s.c
	sent := 0
	for sent < most && sent < sendTurn && !c.full() {
		n := min(most-sent, maxFrame)
		var flags http2.Flags
		last := sent+n == len(p)
		if last && end {
			flags = http2.FlagDataEndStream
		}
		c.out = appendFrame(c.out, n, http2.FrameData, flags, s.id)
		c.out = append(c.out, p[sent:sent+n]...)
		sent += n
		if last || n >= byteWorth {
			c.scores.data(n) // frames that are small because of a small window count nothing
		}
	}
	s.window -= int64(sent)
	c.window -= int64(sent)
	c.taking.sent += uint64(sent)
	s.taking.Waited(c.cfg.Pace, 0, int64(sent))
	if end && sent == len(p) {
		s.ended()
	}
	return int64(sent)
}

// ended notes that this side's message is complete; mu is held.
func (s *Stream) ended() {
	s.localEnd = true
	if !s.c.client {
		s.c.scores.answered()
	}
	s.c.complete(s)
}

// awaitRoom keeps a header block of up to n bytes back until it fits among what waits to be written. Without memory for
// one that is larger than what a connection may keep anyway, it returns ErrNoMemory, and nothing was sent. mu is held.
func (s *Stream) awaitRoom(n int) error {
	c := s.c
	for s.err == nil {
		switch {
		case c.full():
		case n <= smallBlock || len(c.out)+n <= c.room || len(c.out)+n <= c.cfg.MaxOutput && c.moreRoom():
			return nil
		case len(c.out) > 0 || c.writing:
		case c.room >= c.cfg.MaxOutput || c.awaitMoreRoom():
			return nil // alone, however large: its length has its own bound
		default:
			return ErrNoMemory
		}
		c.awaitWrite()
	}
	return s.err
}

// blockSize is the most bytes that the header block of fields may have.
func blockSize(fields []http1.Field) int {
	n := 64 // the rest of the head
	for i := range fields {
		n += len(fields[i].Name) + len(fields[i].Value) + 10
	}
	return n
}

// unqueue takes s from the queue; mu is held.
func (c *Conn) unqueue(s *Stream) {
	for i, q := range c.queue {
		if q == s {
			c.queue = append(c.queue[:i], c.queue[i+1:]...)
			break
		}
	}
	s.queued, s.turn = false, false
	c.wakeSenders()
}
