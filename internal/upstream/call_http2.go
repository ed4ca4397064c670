package upstream

import (
	"errors"
	"io"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
)

func (c *Call) openHTTP2(wait *Waiting) error {
	h, r := &c.head, &c.Request
	h.Method, h.Scheme, h.Authority, h.Path, h.Body, h.Fields = r.Method, "http", r.Authority, r.Target, r.Body, r.Fields
	if c.endpoint.tls != nil {
		h.Scheme = "https"
	}
	data := c.rest
	if len(c.wire) > 0 {
		data = c.wire
	}
	whole := c.whole && len(c.trailers) == 0
	s, n, err := c.endpoint.Open(h, data, whole, wait)
	if err != nil {
		return err
	}
	c.stream, c.rest, c.unsent = s, data[n:], false
	c.sent = whole && n == len(data)
	return nil
}

func (c *Call) sendHTTP2() error {
	if c.whole && len(c.rest) == 0 && len(c.trailers) > 0 {
		c.stream.SendTrailers(c.trailers) // a failure shows when the answer is read
		c.sent = true
	}
	return nil
}

func (c *Call) writeHTTP2(p []byte, more bool) error {
	if rest := c.rest; len(rest) > 0 {
		c.rest = nil
		if err := c.stream.Send(rest, false); err != nil {
			return err
		}
	}
	if more || c.gathers {
		c.gather()
		c.wire = append(c.wire, p...)
		if more && len(c.wire) < JoinBody {
			return nil
		}
		p = c.gathered()
	}
	if len(p) == 0 {
		return nil
	}
	return c.stream.Send(p, false)
}

func (c *Call) finishHTTP2(trailers []http1.Field) error {
	p := c.rest
	if c.rest = nil; c.gathers {
		p = c.gathered()
	}
	return c.stream.Finish(nil, p, trailers)
}

// lookAt is until when to wait for the endpoint: at the deadline, else after a while that http2 needs no timer for.
func (c *Call) lookAt(now time.Time) time.Time {
	d := c.Deadline
	switch {
	case c.Look == 0:
		return d
	case d.IsZero() || d.Sub(now) > 3*c.Look:
		return now.Add(2 * c.Look)
	}
	if t := now.Add(c.Look - c.Look/16); t.Before(d) {
		return t
	}
	return d
}

func (c *Call) headHTTP2(r *http1.Response) error {
	h, err := c.stream.AwaitHead(c.lookAt(c.now))
	if err != nil {
		if err == ErrTimeout {
			c.now = time.Now()
		}
		return err
	}
	c.heard = true
	r.Reset()
	r.Status, r.KeepAlive, r.Body = h.Status, true, h.Body
	r.Fields = append(r.Fields, h.Fields...)
	return nil
}

func (c *Call) nextHTTP2() ([]byte, error) {
	var until time.Time
	if !c.ready {
		until = c.lookAt(time.Now())
	}
	c.ready = false
	p, err := c.stream.Next(until)
	c.done = err == io.EOF
	return p, err
}

func (c *Call) againHTTP2(err error, idempotent bool) bool {
	var se *http2.StreamError
	var ce *http2.ConnError
	switch {
	case errors.As(err, &se) && se.Code == http2.RefusedStream:
		return c.try == 1
	case http2.Unprocessed(err):
		return c.try < maxTries
	case errors.As(err, &ce):
		return c.try == 1 && c.stream.ID() > 1 && idempotent
	}
	return false
}
