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
// if the request may be repeated or cannot have arrived.
func (ex *exchange) tryHTTP1(e *upstream.Endpoint) error {
	a := &ex.attempt
	repeat := ex.replayable() && idempotent(ex.req.method)
	for dial := false; ; dial = true {
		var c *upstream.Conn
		var reused bool
		var err error
		switch {
		case dial:
			c, err = e.Dial(a.deadline)
		case repeat:
			c, reused, err = e.Get(a.deadline)
		default:
			c, reused, err = e.GetAlive(a.deadline)
		}
		if err != nil {
			if ex.late() {
				return a.late
			}
			return connectFailure(err)
		}
		a.conn, a.unsent = c, false
		ex.abortWithClient(c)
		err = ex.sendHTTP1(c)
		if err == nil || !a.unsent && ex.upload.failed == nil {
			// A backend may have answered before it closed the connection.
			if herr := ex.awaitHead(c); herr == nil {
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
			if ex.replayable() && (repeat || a.unsent) {
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

// late is true once the attempt's time is over.
func (ex *exchange) late() bool {
	return !ex.attempt.deadline.IsZero() && !time.Now().Before(ex.attempt.deadline)
}

// sendHTTP1 writes the request: the head and what is in memory of the body at once; the rest is left to an upload.
func (ex *exchange) sendHTTP1(c *upstream.Conn) error {
	a := &ex.attempt
	limit := ex.srv.opt.StreamTimeout
	c.WriteBy(a.start.Add(limit), limit/4)
	ex.waitUntil(c, a.start)
	buf := ex.appendRequest(ex.wire[:0])
	complete := ex.whole
	var rest []byte
	switch ex.req.body.Kind {
	case http1.BodyLength:
		if len(ex.body) <= joinBody {
			buf = append(buf, ex.body...)
		} else {
			rest = ex.body
		}
	case http1.BodyChunked:
		ex.beginCopies()
		if len(ex.body) > 0 {
			buf = http1.AppendChunk(buf, ex.body)
		}
		if complete {
			buf = http1.AppendLastChunk(buf, ex.client.trailers())
		}
		for !complete && len(buf) < joinBody && ex.client.ready() {
			p, err := ex.next()
			if err == io.EOF {
				buf = http1.AppendLastChunk(buf, ex.client.trailers())
				complete = true
				break
			}
			if err != nil {
				ex.upload.failed = err
				return err
			}
			buf = http1.AppendChunk(buf, p)
		}
	}
	ex.wire = buf
	if complete && rest == nil && (len(ex.picked) == 0 || ex.copied) {
		// Nothing is left to do until the answer comes. Why reading failed is found out again by the next read.
		n, err := c.Ask(buf)
		a.unsent = n == 0 && err != nil
		if n < len(buf) {
			return err
		}
		return nil
	}
	n, err := c.Write(buf)
	a.unsent = n == 0 && err != nil
	if err == nil && rest != nil {
		_, err = c.Write(rest)
	}
	ex.beginCopies() // after the write, so that they do not keep the primary waiting
	if err != nil {
		return err
	}
	if !complete {
		ex.upload.conn = c
		ex.startUpload()
	}
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
		return a.late
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
				if s >= 200 || s == http.StatusSwitchingProtocols && ex.req.upgrade != "" && ex.resp.Upgrade != "" {
					return nil
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
