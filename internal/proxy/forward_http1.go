package proxy

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

const (
	// look is how often an exchange that waits for its endpoint looks whether the client is still there.
	look = time.Second
	// joinBody is the largest known body that is copied behind its head to go out in one write.
	joinBody = 32 << 10
	// maxInterim bounds the interim answers of one exchange.
	maxInterim = 32
)

// tryHTTP1 sends the request over a connection to e and reads the answer's head into ex.resp. With a nil error ex.attempt.conn is the
// connection, with the answer's body next in it. A reused connection that died before a byte of the answer came is replaced by a new one, once,
// if nothing of the request was sent, or if it may be repeated.
func (ex *exchange) tryHTTP1(e *upstream.Endpoint) error {
	a := &ex.attempt
	for dial := false; ; dial = true {
		var c *upstream.Conn
		var reused bool
		var err error
		switch {
		case e.Announces():
			c, err = e.DialFor(a.connectDeadline(), ex.addresses())
		case dial:
			c, err = e.Dial(a.connectDeadline())
		default:
			c, reused, err = e.Get(a.connectDeadline())
		}
		if err != nil {
			if ex.expired() {
				return a.expired
			}
			return connectFailure(err)
		}
		a.conn = c
		ex.abortWithClient(c)
		err = ex.sendHTTP1(c)
		if err == nil || !ex.serialized && ex.upload.failed == nil {
			// A backend may have answered before it closed the connection.
			if herr := ex.awaitHead(c); herr == nil {
				if err != nil {
					ex.upload.stopped = true // what follows on the connection would be the rest of this request
				}
				return nil
			} else if err == nil {
				err = herr
			}
		}
		if uerr := ex.stopUpload(); uerr != nil {
			err = uerr
		}
		ex.resp.Reset() // a head may have broken off
		silent := len(c.Buffered()) == 0 && !a.informed
		a.conn = nil
		c.Close()
		var f *failure
		if !errors.As(err, &f) {
			f = streamFailure(err)
		}
		if !a.unwatch() {
			return failClientClosed
		}
		if f.reason == telemetry.BackendReset && silent && reused {
			if idempotent(ex.req.method) && ex.complete {
				ex.serialized = true // all of it is in wire still
			}
			if ex.serialized || ex.replayable() && idempotent(ex.req.method) {
				ex.rewind()
				continue
			}
			return f
		}
		if endpointFault(f) {
			e.Failed()
		}
		return f
	}
}

// abortWithClient aborts a when the client of an HTTP/2 stream leaves.
func (ex *exchange) abortWithClient(a http2.Aborter) {
	if s, ok := ex.client.(*stream); ok {
		ex.attempt.watched = s.s
		s.s.Watch(a)
	}
}

// idempotent is RFC 9110 §9.2.2.
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// expired is true once the attempt's time is over.
func (ex *exchange) expired() bool {
	return !ex.attempt.deadline.IsZero() && !time.Now().Before(ex.attempt.deadline)
}

// sendHTTP1 writes the request: the head and what is in memory of the body at once; the rest is left to an upload. ex.serialized afterwards
// means that c has taken nothing of it.
func (ex *exchange) sendHTTP1(c *upstream.Conn) error {
	a := &ex.attempt
	ex.upload.stopped = false
	if !ex.serialized {
		if err := ex.serialize(); err != nil {
			ex.upload.failed = err
			return err
		}
	}
	limit := ex.srv.opt.StreamTimeout
	c.WriteBy(a.start.Add(limit), limit/4)
	ex.waitUntil(c, a.start)
	buf, rest := ex.wire, ex.rest
	if ex.complete && rest == nil && (len(ex.picked) == 0 || ex.copied) {
		// Nothing is left to do until the answer comes. Why reading failed is found out again by the next read.
		n, err := c.Ask(buf)
		ex.serialized = n == 0 && err != nil
		if n < len(buf) {
			return err
		}
		return nil
	}
	n, err := c.Write(buf)
	ex.serialized = n == 0 && err != nil
	if err == nil && rest != nil {
		_, err = c.Write(rest)
	}
	ex.beginCopies() // after the write, so that they do not keep the primary waiting
	if err != nil {
		return err
	}
	if !ex.complete {
		ex.upload.conn = c
		ex.startUpload()
	}
	return nil
}

// serialize makes ex.wire of the head and what is in memory of the body. Until a connection has taken some of it, it can be sent over any.
func (ex *exchange) serialize() error {
	buf := ex.appendRequest(ex.wire[:0])
	ex.complete, ex.rest = ex.whole, nil
	switch ex.req.body.Kind {
	case http1.BodyLength:
		if len(ex.body) <= joinBody {
			buf = append(buf, ex.body...)
		} else {
			ex.rest = ex.body
		}
	case http1.BodyChunked:
		ex.beginCopies()
		if len(ex.body) > 0 {
			buf = http1.AppendChunk(buf, ex.body)
		}
		if ex.complete {
			buf = http1.AppendLastChunk(buf, ex.requestTrailers())
		}
		for !ex.complete && len(buf) < joinBody && ex.client.ready() {
			p, err := ex.next()
			if err == io.EOF {
				buf = http1.AppendLastChunk(buf, ex.requestTrailers())
				ex.complete = true
				break
			}
			if err != nil {
				return err
			}
			buf = http1.AppendChunk(buf, p)
		}
	}
	ex.wire, ex.serialized = buf, true
	return nil
}

// appendRequest serialises the head.
func (ex *exchange) appendRequest(dst []byte) []byte {
	r := &ex.req
	dst = http1.AppendRequestLine(dst, r.method, ex.target)
	dst = http1.AppendField(dst, "Host", ex.authority)
	for i := range ex.fields {
		dst = http1.AppendField(dst, ex.fields[i].Name, ex.fields[i].Value)
	}
	dst = http1.AppendBody(dst, r.body)
	if r.expect100 {
		dst = append(dst, "Expect: 100-continue\r\n"...)
	}
	if r.upgrade != "" {
		dst = append(dst, "Connection: Upgrade\r\n"...)
		dst = http1.AppendField(dst, "Upgrade", r.upgrade)
	}
	return http1.AppendEnd(dst)
}

// waitUntil sets the deadline of the next reads: the next look after the client, or the attempt's end if that comes first.
func (ex *exchange) waitUntil(c *upstream.Conn, now time.Time) {
	t, slack := now.Add(look), look
	if d := ex.attempt.deadline; !d.IsZero() && d.Before(t.Add(slack)) {
		if t = d; d.Sub(now) < look {
			slack = d.Sub(now) / 16
		} else {
			slack = look / 16
		}
	}
	c.ReadBy(t, slack)
}

// fill reads more of the answer; silence is how long the endpoint may say nothing.
func (ex *exchange) fill(c *upstream.Conn, silence time.Duration) error {
	var since time.Time
	for {
		n, err := c.Fill()
		if n > 0 || err == nil {
			return nil
		}
		if err = ex.stillWaiting(c, err, &since, silence); err != nil {
			return err
		}
	}
}

// stillWaiting judges a read that failed: nil if it was only time for a look, and all is well.
func (ex *exchange) stillWaiting(c *upstream.Conn, err error, since *time.Time, silence time.Duration) error {
	if !isTimeout(err) {
		return err
	}
	now := time.Now()
	if err := ex.stillWanted(now, since, silence); err != nil {
		return err
	}
	ex.waitUntil(c, now)
	return nil
}

// stillWanted says why an answer is not to be waited for any longer, nil if it is. since is when the endpoint was last heard or sent to.
func (ex *exchange) stillWanted(now time.Time, since *time.Time, silence time.Duration) error {
	a := &ex.attempt
	if !a.deadline.IsZero() && !now.Before(a.deadline) {
		return a.expired
	}
	if ex.pollUpload(); ex.upload.running && !ex.waitsToBegin() {
		*since = now // an endpoint may be silent while it is sent to
	} else if since.IsZero() {
		*since = now.Add(-look)
	}
	if now.Sub(*since) >= silence {
		return failBackendTime
	}
	if ex.client.gone() {
		return failClientClosed
	}
	return nil
}

// waitsToBegin is true while the client may be waiting for the endpoint's leave to send its body.
func (ex *exchange) waitsToBegin() bool {
	c, ok := ex.client.(interface{ waitsToBegin() bool })
	return ok && c.waitsToBegin()
}

// awaitHead reads the head of the final answer; interim ones are passed on.
func (ex *exchange) awaitHead(c *upstream.Conn) error {
	for interim := 0; ; {
		if b := c.Buffered(); len(b) > 0 {
			n, err := ex.resp.Parse(b, ex.srv.opt.Limits, ex.req.method)
			if err != nil {
				return err
			}
			if n > 0 {
				c.Discard(n)
				s := ex.resp.Status
				if s >= 200 || s == http.StatusSwitchingProtocols && http1.Within(ex.resp.Upgrade, ex.req.upgrade) {
					return nil // to nothing but what the client offered (RFC 9110 §7.8)
				}
				if interim++; s == http.StatusSwitchingProtocols || interim > maxInterim {
					return errUnasked
				}
				if err := ex.inform(); err != nil {
					return err
				}
				continue
			}
		}
		err := ex.fill(c, ex.srv.opt.ResponseTimeout)
		if err == upstream.ErrBufferFull {
			err = c.Grow(ex.srv.opt.Limits.Head)
		}
		if err != nil {
			return unexpected(err)
		}
	}
}

var errUnasked = &failure{status: 502, reason: telemetry.MalformedResponse, detail: "the backend answered what was not asked"}

// inform passes an interim answer on.
func (ex *exchange) inform() error {
	ex.attempt.informed = true
	n := 0
	all := ex.resp.Fields
	for i := range all {
		if f := &all[i]; f.ID != http1.FieldContentLength && !http1.HopByHop(f, all) {
			all[n] = *f
			n++
		}
	}
	return ex.client.inform(ex.resp.Status, all[:n])
}
