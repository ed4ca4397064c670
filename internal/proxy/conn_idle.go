package proxy

import (
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/upstream"
)

// idling is how a connection waits for a request.
type idling struct {
	wait     func(fd uintptr) bool // readable; nil if the poller cannot be used
	readErr  error
	canPark  bool // an idle connection needs no goroutine
	first    bool // nothing was served yet
	served   bool // something was since it has this goroutine
	frequent bool // requests follow each other soon: no parking between them
	resumed  bool // what came over TLS to a parked connection may be no request: see idle
	recheck  bool // the deadline is that of a second look at the socket
	parsed   int  // length of a head that was parsed and not taken
	one      [1]byte
}

// idle waits for the first bytes of a request.
func (c *conn) idle() bool {
	if c.w != nil {
		putWork(c.w)
		c.w = nil
		c.giveBack()
	}
	c.resumed = c.resumed && !c.served
	if c.canPark && c.served && !c.frequent && c.bind.phase.Load() != phaseClose && !c.shed.Load() {
		if c.tls != nil && c.readHeld() {
			return c.readErr == nil
		}
		c.become(stateParking)
		return false
	}
	if c.first && c.canPark && c.fresh != nil && c.fresh.Unpolled() && !c.shed.Load() && c.bind.phase.Load() != phaseClose {
		return c.firstLook()
	}
	if c.canPark && !c.resumed {
		c.lookAgain()
	} else {
		// TLS has bytes of its own, and can have a part of a record for as long as it likes: neither makes a connection less idle.
		c.recheck = false
		limit := c.srv.opt.IdleTimeout
		c.readUntil(c.now.Add(limit), limit/8)
	}
	c.become(stateIdle)
	ok := c.bind.phase.Load() != phaseClose && !c.shed.Load() && c.waitBytes()
	if s := c.state(); !ok && (s == stateIdle || s == stateParking) && (c.bind.phase.Load() == phaseClose || c.shed.Load()) {
		if s == stateParking {
			c.become(stateIdle)
		}
		if ok = c.lastLook(); !ok {
			c.become(stateOver)
		}
	}
	return ok
}

// firstLook is for a connection that nothing has waited for: as long as it brings no request it is parked, and enters no other poller.
func (c *conn) firstLook() bool {
	done, err := c.fresh.Attempt(c.wait)
	if err == nil && !done {
		c.become(stateParking)
	}
	return err == nil && done && c.readErr == nil
}

// Bounds of the second look at an idle socket.
const recheckAfter, recheckSlack = time.Second, time.Second

// lookAgain sets the deadline of a second look: the connection is parked then, where that can be.
func (c *conn) lookAgain() {
	c.recheck = true
	limit := c.srv.opt.IdleTimeout
	c.readUntil(c.now.Add(min(recheckAfter, limit)), min(recheckSlack, limit/8))
}

// waitBytes reads the first bytes into a fresh work.
func (c *conn) waitBytes() bool {
	for {
		var err error
		if c.wait == nil {
			var n int
			if n, err = c.nc.Read(c.one[:]); n > 0 {
				c.takeFirst()
				return true
			}
		} else if err = c.socket.Read(c.wait); err == nil {
			return c.readErr == nil && c.is(stateHead)
		}
		if !c.recheck || !upstream.IsTimeout(err) || c.shed.Load() {
			return false
		}
		if c.canPark {
			c.become(stateParking)
			return false
		}
		c.recheck = false
		c.now = time.Now()
		limit := c.srv.opt.IdleTimeout
		c.readUntil(c.now.Add(limit), limit/8)
		if c.bind.phase.Load() == phaseClose {
			return false // wakeIdle's deadline may be what passed, or what was just put off
		}
	}
}

// readable is called by the poller when there may be something to read; it takes a buffer only if there is. Requests that came whole it serves right
// away: bytes that come meanwhile wake the poller again, so that the attempt to read that would find nothing can be left out. Everything that
// needs more reading is done outside, where true leads.
//
// When the end of the connection came together with a request, nothing wakes the poller again: hence a second look a little later, and an attempt to
// read after a connection's first request.
func (c *conn) readable(fd uintptr) bool {
	if !c.readFirst(fd) {
		return false
	}
	w := c.w
	if c.readErr != nil || c.first || w.n == len(w.rbuf) {
		return true
	}
	for w.r < w.n {
		n, err := w.req.Parse(w.rbuf[w.r:w.n], c.srv.opt.Limits)
		if c.is(stateServing) {
			c.become(stateHead) // another one came with it
		}
		if err != nil || n == 0 {
			w.req.Reset()
			return true
		}
		if !contained(&w.req, w.n-w.r-n) {
			c.parsed = n
			return true
		}
		w.r += n
		if !c.serveRequest() {
			return true
		}
	}
	putWork(w)
	c.w = nil
	if c.canPark && !c.frequent {
		c.become(stateParking)
		return true
	}
	c.lookAgain()
	c.become(stateIdle)
	if c.bind.phase.Load() != phaseClose {
		return false
	}
	if !c.readFirst(fd) {
		c.become(stateOver)
	}
	return true
}

// contained is true for a request that can be served without reading from its connection; rest is how much came behind the head.
func contained(r *http1.Request, rest int) bool {
	switch r.Body.Kind {
	case http1.BodyNone:
		return r.Upgrade == "" && r.Method != http.MethodConnect
	case http1.BodyLength:
		return r.Body.Length <= int64(rest)
	}
	return false
}

// readFirst reads what is there into a fresh work, or notes why nothing can be read any more; false if there is nothing yet.
func (c *conn) readFirst(fd uintptr) bool {
	w := workPool.Get().(*work)
	n, err := socket.Read(fd, w.rbuf)
	if n > 0 {
		w.r, w.n = 0, n
		c.w, c.readErr = w, nil
		c.become(stateHead)
		return true
	}
	workPool.Put(w)
	if err == syscall.EAGAIN {
		return false
	}
	if err == nil {
		err = io.EOF
	}
	c.readErr = err
	return true
}

// takeFirst begins a work with the byte in one. TLS keeps the rest of the record until there is this buffer to read into.
func (c *conn) takeFirst() {
	c.become(stateHead)
	c.w = workPool.Get().(*work)
	c.w.rbuf[0] = c.one[0]
	c.w.r, c.w.n = 0, 1
	if c.tls != nil {
		c.tls.sock.held = true
		n, _ := c.nc.Read(c.w.rbuf[1:]) // an error comes again
		c.tls.sock.held = false
		c.w.n += n
	}
}

// readHeld reads what TLS has read of the next request already, into a fresh work, or notes why nothing can be read any more; false if it has
// nothing that could be used before more comes.
func (c *conn) readHeld() bool {
	c.tls.sock.held = true
	n, err := c.nc.Read(c.one[:])
	c.tls.sock.held = false
	if n > 0 {
		c.takeFirst()
		err = nil
	}
	c.readErr = err
	return err != errHeld
}

// lastLook is for an idle connection that is about to be closed: a request may have come in this moment.
func (c *conn) lastLook() bool {
	if c.wait == nil {
		c.readBy = socket.LongAgo // so that it is set anew for the request
		c.sock.SetReadDeadline(time.Now().Add(time.Millisecond))
		return c.waitBytes()
	}
	got := false
	c.socket.Control(func(fd uintptr) { got = c.readFirst(fd) && c.readErr == nil })
	if got {
		c.readBy = socket.LongAgo // as wakeIdle may have set it
	}
	return got
}
