package proxy

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/pace"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/upstream"
)

// pieceSize is how much of a body is moved at once.
const pieceSize = 64 << 10

type piece struct{ b [pieceSize]byte }

var piecePool = sync.Pool{New: func() any { return new(piece) }}

// bodyReader reads the body of an HTTP/1.1 request. The body's beginning may be in the read buffer behind the head. The
// rest goes into a separate buffer, so that the head stays in place.
type bodyReader struct {
	kind        http1.BodyKind
	left        int64 // bytes left of a body of known length
	chunks      http1.ChunkReader
	done        bool
	err         error
	stream      bool        // the client may pause as long as it likes
	continued   atomic.Bool // the client was told to continue
	interrupted atomic.Bool // reading is paused
	pace        pace.Pace   // of the client
	begun       atomic.Bool // bytes were read beyond the ones that came with the head
	own         *piece
	r, n        int // own.b[r:n] was read and not consumed
}

func (b *bodyReader) reset(body http1.Body) {
	b.kind, b.left = body.Kind, body.Length
	b.done = body.Kind == http1.BodyNone || body.Kind == http1.BodyLength && body.Length == 0
	b.err = nil
	b.pace = pace.Pace{}
	b.begun.Store(false)
	b.continued.Store(false)
	b.interrupted.Store(false)
	if body.Kind == http1.BodyChunked {
		b.chunks.Reset()
	}
}

// finished is true if the body was read to its end.
func (b *bodyReader) finished() bool { return b.done }

// skip drops a body that is completely in the read buffer. It returns false if more of the body is to come.
func (b *bodyReader) skip(w *work) bool {
	if b.err != nil || b.own != nil {
		return false
	}
	if b.kind == http1.BodyLength {
		if int64(w.n-w.r) < b.left {
			return false
		}
		w.r += int(b.left)
		b.left, b.done = 0, true
		return true
	}
	for w.r < w.n {
		_, n, done, err := b.chunks.Next(w.rbuf[w.r:w.n])
		w.r += n
		if b.done = done; done || err != nil {
			return done
		}
	}
	return false
}

// Buffered implements exchange.Client.
func (c *conn) Buffered() []byte {
	b, w := &c.in, c.w
	if b.kind != http1.BodyLength {
		return nil
	}
	n := int(min(b.left, int64(w.n-w.r)))
	p := w.rbuf[w.r : w.r+n]
	w.r += n
	b.left -= int64(n)
	b.done = b.left == 0
	return p
}

// Ready implements exchange.Client.
func (c *conn) Ready() bool {
	return c.in.done || c.w.r < c.w.n || c.in.r < c.in.n
}

// Next implements exchange.Client.
func (c *conn) Next() ([]byte, error) {
	b := &c.in
	for {
		if b.done {
			return nil, io.EOF
		}
		if b.err != nil {
			return nil, b.err
		}
		src, w := []byte(nil), c.w
		own := w.r == w.n
		if own {
			if b.r == b.n {
				if err := c.fillBody(); err != nil {
					b.err = err
					return nil, err
				}
			}
			src = b.own.b[b.r:b.n]
		} else {
			src = w.rbuf[w.r:w.n]
		}
		data, used := src, len(src)
		if b.kind == http1.BodyLength {
			if int64(len(data)) > b.left {
				data = data[:b.left]
				used = len(data)
			}
			b.left -= int64(len(data))
			b.done = b.left == 0
		} else {
			var err error
			if data, used, b.done, err = b.chunks.Next(src); err != nil {
				b.err = exchange.BodyFailure(err)
				return nil, b.err
			}
		}
		if own {
			b.r += used
		} else {
			w.r += used
		}
		if len(data) > 0 {
			return data, nil
		}
	}
}

// fillBody reads more of the body.
func (c *conn) fillBody() error {
	b := &c.in
	if b.own == nil {
		b.own = piecePool.Get().(*piece)
	}
	p := b.own.b[:]
	if b.kind == http1.BodyLength {
		p = p[:min(int64(len(p)), b.left)]
	}
	m := c.srv.minPace
	var since time.Time // of the wait, which continues after a look at the pace
	for {
		start := time.Now()
		if since.IsZero() {
			since = start
		}
		limit := c.srv.opt.StreamTimeout - start.Sub(since)
		due := c.bodyDue()
		if due {
			if limit = b.pace.Left(m, limit); m.Rate > 0 {
				limit = min(limit, m.LookAfter())
			}
		}
		c.readUntil(start.Add(limit), limit/4)
		if c.in.interrupted.Load() {
			return exchange.FailInterrupted
		}
		n, err := c.nc.Read(p)
		b.r, b.n = 0, n
		if due = due && c.bodyDue(); due {
			b.pace.Waited(m, time.Since(start), int64(n))
		}
		if n > 0 {
			b.begun.Store(true)
			return nil
		}
		if c.in.interrupted.Load() {
			return exchange.FailInterrupted
		}
		waited := time.Since(since)
		if !upstream.IsTimeout(err) || waited >= c.srv.opt.StreamTimeout || due && b.pace.Left(m, waited+1) <= 0 {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return exchange.BodyFailure(err)
		}
		c.readBy = time.Time{} // only time to look whether the body is due, and at its pace
		if !due {
			since = time.Time{}
		}
	}
}

// bodyDue is true while the client must send its body without pauses. The client may pause while it waits for 100
// (Continue), and in streams. Streams are gRPC, and bodies of unknown length once the answer has begun, because then
// both sides may wait for each other.
func (c *conn) bodyDue() bool {
	b := &c.in
	return !b.stream && !c.WaitsToBegin() && (b.kind == http1.BodyLength || !c.answering.Load())
}

// Trailers implements exchange.Client.
func (c *conn) Trailers() []http1.Field {
	if c.in.kind != http1.BodyChunked {
		return nil
	}
	return c.in.chunks.Trailers()
}

// Interrupt implements exchange.Client. fillBody sets its deadline before it checks the flag, so that either the
// deadline or the flag takes effect.
func (c *conn) Interrupt() {
	c.in.interrupted.Store(true)
	c.sock.SetReadDeadline(socket.LongAgo)
}

// Resume implements exchange.Client.
func (c *conn) Resume() {
	if !c.in.interrupted.Load() {
		return
	}
	c.in.interrupted.Store(false)
	c.readBy = socket.LongAgo // interrupt may have set it
	if c.in.err == exchange.FailInterrupted {
		c.in.err = nil
	}
}

// reclaim frees the body's buffer. Bytes of the next request move from it to the read buffer.
func (c *conn) reclaim() {
	b, w := &c.in, c.w
	if rest := b.own.b[b.r:b.n]; len(rest) > 0 && !c.closing {
		w.r, w.n = 0, 0 // already consumed; rest counts on that
		if len(rest) > len(w.rbuf) {
			c.force(int64(pieceSize - grown(w.rbuf)))
			w.rbuf = make([]byte, pieceSize)
		}
		w.n = copy(w.rbuf, rest)
	}
	piecePool.Put(b.own)
	b.own, b.r, b.n = nil, 0, 0
}
