package upstream

import (
	"io"
	"syscall"

	"github.com/weirmesh/weir/internal/socket"
)

// Ask writes p, a whole request, and waits for the first bytes of its answer, which are Buffered afterwards. It is
// Write and Fill in one, and saves the read that would fail while the endpoint works. n is how much of p was written.
// If n is less than len(p), err is why the rest was not written; otherwise err is why nothing could be read, which the
// next Fill returns again. Nothing may be Buffered before. Ask does not write to a reused connection on which something
// arrived while it was idle: n is 0 then.
func (c *Conn) Ask(p []byte) (n int, err error) {
	switch {
	case c.swap == nil || c.r != c.w || c.mayHold():
		if n, err = c.Write(p); err == nil {
			_, err = c.Fill()
		}
		return n, err
	case c.net != c.wire:
		return c.askSealed(p)
	}
	if c.buf == nil {
		c.buf = c.endpoint.set.buffers.Get().(*buffer)
	}
	c.r, c.w = 0, 0
	c.ask, c.asked, c.askErr = p, 0, nil
	err = c.raw.Read(c.swap)
	n = c.asked
	c.ask = nil
	switch {
	case n == 0 && (c.askErr == errUnasked || c.askErr == io.EOF):
		return 0, c.askErr
	case n < len(p) && (c.askErr == syscall.EAGAIN || c.askErr == nil):
		// The socket's buffer is full, or a read would have been too late already: the rest is written in the ordinary way.
		var m int
		if m, err = c.Write(p[n:]); err == nil {
			_, err = c.Fill()
		}
		return n + m, err
	case err != nil:
		return n, err
	}
	return n, c.askErr
}

// askStep is the step of Ask each time the poller calls: it writes first, then reads once there is something to read.
// The poller's state is reset before the write, so that the reaction to it cannot be missed: either bytes, or the reset
// by which an endpoint answers that had closed the connection.
func (c *Conn) askStep(fd uintptr) bool {
	if c.unchecked {
		// In the same step as the write: this costs a system call, but no waiting.
		c.unchecked = false
		if n, err := socket.Read(fd, c.buf.b); err != syscall.EAGAIN {
			if c.askErr = err; n > 0 {
				c.askErr = errUnasked
			} else if err == nil {
				c.askErr = io.EOF
			}
			return true
		}
	}
	if c.asked < len(c.ask) {
		n, err := socket.Write(fd, c.ask)
		c.asked = n
		if n < len(c.ask) || err != nil {
			c.askErr = err
			return true
		}
		return false
	}
	n, err := socket.Read(fd, c.buf.b)
	if err == syscall.EAGAIN {
		return false
	}
	c.w = n
	if n == 0 && err == nil {
		err = io.EOF
	}
	c.askErr = err
	return true
}

// askSealed is Ask over TLS, which holds no part of an answer. The library writes and reads, so its reads begin
// when there is something to be read.
func (c *Conn) askSealed(p []byte) (n int, err error) {
	c.ask, c.asked, c.askErr = p, 0, nil
	err = c.raw.Read(c.swap)
	left := c.ask != nil // a read would have been too late already
	n, c.ask = c.asked, nil
	if left {
		if n, err = c.Write(p); err == nil {
			_, err = c.Fill()
		}
		return n, err
	}
	if c.askErr != nil {
		return n, c.askErr
	}
	if err == nil {
		_, err = c.Fill()
	}
	return n, err
}

// sealedStep is the step of askSealed each time the poller calls: it writes, and then knows that there is something to be read.
func (c *Conn) sealedStep(uintptr) bool {
	if c.ask == nil {
		return true
	}
	c.asked, c.askErr = c.Write(c.ask)
	c.ask = nil
	return c.askErr != nil
}
