package upstream

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/http1"
)

// pieceSize is how much of a long body is read at once, past the connection's buffer.
const pieceSize = 64 << 10

type piece struct{ b [pieceSize]byte }

var piecePool = sync.Pool{New: func() any { return new(piece) }}

// spliceFrom is the smallest rest of a body, in bytes, that is worth splicing.
const spliceFrom = 32 << 10

// appendHead serialises the request's head.
func (c *Call) appendHead(dst []byte) []byte {
	r := &c.Request
	dst = http1.AppendRequestLine(dst, r.Method, r.Target)
	dst = http1.AppendField(dst, "Host", r.Authority)
	for i := range r.Fields {
		dst = http1.AppendField(dst, r.Fields[i].Name, r.Fields[i].Value)
	}
	dst = http1.AppendBody(dst, r.Body)
	if r.Expect100 {
		dst = append(dst, "Expect: 100-continue\r\n"...)
	}
	if r.Upgrade != "" {
		dst = append(dst, "Connection: Upgrade\r\n"...)
		dst = http1.AppendField(dst, "Upgrade", r.Upgrade)
	}
	return http1.AppendEnd(dst)
}

func (c *Call) openHTTP1(wait *Waiting) (err error) {
	e := c.endpoint
	c.reused = false
	switch {
	case e.Announces():
		c.conn, err = e.DialFor(wait.Until, wait.From)
	case c.try > 1:
		c.conn, err = e.Dial(wait.Until)
	default:
		c.conn, c.reused, err = e.get(wait.Until, wait.Briefly)
	}
	wait.Waited = !c.reused
	return err
}

func (c *Call) sendHTTP1(await bool) error {
	k := c.conn
	k.WriteBy(c.now.Add(c.Stall), c.Stall/4)
	c.await(c.now)
	if await && c.Asks() {
		// Why reading failed is found out again by the next read.
		n, err := k.Ask(c.wire)
		c.unsent = n == 0 && err != nil
		if c.sent = n == len(c.wire); !c.sent {
			return err
		}
		return nil
	}
	n, err := k.Write(c.wire)
	c.unsent = n == 0 && err != nil
	if err == nil && c.rest != nil {
		_, err = k.Write(c.rest)
	}
	c.sent = err == nil && c.whole
	return err
}

func (c *Call) writeHTTP1(p []byte, more bool) error {
	if c.Request.Body.Kind == http1.BodyChunked {
		if len(p) > 0 {
			c.gather()
			c.wire = http1.AppendChunk(c.wire, p)
		}
		if more && c.gathers && len(c.wire) < JoinBody {
			return nil
		}
		p = c.gathered()
	}
	return c.put(p)
}

func (c *Call) finishHTTP1(trailers []http1.Field) error {
	if c.Request.Body.Kind != http1.BodyChunked {
		return nil
	}
	c.gather()
	c.wire = http1.AppendLastChunk(c.wire, trailers)
	return c.put(c.gathered())
}

func (c *Call) put(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	c.conn.WriteBy(time.Now().Add(c.Stall), c.Stall/4)
	_, err := c.conn.Write(p)
	return err
}

// await sets until when reading waits: until the next look, or the deadline if that comes first.
func (c *Call) await(now time.Time) {
	t, slack := now.Add(c.Look), c.Look
	if d := c.Deadline; c.Look == 0 {
		if t = d; !d.IsZero() {
			slack = max(d.Sub(now), 0) / 16
		}
	} else if !d.IsZero() && d.Before(t.Add(slack)) {
		if t = d; d.Sub(now) < c.Look {
			slack = d.Sub(now) / 16
		} else {
			slack = c.Look / 16
		}
	}
	c.conn.ReadBy(t, slack)
}

// waits sets the deadline anew if it has passed.
func (c *Call) waits() {
	if c.looked {
		c.looked = false
		c.await(time.Now())
	}
}

// failed translates an error of reading.
func (c *Call) failed(err error) error {
	switch {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case errors.Is(err, net.ErrClosed):
		return ErrAborted
	case IsTimeout(err):
		c.looked = true
		return ErrTimeout
	}
	return err
}

func (c *Call) headHTTP1(r *http1.Response) error {
	k := c.conn
	for {
		if b := k.Buffered(); len(b) > 0 {
			n, err := r.Parse(b, c.Limits, c.Request.Method)
			if err != nil {
				return err
			}
			if n > 0 {
				k.Discard(n)
				return c.headCame(r)
			}
		}
		c.waits()
		_, err := k.Fill()
		if err == ErrBufferFull {
			err = k.Grow(cmp.Or(c.Limits.Head, http1.DefaultHead))
		}
		if err != nil {
			return c.failed(err)
		}
	}
}

func (c *Call) headCame(r *http1.Response) error {
	c.heard = true
	if r.Status >= 200 || r.Status == http.StatusSwitchingProtocols && http1.Within(r.Upgrade, c.Request.Upgrade) {
		// Only to an offered protocol (RFC 9110 §7.8).
		c.body, c.persist = r.Body, r.KeepAlive
		c.done = r.Body.Kind == http1.BodyNone || r.Body.Kind == http1.BodyLength && r.Body.Length == 0
		if r.Body.Kind == http1.BodyChunked {
			c.chunks.Reset()
		}
		return nil
	}
	if c.interims++; r.Status == http.StatusSwitchingProtocols || c.interims > maxInterim {
		return ErrInterim
	}
	return nil
}

func (c *Call) nextHTTP1() ([]byte, error) {
	if c.done {
		return nil, io.EOF
	}
	k := c.conn
	b := k.Buffered()
	if len(b) == 0 {
		if c.body.Kind == http1.BodyLength {
			return c.readPiece()
		}
		c.waits()
		_, err := k.Fill()
		if err == io.EOF && c.body.Kind == http1.BodyUntilClose {
			c.done = true
			return nil, io.EOF
		}
		if err != nil {
			return nil, c.failed(err)
		}
		b = k.Buffered()
	}
	switch c.body.Kind {
	case http1.BodyLength:
		b = b[:min(int64(len(b)), c.body.Length)]
		c.body.Length -= int64(len(b))
		c.done = c.body.Length == 0
	case http1.BodyChunked:
		data, n, done, err := c.chunks.Next(b)
		if err != nil {
			return nil, err
		}
		k.Discard(n)
		c.done = done
		return data, nil
	}
	k.Discard(len(b))
	return b, nil
}

// readPiece reads more of a body of known length, past the connection's buffer.
func (c *Call) readPiece() ([]byte, error) {
	if c.piece == nil {
		c.piece = piecePool.Get().(*piece)
	}
	c.waits()
	n, err := c.conn.Read(c.piece.b[:min(c.body.Length, pieceSize)])
	if n == 0 && err != nil {
		return nil, c.failed(err)
	}
	c.body.Length -= int64(n)
	c.done = c.body.Length == 0
	return c.piece.b[:n], nil
}

// Left is how much of the body of known length is still to come, over HTTP/1.1.
func (c *Call) Left() int64 { return c.body.Length }

// Splices is true if the rest of the answer's body can be spliced, and is large enough. Take what is Ready first.
func (c *Call) Splices() bool {
	return c.conn != nil && c.body.Kind == http1.BodyLength && c.body.Length >= spliceFrom && c.conn.TCP() != nil
}

// Splice has to read the next bytes of the answer's body from the endpoint's socket, at most most of them: between
// sockets they are moved without being copied through the process. n is how many were moved, err the error of either
// side; a timeout of the endpoint's is as with Next.
func (c *Call) Splice(to io.ReaderFrom, most int64, now time.Time) (n int64, err error) {
	c.looked = false
	c.await(now)
	c.limited.R, c.limited.N = c.conn.TCP(), min(c.body.Length, most)
	n, err = to.ReadFrom(&c.limited)
	c.limited.R = nil
	c.body.Length -= n
	c.done = c.body.Length == 0
	return n, err
}

// Stale is true if err is the end of a connection that had been idle, without a byte of an answer. This says nothing
// about the endpoint. Call it before Close.
func (c *Call) Stale(err error) bool { return c.Reused() && c.Unanswered(err) }
