package proxy

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/upstream"
)

// answerWriter is the state of an answer that a connection writes.
type answerWriter struct {
	answering atomic.Bool // the answer has begun
	sent      bool        // bytes of it were written
	broken    bool        // it was aborted
	closing   bool        // the connection closes after it
	chunked   bool        // its body is chunked
	bodyless  bool        // it has no body

	push    func(fd uintptr) bool // writable; nil if the poller cannot be used
	pushed  []byte                // the bytes being written
	pushErr error
	sending bool // send is running

	paced   bool    // the client's reading pace can be measured, and a minimum is set
	outPace outPace // used by send, or by guard while it watches
	guard   outGuard
}

const continueHead = "HTTP/1.1 100 Continue\r\n\r\n"

// Proceed implements exchange.Client.
func (c *conn) Proceed() error {
	if c.in.continued.Load() || c.w.req.Minor == 0 || !c.w.req.Expect100 {
		return nil
	}
	c.in.continued.Store(true)
	c.w.out = append(c.w.out, continueHead...)
	err := c.Flush()
	c.sent = false // the answer itself has not begun
	return err
}

// Inform implements exchange.Client.
func (c *conn) Inform(status int, fields []http1.Field) error {
	if c.w.req.Minor == 0 {
		return nil // RFC 9110 §15.2
	}
	if status == http.StatusContinue {
		if !c.w.req.Expect100 || c.in.continued.Load() {
			return nil
		}
		c.in.continued.Store(true)
	}
	out := http1.AppendStatusLine(c.w.out, status, "")
	for i := range fields {
		out = http1.AppendField(out, fields[i].Name, fields[i].Value)
	}
	c.w.out = http1.AppendEnd(out)
	err := c.Flush()
	c.sent = false
	if status == http.StatusContinue {
		c.sock.SetReadDeadline(socket.LongAgo) // the body is due from now on: see fillBody
	}
	return err
}

// Begin implements exchange.Client.
func (c *conn) Begin(a *exchange.Answer) error {
	w := c.w
	c.answering.Store(true)
	if !w.ex.Reading() && !c.in.done && !c.in.skip(w) {
		c.closing = true
	}
	if a.Close || c.bind.phase.Load() != phaseServe || c.shed.Load() {
		c.closing = true
	}
	c.bodyless = a.Body.Kind == http1.BodyNone || w.req.Method == http.MethodHead
	c.chunked = false
	out := http1.AppendStatusLine(w.out, a.Status, a.Reason)
	for i := range a.Fields {
		out = http1.AppendField(out, a.Fields[i].Name, a.Fields[i].Value)
	}
	switch a.Body.Kind {
	case http1.BodyLength:
		out = http1.AppendContentLength(out, a.Body.Length)
	case http1.BodyChunked, http1.BodyUntilClose:
		if w.req.Minor == 0 {
			c.closing = true
		} else {
			out = append(out, "Transfer-Encoding: chunked\r\n"...)
			c.chunked = true
		}
	}
	switch {
	case a.Upgrade != "":
		out = append(out, "Connection: Upgrade\r\n"...)
		out = http1.AppendField(out, "Upgrade", a.Upgrade)
	case w.req.Method == http.MethodConnect && a.Status/100 == 2:
		// A tunnel follows.
	case c.closing:
		out = append(out, "Connection: close\r\n"...)
	case w.req.Minor == 0:
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	w.out = http1.AppendEnd(out)
	return nil
}

// Write implements exchange.Client.
func (c *conn) Write(p []byte) error {
	if c.bodyless || len(p) == 0 {
		return nil
	}
	w := c.w
	if len(p) > exchange.Gather/2 {
		if c.chunked {
			w.out = http1.AppendChunkHeader(w.out, len(p))
		}
		if err := c.Flush(); err != nil {
			return err
		}
		if err := c.send(p); err != nil {
			return err
		}
		if c.chunked {
			w.out = append(w.out, '\r', '\n')
		}
		return nil
	}
	if c.chunked {
		w.out = http1.AppendChunk(w.out, p)
	} else {
		w.out = append(w.out, p...)
	}
	if len(w.out) >= exchange.Gather {
		return c.Flush()
	}
	return nil
}

// Flush implements exchange.Client.
func (c *conn) Flush() error {
	if len(c.w.out) == 0 {
		return nil
	}
	err := c.send(c.w.out)
	c.w.out = c.w.out[:0]
	return err
}

func (c *conn) send(p []byte) error {
	limit := c.srv.opt.StreamTimeout
	if c.paced {
		limit = min(limit, c.srv.minPace.LookAfter())
	}
	if c.sent {
		c.now = time.Now()
	}
	c.writeUntil(c.now.Add(limit), limit/4)
	c.outPace.since = c.now
	c.sent = true
	var err error
	if c.push != nil {
		c.pushed, c.pushErr = p, nil
		for {
			if err = c.socket.Write(c.push); err == nil {
				err = c.pushErr
			} else if c.moreTime(err) {
				continue
			}
			break
		}
		c.pushed = nil
	} else {
		c.sending = true
		_, err = c.nc.Write(p)
		c.sending = false
	}
	if err != nil {
		return exchange.WriteFailure(err)
	}
	return nil
}

// moreTime reports whether to continue after a failed write: it timed out, but the client reads fast enough.
func (c *conn) moreTime(err error) bool {
	if !c.paced || !upstream.IsTimeout(err) {
		return false
	}
	d := c.stillTaking()
	if d <= 0 {
		return false
	}
	c.writeBy = c.outPace.since.Add(d)
	return c.sock.SetWriteDeadline(c.writeBy) == nil
}

// writable is called by the poller until everything is written.
func (c *conn) writable(fd uintptr) bool {
	done, err := socket.WriteAll(fd, &c.pushed)
	c.pushErr = err
	return done
}

// End implements exchange.Client.
func (c *conn) End(trailers []http1.Field) error {
	if c.chunked && !c.bodyless {
		c.w.out = http1.AppendLastChunk(c.w.out, trailers)
	}
	return c.Flush()
}

// Retract implements exchange.Client.
func (c *conn) Retract() bool {
	if c.sent {
		return false
	}
	c.w.out = c.w.out[:0]
	return true
}

// Abort implements exchange.Client: the connection ends before the answer does.
func (c *conn) Abort() { c.broken = true }
