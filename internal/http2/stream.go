package http2

import (
	"io"
	"slices"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/pace"
)

// Stream is one request and its answer. One goroutine may receive (AwaitHead, Next, Trailers) while another sends; the
// other methods may be called by any. Its errors are io.EOF, ErrInterrupted, ErrTimeout, ErrNoMemory, *StreamError or
// *ConnError.
type Stream struct {
	c    *Conn
	id   uint32
	born time.Time

	// The rest is guarded by c.mu, except for received data, which is only read.

	head     Head // a server's request, a client's final answer
	interim  []Head
	interims int
	trailers []http1.Field
	headCame bool // a client's final answer is here
	noBody   bool // the answer has no body: the request was HEAD

	err       error // why it ended before its time
	removed   bool  // it is not among c.streams any more
	running   bool  // the handler
	zombie    bool  // reset while the handler runs
	localEnd  bool
	remoteEnd bool
	begun     bool // the head of the final answer was sent

	declared, received int64 // bytes of the body; declared may be -1
	inWin, inUsed      int32 // as in Conn
	fill               []byte
	piece              []byte // being read
	block, most        int    // bytes of its header blocks, decoded; the most of the body that was kept at once
	weight             int64  // its share of Conn.used
	place              int    // in Conn.heavy, if it weighs anything
	starved            bool   // others needed its memory
	interrupted        bool
	paused             bool
	reading            wait

	window       int64 // the peer's window
	queued, turn bool
	sending      wait
	taking       pace.Pace
	patient      bool

	watcher Aborter
	fired   bool // it was told
}

// wait is a goroutine that waits; c.mu guards it.
type wait struct {
	cond     *sync.Cond
	on       bool
	timedOut bool // it waited too long
	until    time.Time
	// coarse: until is so far ahead that a tick is exact enough, and no timer is made for it.
	coarse bool
}

// Aborter is told when a stream ends before its time.
type Aborter interface{ Abort() }

// keepBody is the largest buffer that a stream takes along into its next life.
const keepBody = 64 << 10

// Larger buffers have pools of their own, up to the largest window: streams of short bodies do not hold them.
var (
	bodySizes = [...]int{128 << 10, 256 << 10}
	bodyPools [len(bodySizes)]sync.Pool // of *[]byte
)

// add appends a piece of a body.
func (s *Stream) add(p []byte) {
	if n := len(s.fill) + len(p); n > cap(s.fill) && n > keepBody {
		i := 0
		for i < len(bodySizes)-1 && bodySizes[i] < n {
			i++
		}
		larger, _ := bodyPools[i].Get().(*[]byte)
		if larger == nil || cap(*larger) < n {
			larger = new(make([]byte, 0, max(n, bodySizes[i])))
		}
		*larger = append((*larger)[:0], s.fill...)
		keptBody(s.fill)
		s.fill = *larger
	}
	s.fill = append(s.fill, p...)
}

// keptBody returns the buffer, emptied, if a stream may keep it. Otherwise it is nil, and the buffer has gone to its pool.
func keptBody(b []byte) []byte {
	if cap(b) <= keepBody {
		return b[:0]
	}
	if i := slices.Index(bodySizes[:], cap(b)); i >= 0 {
		large := b // b itself would be allocated by each call
		bodyPools[i].Put(&large)
	}
	return nil
}

var streamPool = sync.Pool{New: func() any { return &Stream{} }}

func (c *Conn) newStream(id uint32) *Stream {
	s := streamPool.Get().(*Stream)
	s.c, s.id = c, id
	s.declared = -1
	s.inWin = int32(c.cfg.StreamWindow)
	s.window = int64(c.peer.window)
	if s.reading.cond == nil {
		s.reading.cond, s.sending.cond = sync.NewCond(&c.mu), sync.NewCond(&c.mu)
	} else {
		s.reading.cond.L, s.sending.cond.L = &c.mu, &c.mu
	}
	return s
}

// recycle makes s the pool's.
func (s *Stream) recycle() {
	trailers := s.trailers
	clear(trailers)
	next := Stream{reading: wait{cond: s.reading.cond}, sending: wait{cond: s.sending.cond}}
	next.head, next.trailers = s.head.empty(), trailers[:0]
	next.fill, next.piece = keptBody(s.fill), keptBody(s.piece)
	*s = next
	streamPool.Put(s)
}

// drop ends s with err and takes it from the connection; mu is held.
func (c *Conn) drop(s *Stream, err error) {
	if s.removed {
		return
	}
	if s.err == nil {
		s.err = err
	}
	if s.running && !s.zombie {
		s.zombie = true
		c.zombies++
	}
	c.remove(s)
	if s.watcher != nil {
		s.fired = true
		s.watcher.Abort()
	}
	s.reading.cond.Broadcast()
	s.sending.cond.Broadcast()
}

// remove takes s from the connection's streams; mu is held.
func (c *Conn) remove(s *Stream) {
	if s.removed {
		return
	}
	s.removed = true
	delete(c.streams, s.id)
	if s.queued {
		c.unqueue(s)
	}
	c.closed.add(s.id, false)
	c.endIfDone()
}

// complete removes s once both sides have ended; mu is held.
func (c *Conn) complete(s *Stream) {
	if s.localEnd && s.remoteEnd {
		c.remove(s)
	}
}

// reset ends s from this side with err; mu is held.
func (c *Conn) reset(s *Stream, err *StreamError) {
	if s.removed {
		return
	}
	c.framer.WriteRSTStream(s.id, err.Code)
	c.drop(s, err)
	c.closed.add(s.id, true)
}

// serveStream runs the handler of a stream.
func (c *Conn) serveStream(s *Stream) {
	c.serve(s)
	c.mu.Lock()
	if !s.removed {
		code := InternalError
		if s.localEnd {
			code = NoError
		}
		c.reset(s, &StreamError{Stream: s.id, Code: code})
		c.flush()
	}
	if s.zombie {
		c.zombies--
	}
	s.giveBack()
	if c.running--; c.running == 0 {
		c.idle.Broadcast()
	}
	c.mu.Unlock()
	s.recycle()
}

// ID is the stream's number.
func (s *Stream) ID() uint32 { return s.id }

// Born is when the stream was opened, for a server about when the head came.
func (s *Stream) Born() time.Time { return s.born }

// Head is a server's request. It is valid until serve returns.
func (s *Stream) Head() *Head { return &s.head }

// await waits for something to happen, or until; mu is held.
func (s *Stream) await(w *wait, until time.Time) (timedOut bool) {
	w.on, w.timedOut, w.until = true, false, until
	if w.coarse = until.Sub(s.c.now) >= 2*tickEvery; !w.coarse && !until.IsZero() {
		s.c.arm(until)
	}
	w.cond.Wait()
	w.on = false
	return w.timedOut
}

// AwaitHead waits for the answer's next head: interim ones come first, one for each call. The last, with a Status of at
// least 200, is returned again by further calls. If until is not zero, AwaitHead gives up with ErrTimeout then, or up
// to a second later if it is two seconds ahead or more; the stream continues. The head is valid until the next call or
// Close.
func (s *Stream) AwaitHead(until time.Time) (*Head, error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if len(s.interim) > 0 {
			h := s.interim[0]
			s.interim = s.interim[1:]
			return &h, nil
		}
		if s.headCame {
			return &s.head, nil
		}
		if s.err != nil {
			return nil, s.err
		}
		if s.await(&s.reading, until) {
			return nil, ErrTimeout
		}
	}
}

// Next waits for the next piece of the body, which is valid until the next call; io.EOF after the last. The next call
// gives the peer window for it. until is as with AwaitHead. Errors other than ErrTimeout are returned again.
func (s *Stream) Next(until time.Time) ([]byte, error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.used(len(s.piece))
	s.piece = s.piece[:0]
	for {
		if s.starved {
			return nil, ErrNoMemory
		}
		if s.interrupted || s.paused {
			return nil, ErrInterrupted
		}
		if len(s.fill) > 0 {
			s.fill, s.piece = s.piece, s.fill
			return s.piece, nil
		}
		if s.remoteEnd {
			return nil, io.EOF
		}
		if s.err != nil {
			return nil, s.err
		}
		if len(c.out) > 0 && !c.writing && !c.dead {
			c.flush() // window given above
			continue
		}
		if s.await(&s.reading, until) {
			return nil, ErrTimeout
		}
	}
}

// Ready is true if Next will not wait.
func (s *Stream) Ready() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return len(s.fill) > 0 || s.remoteEnd || s.interrupted || s.err != nil
}

// Whole takes the body if all of it has arrived, without trailers. It stays valid until serve returns or Close, and
// Next returns io.EOF.
func (s *Stream) Whole() (body []byte, ok bool) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.remoteEnd || s.interrupted || len(s.piece) > 0 || len(s.trailers) > 0 {
		return nil, false
	}
	s.fill, s.piece = s.piece, s.fill
	return s.piece, true
}

// Trailers are the fields after the body, valid as long as the head; nil before Next returned io.EOF.
func (s *Stream) Trailers() []http1.Field {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if !s.remoteEnd || len(s.fill) > 0 {
		return nil
	}
	return s.trailers
}

// Interrupt ends receiving for good: a Next under way fails, and so does each later one.
func (s *Stream) Interrupt() {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.interrupted {
		return
	}
	s.interrupted = true
	c.giveRoom(len(s.fill))
	s.fill = s.fill[:0]
	s.reading.cond.Broadcast()
}

// Abort makes every wait fail with ErrInterrupted from now on, for receiving and for sending. Nothing is sent: the
// stream must still be closed. It implements Aborter, so that one stream may end with another.
func (s *Stream) Abort() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.err == nil {
		s.err = ErrInterrupted
	}
	s.reading.cond.Broadcast()
	s.sending.cond.Broadcast()
}

// Pause makes a Next under way fail with ErrInterrupted, and each later one until Resume. Data that arrives in the
// meantime is kept.
func (s *Stream) Pause() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.paused = true
	s.reading.cond.Broadcast()
}

// Resume ends Pause.
func (s *Stream) Resume() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.paused = false
}

// used gives n bytes that were read back to the peer; mu is held.
func (s *Stream) used(n int) {
	if n == 0 {
		return
	}
	c := s.c
	c.giveRoom(n)
	if s.remoteEnd || s.removed {
		return
	}
	if s.inUsed += int32(n); int(s.inUsed) >= c.cfg.StreamWindow/4 {
		c.framer.WriteWindowUpdate(s.id, uint32(s.inUsed))
		s.inWin += s.inUsed
		s.inUsed = 0
	}
}

// giveRoom gives n bytes of all streams back to the peer, no later than one stream needs them whose others are not read; mu is held.
func (c *Conn) giveRoom(n int) {
	if c.inUsed += int32(n); int(c.inUsed) >= min(c.cfg.ConnWindow/4, c.cfg.StreamWindow/2) && !c.dead {
		c.framer.WriteWindowUpdate(0, uint32(c.inUsed))
		c.inWin += c.inUsed
		c.inUsed = 0
		if !c.blockedAt.IsZero() {
			c.blocked += time.Since(c.blockedAt)
			c.blockedAt = time.Time{}
		}
	}
}

// giveBack returns window for data that was never read; mu is held.
func (s *Stream) giveBack() {
	s.c.unweigh(s)
	if n := len(s.piece) + len(s.fill); n > 0 && !s.interrupted {
		s.c.giveRoom(n)
	} else if s.interrupted {
		s.c.giveRoom(len(s.piece))
	}
	s.c.flushSoon() // no other frame may follow
}

// Sent is true once the head of a server's final answer was sent, or anything behind it.
func (s *Stream) Sent() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.begun
}

// Reset ends the stream, unless it has ended.
func (s *Stream) Reset(code Code) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.removed {
		c.reset(s, &StreamError{Stream: s.id, Code: code})
		c.flush()
	}
}

// Gone is true once the peer has reset the stream or the connection has ended.
func (s *Stream) Gone() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.err != nil
}

// Watch lets a.Abort be called when the stream is gone, or at once if it is. It is called with locks held: it must
// neither block nor call the stream. It replaces an earlier one.
func (s *Stream) Watch(a Aborter) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.watcher, s.fired = a, s.err != nil
	if s.fired {
		a.Abort()
	}
}

// Unwatch ends Watch and is false if the stream is gone: then Abort was called.
func (s *Stream) Unwatch() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.watcher = nil
	return !s.fired
}

// Close ends a client's stream, which must not be used any more: an incomplete one is cancelled. No other goroutine may
// still use it.
func (s *Stream) Close() {
	c := s.c
	c.mu.Lock()
	if !s.removed {
		c.reset(s, &StreamError{Stream: s.id, Code: Cancel})
		c.flush()
	}
	s.giveBack()
	c.mu.Unlock()
	s.recycle()
}
