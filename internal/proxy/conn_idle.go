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

// idling is the state of a connection that waits for a request.
type idling struct {
	wait     func(fd uintptr) bool // readable, with TLS readableTLS; nil if the poller cannot be used
	readErr  error
	canPark  bool // an idle connection needs no goroutine
	first    bool // no request was served yet
	served   bool // this goroutine has served a request
	frequent bool // requests follow each other quickly: no parking between them
	resumed  bool // the TLS bytes that woke a parked connection may be no request: see idle
	recheck  bool // the deadline is for a second look at the socket
	parsed   int  // length of a parsed head that is still in the buffer
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
	if c.detects != known && c.mayAwait() {
		return c.awaitFirst()
	}
	if c.first && c.canPark && c.fresh != nil && c.fresh.Unpolled() && !c.shed.Load() && c.bind.phase.Load() != phaseClose {
		return c.firstLook()
	}
	if c.canPark && !c.resumed {
		c.lookAgain()
	} else {
		// TLS also carries bytes that are no request, and may hold a part of a record forever. Neither ends the idle
		// time.
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

// firstLook handles a connection that has not waited in a poller yet. It is parked until a request comes, and enters no
// other poller.
func (c *conn) firstLook() bool {
	done, err := c.fresh.Attempt(c.wait)
	if err == nil && !done {
		c.become(stateParking)
	}
	return err == nil && done && c.readErr == nil
}

// Bounds of the second look at an idle socket.
const recheckAfter, recheckSlack = time.Second, time.Second

// lookAgain sets the deadline of a second look. Then the connection is parked, if possible.
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
			return false // the expired deadline, or the one just replaced, may have been wakeIdle's
		}
	}
}

// readable is called by the poller when there may be something to read. It takes a buffer only if there is. It serves
// requests at once if they arrived completely. Bytes that arrive in that time wake the poller again, so a further read,
// which would find nothing, is left out. If more must be read, readable returns true and the caller reads.
//
// If the end of the connection arrived together with a request, nothing wakes the poller again. Therefore there is a
// second look a little later, and a read attempt after a connection's first request.
func (c *conn) readable(fd uintptr) bool {
	if !c.readFirst(fd) {
		return false
	}
	if c.readErr != nil || !c.serveWhole() || c.parks() {
		return true
	}
	if c.bind.phase.Load() != phaseClose {
		return false
	}
	if !c.readFirst(fd) {
		c.become(stateOver)
	}
	return true
}

// serveWhole serves requests that arrived completely. It returns false if more must be read in the ordinary way, or the
// connection is over.
func (c *conn) serveWhole() bool {
	w := c.w
	if c.first || w.n == len(w.rbuf) {
		return false
	}
	for w.r < w.n {
		n, err := w.req.Parse(w.rbuf[w.r:w.n], c.srv.opt.Limits)
		if c.is(stateServing) {
			c.become(stateHead) // another request came with it
		}
		if err != nil || n == 0 {
			w.req.Reset()
			return false
		}
		if !contained(&w.req, w.n-w.r-n) {
			c.parsed = n
			return false
		}
		c.begins = w.r
		w.r += n
		if !c.serveRequest() {
			return false
		}
	}
	putWork(w)
	c.w = nil
	return true
}

// parks has a connection that was served be idle. It returns true if that needs no goroutine.
func (c *conn) parks() bool {
	if c.canPark && !c.frequent {
		c.become(stateParking)
		return true
	}
	c.lookAgain()
	c.become(stateIdle)
	return false
}

// readableTLS is readable where records must be opened first. TLS may hold more of them than it gives, and they may be no
// request. So the poller wakes it again only when TLS has nothing left to give, and the last read of the socket got less
// than there was room for.
func (c *conn) readableTLS(fd uintptr) bool {
	c.tls.sock.fd, c.tls.sock.drained = fd, false
	served, last := false, false
	for !last && c.readRecords() {
		last = c.tls.sock.gaveAll()
		if c.readErr != nil || !c.serveWhole() {
			return true
		}
		served = true
	}
	if !served {
		return false
	}
	if c.parks() {
		return true
	}
	if c.bind.phase.Load() != phaseClose {
		return false
	}
	c.tls.sock.drained = false
	if !c.readRecords() {
		c.become(stateOver)
	}
	return true
}

// readRecords is readFirst from what TLS holds and what the socket has.
func (c *conn) readRecords() bool {
	w := workPool.Get().(*work)
	c.tls.sock.beginNow()
	n, err := c.nc.Read(w.rbuf)
	c.tls.sock.now = false
	return c.begin(w, n, err, errHeld)
}

// contained is true for a request that can be served without reading from its connection. rest is the number of bytes
// behind the head.
func contained(r *http1.Request, rest int) bool {
	switch r.Body.Kind {
	case http1.BodyNone:
		return r.Upgrade == "" && r.Method != http.MethodConnect
	case http1.BodyLength:
		return r.Body.Length <= int64(rest)
	}
	return false
}

// readFirst reads the available bytes into a fresh work, or notes why nothing can be read any more. It returns false if
// there is nothing yet.
func (c *conn) readFirst(fd uintptr) bool {
	w := workPool.Get().(*work)
	n, err := socket.Read(fd, w.rbuf)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return c.begin(w, n, err, syscall.EAGAIN)
}

// begin takes what was read into a fresh work. It returns false if there was nothing yet, which is an error of its own.
func (c *conn) begin(w *work, n int, err, nothing error) bool {
	if n > 0 {
		w.r, w.n = 0, n
		c.w, c.readErr = w, nil
		c.become(stateHead)
		return true
	}
	workPool.Put(w)
	if err == nothing {
		return false
	}
	c.readErr = err
	return true
}

// takeFirst begins a work with the byte in one. TLS keeps the rest of the record until this buffer exists.
func (c *conn) takeFirst() {
	c.become(stateHead)
	c.w = workPool.Get().(*work)
	c.w.rbuf[0] = c.one[0]
	c.w.r, c.w.n = 0, 1
	if c.tls != nil {
		c.tls.sock.held = true
		n, _ := c.nc.Read(c.w.rbuf[1:]) // the next read returns the error again
		c.tls.sock.held = false
		c.w.n += n
	}
}

// readHeld reads the part of the next request that TLS has already read into a fresh work. If that is impossible for
// good, it notes why. It returns false if TLS holds nothing usable before more bytes arrive.
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

// lastLook checks an idle connection that is about to be closed: a request may have just arrived.
func (c *conn) lastLook() bool {
	if c.wait == nil || c.tls != nil {
		c.readBy = socket.LongAgo // so that it is set again for the request
		c.sock.SetReadDeadline(time.Now().Add(time.Millisecond))
		return c.waitBytes()
	}
	got := false
	c.socket.Control(func(fd uintptr) { got = c.readFirst(fd) && c.readErr == nil })
	if got {
		c.readBy = socket.LongAgo // wakeIdle may have set it
	}
	return got
}
