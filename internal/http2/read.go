package http2

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/socket"
)

const (
	// readBuffer is the size of one read: many small frames, or two of the largest.
	readBuffer     = 2 * (maxFrame + frameHeader)
	defaultWindow  = 1<<16 - 1 // RFC 9113 §6.9.2
	maxWindow      = 1<<31 - 1
	maxStreamID    = 1<<31 - 1
	assumedStreams = 100 // a server's limit before its settings arrive
	maxInterim     = 32  // interim answers of one stream
)

var (
	alivePing    = [8]byte{'a', 'l', 'i', 'v', 'e'}
	shutdownPing = [8]byte{'s', 'h', 'u', 't', 'd', 'o', 'w', 'n'}
)

var bufferPool = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// reader is state that only the reading goroutine uses.
type reader struct {
	buf      *[readBuffer]byte // nil while it would be empty and no bytes are awaited
	r, w     int               // buf[r:w] is not processed yet
	early    []byte            // comes before the bytes that are read
	one      [1]byte
	rest     bool // the connection is idle: a buffer is taken when there is something to read
	first    bool // no frame has come yet
	raw      syscall.RawConn
	step     func(fd uintptr) bool // readStep; nil where it cannot be used
	stepErr  error
	dec      decoder
	head     Head
	tail     []http1.Field
	opens    []*Stream // of this batch, to be served at its end
	progress bool      // a frame was complete since the last look
	header   headers
}

// headers is a header block that is being gathered.
type headers struct {
	open          bool // CONTINUATION follows
	id            uint32
	end           bool // END_STREAM
	self          bool // the stream is to depend on itself
	frames, empty int
	block         []byte
}

func (r *reader) init(c *Conn) {
	r.first = true
	r.dec.init(&c.cfg)
	if sc, ok := c.nc.(syscall.Conn); ok && socket.CanPoll {
		if raw, err := sc.SyscallConn(); err == nil {
			r.raw, r.step = raw, c.readStep
		}
	}
}

// feed has p worked on before anything is read.
func (r *reader) feed(p []byte) { r.early = p }

func (r *reader) release() {
	if r.buf != nil {
		bufferPool.Put(r.buf)
		r.buf = nil
	}
	r.r, r.w = 0, 0
}

// scratch is a buffer of any content.
func (r *reader) scratch() []byte {
	if r.buf == nil {
		r.buf = bufferPool.Get().(*[readBuffer]byte)
	}
	return r.buf[:]
}

// goIdle gives memory away; mu is held.
func (c *Conn) goIdle() {
	if c.r == c.w && len(c.early) == 0 {
		c.release()
		c.rest = true
	}
	if !c.writing && len(c.out) == 0 {
		c.out, c.spareOut = nil, nil
		c.lessRoom()
	}
}

var errOver = &ConnError{Code: NoError, Detail: "the connection was ended"}

// overErr is why reading is over; mu is held.
func (c *Conn) overErr() error {
	if c.evicted != nil {
		return c.evicted
	}
	return errOver
}

// read is the reading loop.
func (c *Conn) read(sawPreface bool) error {
	if !c.client && !sawPreface {
		if err := c.readPreface(); err != nil {
			return err
		}
	}
	for {
		if err := c.work(); err != nil {
			return err
		}
		if len(c.early) == 0 && c.step != nil {
			return c.poll()
		}
		if err := c.fillBuffer(); err != nil {
			return err
		}
	}
}

// work processes what was read.
func (c *Conn) work() error {
	if err := c.frames(); err != nil {
		return err
	}
	if err := c.draw(); err != nil {
		return err
	}
	return c.endBatch()
}

// poll is the reading loop of a socket without TLS.
func (c *Conn) poll() error {
	for {
		err := c.raw.Read(c.step)
		if err == nil {
			return c.stepErr
		}
		if err := c.interrupted(err); err != nil {
			return err
		}
	}
}

// readStep is called by the poller when there may be something to read, and processes it right away. Bytes that arrive
// meanwhile wake the poller again, so a read that would find nothing is not needed. If the end of the connection
// arrived together with the last frames, nothing wakes the poller again; so reading is tried again after the next tick.
func (c *Conn) readStep(fd uintptr) bool {
	for {
		c.makeRoom()
		b := c.scratch()[c.w:]
		n, err := socket.Read(fd, b)
		switch {
		case n > 0:
			c.w += n
			c.rest = false
			if c.stepErr = c.work(); c.stepErr != nil {
				return true
			}
			if n == len(b) {
				continue
			}
			return false
		case err == syscall.EAGAIN:
			if c.rest && c.r == c.w {
				c.release()
			}
			return false
		case err == nil:
			err = io.EOF
		}
		c.stepErr = c.interrupted(err)
		return true
	}
}

// readPreface takes the client's preface (RFC 9113 §3.4).
func (c *Conn) readPreface() error {
	for c.w-c.r < len(Preface) {
		if have := c.buf; have != nil {
			if n := c.w - c.r; string(have[c.r:c.w]) != Preface[:n] {
				break
			}
		}
		c.partial(c.w > c.r, false)
		if err := c.fillBuffer(); err != nil {
			return err
		}
	}
	if c.w-c.r < len(Preface) || string(c.buf[c.r:c.r+len(Preface)]) != Preface {
		return &ConnError{Code: ProtocolError, Detail: "invalid HTTP/2 preface"}
	}
	c.r += len(Preface)
	return nil
}

// fillBuffer reads once.
func (c *Conn) fillBuffer() error {
	for {
		if c.buf == nil && !c.rest {
			c.scratch()
		}
		c.makeRoom()
		var n int
		var err error
		switch {
		case len(c.early) > 0:
			n = copy(c.scratch()[c.w:], c.early)
			c.early = c.early[n:]
		case c.buf == nil:
			if n, err = c.nc.Read(c.one[:]); n > 0 {
				// The rest is read with the next call, which does not wait in a TLS connection that holds it.
				c.scratch()[0] = c.one[0]
				c.rest = false
			}
		default:
			n, err = c.nc.Read(c.buf[c.w:])
		}
		if n > 0 {
			c.w += n
			return nil
		}
		if err == nil {
			err = io.ErrNoProgress
		}
		if err := c.interrupted(err); err != nil {
			return err
		}
	}
}

// makeRoom makes the buffer able to take the rest of a frame.
func (c *Conn) makeRoom() {
	if c.r == c.w {
		c.r, c.w = 0, 0
	} else if readBuffer-c.r < maxFrame+frameHeader {
		c.w = copy(c.buf[:], c.buf[c.r:c.w])
		c.r = 0
	}
}

// interrupted judges a read that failed: nil if it was only time to look after the connection, and all is well.
func (c *Conn) interrupted(err error) error {
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		if err := c.tick(); err != nil {
			return err
		}
		return c.draw()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over && !c.dead {
		return c.overErr()
	}
	return err
}

// endBatch is called when all that was read is worked on: now the streams that it opened begin, if they were not reset by then.
func (c *Conn) endBatch() error {
	partial := c.w > c.r
	data := partial && c.w-c.r > 3 && http2.FrameType(c.buf[c.r+3]) == http2.FrameData
	c.partial(partial, data)
	c.mu.Lock()
	c.active = true
	if c.partID = 0; data && c.w-c.r > frameHeader {
		c.partID, c.partLen = binary.BigEndian.Uint32(c.buf[c.r+5:])&maxStreamID, c.w-c.r-frameHeader
	}
	if len(c.opens) > 0 {
		now := time.Now()
		c.now = now
		for _, s := range c.opens {
			if s.removed {
				continue
			}
			c.opened(s, now)
			s.running = true
			c.running++
		}
	}
	if c.step != nil && len(c.streams) == 0 {
		c.arm(time.Now().Add(tickEvery))
	}
	if c.overrun() {
		c.mu.Unlock()
		return errOutput
	}
	c.flushSoon()
	owes := c.owes
	c.owes = false
	c.mu.Unlock()
	if owes {
		c.changed()
	}
	for i, s := range c.opens {
		c.opens[i] = nil
		switch {
		case !s.running:
			s.giveBackAlone()
			s.recycle()
		case c.cfg.Workers != nil:
			c.cfg.Workers.run(s)
		default:
			go c.serveStream(s)
		}
	}
	c.opens = c.opens[:0]
	return nil
}

// giveBackAlone is giveBack for a stream that was never served.
func (s *Stream) giveBackAlone() {
	s.c.mu.Lock()
	s.giveBack()
	s.c.mu.Unlock()
}

// partial notes whether the last frame, maybe one of data, is incomplete.
func (c *Conn) partial(is, data bool) {
	if !is {
		if !c.partAt.IsZero() {
			c.mu.Lock()
			c.partAt = time.Time{}
			c.mu.Unlock()
		}
		return
	}
	if !c.partAt.IsZero() && !c.progress {
		return
	}
	c.progress = false
	c.mu.Lock()
	c.partAt, c.partData = time.Now(), data
	c.arm(c.partAt.Add(tickEvery))
	c.mu.Unlock()
}

// frames processes the complete frames in the buffer.
func (c *Conn) frames() error {
	for c.w-c.r >= frameHeader {
		b := c.buf[c.r:c.w]
		n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if n > maxFrame {
			return frameSize("a frame is larger than SETTINGS_MAX_FRAME_SIZE")
		}
		if len(b) < frameHeader+n {
			return nil
		}
		fh := http2.FrameHeader{
			Length: uint32(n), Type: http2.FrameType(b[3]), Flags: http2.Flags(b[4]), StreamID: binary.BigEndian.Uint32(b[5:]) & maxStreamID,
		}
		h := &c.header
		if h.open != (fh.Type == http2.FrameContinuation) || h.open && fh.StreamID != h.id {
			return protocol("missing or unexpected CONTINUATION (RFC 9113 §6.10)")
		}
		c.r += frameHeader + n
		c.progress = true
		if err := c.frame(&fh, b[frameHeader:frameHeader+n]); err != nil {
			return err
		}
	}
	return nil
}
