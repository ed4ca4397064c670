package http2

import (
	"encoding/binary"
	"runtime"
	"sync"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/socket"
)

const (
	// maxFrame is the largest frame's payload, in both directions: the smallest that every peer takes.
	maxFrame    = 16 << 10
	frameHeader = 9
	// writeSize is how much is written at once: the peer has StallTimeout for it.
	writeSize = 64 << 10
	// inlineWrite is how much a client's stream writes by itself: a larger write may wait for a peer that does not
	// read, and the stream's owner must be able to give up.
	inlineWrite = 16 << 10
	// keepBlock is the largest buffer for a header block that a connection keeps.
	keepBlock = 8 << 10
	// controlRoom is how many bytes of acknowledgements and similar frames may wait, in addition to MaxOutput, for a
	// peer that does not read.
	controlRoom = 64 << 10
)

// output is the bytes that wait to be written. The goroutine that appends also writes, unless another one does, which
// then writes these, too; mu guards it.
type output struct {
	out, spareOut []byte
	writing       bool
	writes        uint64 // begun
	wrote         *sync.Cond
	failed        error
	pushStep      func(fd uintptr) bool // writeStep; nil where it cannot be used
	pushed        []byte
	pushErr       error
	enc           encoder
	block         []byte // a header block being coded

	window int64 // the peer's window for all streams together
	// the streams that could send, in order, but wait for window or MaxOutput
	queue []*Stream
}

func (o *output) init(c *Conn) {
	o.wrote = sync.NewCond(&c.mu)
	o.window = defaultWindow
	o.enc.init()
	if c.step != nil {
		o.pushStep = c.writeStep
	}
}

// frameSink is where the framer writes; mu is held.
type frameSink Conn

func (w *frameSink) Write(p []byte) (int, error) {
	w.out = append(w.out, p...)
	return len(p), nil
}

// appendFrame appends the header of a frame with n bytes to follow.
func appendFrame(dst []byte, n int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	dst = append(dst, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(dst, stream)
}

// appendBlock appends c.block as HEADERS and, if it is long, CONTINUATION.
func (c *Conn) appendBlock(id uint32, end bool) {
	var flags http2.Flags
	if end {
		flags = http2.FlagHeadersEndStream
	}
	kind := http2.FrameHeaders
	for b := c.block; ; kind, flags = http2.FrameContinuation, 0 {
		n := min(len(b), maxFrame)
		if n == len(b) {
			flags |= http2.FlagHeadersEndHeaders
		}
		c.out = appendFrame(c.out, n, kind, flags, id)
		c.out = append(c.out, b[:n]...)
		if b = b[n:]; len(b) == 0 {
			break
		}
	}
	if cap(c.block) > keepBlock {
		c.block = nil
	}
}

// flush writes the output, unless another goroutine does; mu is held, and released during the write. Goroutines that
// are about to append may do so first, so that their frames are sent together. Frames that were appended during the
// write are left to a goroutine, so that no caller serves the others for long.
func (c *Conn) flush() {
	if c.writing || len(c.out) == 0 || c.dead {
		return
	}
	c.writing = true
	if c.client && len(c.out) > inlineWrite {
		go c.writeRest()
		return
	}
	c.mu.Unlock()
	runtime.Gosched()
	c.mu.Lock()
	c.writeOut()
	if len(c.out) > 0 && c.failed == nil {
		go c.writeRest()
		return
	}
	c.writing = false
	c.wrote.Broadcast()
}

// flushSoon is flush by another goroutine, for callers that must not wait; mu is held.
func (c *Conn) flushSoon() {
	if c.writing || len(c.out) == 0 || c.dead {
		return
	}
	c.writing = true
	go c.writeRest()
}

// writeRest ends a flush. Run waits for it.
func (c *Conn) writeRest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > 0 && c.failed == nil {
		c.writeOut()
	}
	c.writing = false
	c.wrote.Broadcast()
}

// writeOut writes out, and releases mu meanwhile.
func (c *Conn) writeOut() {
	b := c.out
	c.out, c.spareOut = c.spareOut[:0], nil
	var err error
	for rest := b; len(rest) > 0 && err == nil; {
		n := min(len(rest), writeSize)
		c.writes++
		c.mu.Unlock()
		err = c.push(rest[:n])
		c.mu.Lock()
		rest = rest[n:]
	}
	if cap(b) <= 2*c.room { // what is drawn for, or free
		c.spareOut = b[:0]
	}
	if err != nil && c.failed == nil {
		c.failed = err
		// Reading finds out why; if it does not, this ends it.
		c.die(&ConnError{Code: NoError, Remote: true, Detail: "writing failed", Err: err})
		c.over = true
		c.nc.SetReadDeadline(socket.LongAgo)
	}
	c.wrote.Broadcast()
	c.wakeSenders()
}

// push writes p to the connection; c.writing is the caller's.
func (c *Conn) push(p []byte) error {
	if c.pushStep == nil {
		_, err := c.nc.Write(p)
		return err
	}
	c.pushed, c.pushErr = p, nil
	if err := c.raw.Write(c.pushStep); err != nil {
		return err
	}
	return c.pushErr
}

// writeStep is called by the poller until all is written.
func (c *Conn) writeStep(fd uintptr) bool {
	done, err := socket.WriteAll(fd, &c.pushed)
	c.pushErr = err
	return done
}

// drainOutput writes the rest before the end, until the write deadline; mu is held.
func (c *Conn) drainOutput(told bool) {
	for c.writing {
		c.wrote.Wait()
	}
	if told && c.failed == nil && len(c.out) > 0 {
		c.writing = true
		c.writeOut()
		c.writing = false
	}
}

// awaitWrite waits until something was written; mu is held.
func (c *Conn) awaitWrite() {
	if c.writing {
		c.wrote.Wait()
	} else {
		c.flush()
	}
}

// full is true if senders of bodies have to wait.
func (c *Conn) full() bool { return len(c.out) >= c.room && !c.moreRoom() }

// overrun is true if the peer makes acknowledgements and does not read them; mu is held.
func (c *Conn) overrun() bool { return len(c.out) > 2*c.cfg.MaxOutput+controlRoom }

// wakeSenders lets the first in the queue continue, if it can.
func (c *Conn) wakeSenders() {
	if len(c.queue) > 0 && (c.window > 0 && !c.full() || c.dead) {
		s := c.queue[0]
		s.turn = true
		s.sending.cond.Signal()
	}
}
