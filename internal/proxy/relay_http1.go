package proxy

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/upstream"
)

// spliceFrom is the smallest rest of a body that is worth splicing, spliceMost how much goes between two looks at deadlines.
const (
	spliceFrom = 32 << 10
	spliceMost = 16 << 20
)

// relayHTTP1 passes the answer on from an HTTP/1.1 connection.
func (ex *exchange) relayHTTP1() error {
	c := ex.attempt.conn
	ex.endpoint.Answered(ex.resp.Status)
	if ex.resp.Status == http.StatusSwitchingProtocols || ex.req.method == http.MethodConnect && ex.resp.Status < 300 {
		return ex.tunnel(c)
	}
	err := ex.head()
	if err == nil {
		err = ex.relayBody(c)
	}
	if err != nil {
		ex.attempt.conn = nil
		if uerr := ex.stopUpload(); uerr != nil {
			err = uerr
		}
		c.Close()
		var f *failure
		if errors.As(err, &f) {
			return f
		}
		if !ex.attempt.unwatch() {
			return failClientClosed
		}
		return ex.brokenAnswer(unexpected(err))
	}
	if !ex.upload.running {
		// The connection is free before the client has its answer: the next exchange may find it.
		ex.release(c)
		return ex.client.end(ex.answerTrailers())
	}
	err = ex.client.end(ex.answerTrailers())
	ex.endUpload()
	ex.release(c)
	return err
}

// answerTrailers are those of a chunked answer, valid until the next answer is read.
func (ex *exchange) answerTrailers() []http1.Field {
	if ex.resp.Body.Kind != http1.BodyChunked {
		return nil
	}
	return ex.sentTrailers(ex.chunks.Trailers())
}

// release ends the exchange's use of the connection.
func (ex *exchange) release(c *upstream.Conn) {
	ex.attempt.conn = nil
	ex.putBack(c)
}

// putBack gives back a connection whose answer was read, if it can serve another exchange.
func (ex *exchange) putBack(c *upstream.Conn) {
	if ex.attempt.unwatch() && ex.resp.KeepAlive && !ex.upload.running && !ex.upload.stopped {
		ex.endpoint.Put(c)
		return
	}
	c.Close()
}

// relayBody passes the answer's body on. It leaves the end of the answer to its caller.
func (ex *exchange) relayBody(c *upstream.Conn) error {
	switch body := &ex.resp.Body; body.Kind {
	case http1.BodyLength:
		return ex.relayLength(c, body.Length)
	case http1.BodyChunked:
		return ex.relayChunks(c)
	case http1.BodyUntilClose:
		return ex.relayUntilClose(c)
	}
	return nil
}

func (ex *exchange) relayLength(c *upstream.Conn, left int64) error {
	b := c.Buffered()
	b = b[:min(int64(len(b)), left)]
	if len(b) > 0 {
		if err := ex.write(b); err != nil {
			return err
		}
		c.Discard(len(b))
		left -= int64(len(b))
	}
	if left == 0 {
		return nil
	}
	if left >= spliceFrom && ex.conn.tcp != nil && !ex.req.http2 && c.TCP() != nil {
		return ex.splice(c, left)
	}
	p := piecePool.Get().(*piece)
	defer piecePool.Put(p)
	var since time.Time
	ex.waitUntil(c, time.Now())
	for left > 0 {
		if err := ex.client.flush(); err != nil {
			return err
		}
		n, err := c.Read(p.b[:min(left, pieceSize)])
		if n > 0 {
			since = time.Time{}
			left -= int64(n)
			if err := ex.write(p.b[:n]); err != nil {
				return err
			}
			continue
		}
		if err = ex.stillWaiting(c, err, &since, ex.srv.opt.StreamTimeout); err != nil {
			return unexpected(err)
		}
	}
	return nil
}

// splice moves the rest of a body between two sockets without copying it through the process.
func (ex *exchange) splice(c *upstream.Conn, left int64) error {
	if err := ex.client.flush(); err != nil {
		return err
	}
	k := ex.conn
	limit := ex.srv.opt.StreamTimeout
	k.guard.start(k)
	defer k.guard.stop()
	var since time.Time
	for left > 0 {
		now := time.Now()
		ex.waitUntil(c, now)
		k.writeUntil(now.Add(limit), limit/4)
		ex.limited.R, ex.limited.N = c.TCP(), min(left, spliceMost)
		n, err := k.tcp.ReadFrom(&ex.limited)
		left -= n
		ex.out += n
		if err != nil && k.guard.tripped() {
			return writeFailure(err)
		}
		switch {
		case n > 0 && (err == nil || isTimeout(err)):
			since = time.Time{}
			if ex.expired() {
				return ex.attempt.expired
			}
		case err == nil:
			return io.ErrUnexpectedEOF
		case isTimeout(err) && time.Now().Before(k.writeBy):
			if err := ex.stillWaiting(c, err, &since, limit); err != nil {
				return err
			}
		case isTimeout(err) || k.gone():
			return writeFailure(err)
		default:
			return err
		}
	}
	return nil
}

func (ex *exchange) relayChunks(c *upstream.Conn) error {
	r := &ex.chunks
	r.Reset()
	for {
		b := c.Buffered()
		if len(b) == 0 {
			if err := ex.client.flush(); err != nil {
				return err
			}
			if err := ex.fill(c, ex.srv.opt.StreamTimeout); err != nil {
				return unexpected(err)
			}
			continue
		}
		data, n, done, err := r.Next(b)
		if err != nil {
			return err
		}
		if len(data) > 0 {
			if err := ex.write(data); err != nil {
				return err
			}
		}
		c.Discard(n)
		if done {
			return nil
		}
	}
}

func (ex *exchange) relayUntilClose(c *upstream.Conn) error {
	for {
		if b := c.Buffered(); len(b) > 0 {
			if err := ex.write(b); err != nil {
				return err
			}
			c.Discard(len(b))
		}
		if err := ex.client.flush(); err != nil {
			return err
		}
		if err := ex.fill(c, ex.srv.opt.StreamTimeout); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// write gives the client a piece of the answer's body.
func (ex *exchange) write(p []byte) error {
	ex.out += int64(len(p))
	return ex.client.write(p)
}
