package upstream

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/socket"
)

// Conn's states.
const (
	connUsed int32 = iota
	connIdle
	connAborted // still the owner's to close
	connClosed
)

// Conn is a connection to an endpoint with a read buffer to parse in. One goroutine may read while another writes; Abort may be called
// by any.
type Conn struct {
	endpoint *Endpoint
	net      net.Conn // for reads and writes: tls.Conn or wire
	wire     net.Conn // the connection below TLS
	records  *records // between the two; nil in cleartext
	state    atomic.Int32
	stamp    uint32    // epoch of the last Put
	until    time.Time // when a certificate ends that it was made with; zero for never

	buf  *buffer // nil until needed
	r, w int

	given int64   // bytes that net gave, if records is set
	one   [1]byte // read by drain

	readBy, writeBy time.Time // the deadlines that are set on net

	raw   syscall.RawConn // nil if wire is no TCP connection
	peek  func(fd uintptr)
	alive bool // peek's result
	// unchecked: the connection is reused, and was not checked before it was handed out: the first write checks it.
	// Otherwise bytes that an endpoint sent after its last answer would be taken for the next one.
	unchecked bool

	swap   func(fd uintptr) bool // askStep, with TLS sealedStep; nil if neither can be used
	ask    []byte                // the bytes being written; nil for sealedStep once they were
	asked  int                   // how much of it was
	askErr error
}

// buffer is an entry of the pool.
type buffer struct{ b []byte }

func newConn(e *Endpoint, nc, wire net.Conn) *Conn {
	c := &Conn{endpoint: e, net: nc, wire: wire}
	if tc, ok := nc.(*tls.Conn); ok {
		c.records, _ = tc.NetConn().(*records)
	}
	if sc, ok := wire.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw = raw
			c.peek = func(fd uintptr) { c.alive = socket.Quiet(fd) }
			switch {
			case socket.CanPoll && nc == wire:
				c.swap = c.askStep
			case c.records != nil && c.records.io != nil:
				c.swap = c.sealedStep
			}
		}
	}
	return c
}

// Buffered returns the bytes read but not discarded. They alias the buffer and are valid until the next Fill, Grow, Put or Close;
// Discard leaves them in place.
func (c *Conn) Buffered() []byte {
	if c.buf == nil {
		return nil
	}
	return c.buf.b[c.r:c.w]
}

// Fill reads once, at least one byte, behind the buffered ones, moving these to the buffer's front if there is no room behind them. It
// returns ErrBufferFull without reading when they fill the whole buffer. io.EOF is the other side's end.
func (c *Conn) Fill() (n int, err error) {
	if c.buf == nil {
		c.buf = c.endpoint.set.buffers.Get().(*buffer)
	}
	b := c.buf.b
	if c.r == c.w {
		c.r, c.w = 0, 0
	} else if c.w == len(b) {
		if c.r == 0 {
			return 0, ErrBufferFull
		}
		c.w = copy(b, b[c.r:c.w])
		c.r = 0
	}
	n, err = c.net.Read(b[c.w:])
	c.w += n
	c.given += int64(n)
	if n > 0 {
		return n, nil // an error comes again with the next read
	}
	return 0, c.refusal(err)
}

// Discard drops the first n buffered bytes; n must not be more than there are.
func (c *Conn) Discard(n int) {
	if n < 0 || n > c.w-c.r {
		panic("upstream: Discard of more than is buffered")
	}
	c.r += n
}

// Grow doubles the buffer, up to limit bytes. It returns ErrBufferFull if it has that size already, ErrNoMemory if
// there is no memory for it. The connection loses the larger buffer when it is Put.
func (c *Conn) Grow(limit int) error {
	old := c.Buffered()
	size := c.endpoint.set.opt.ReadBuffer
	if c.buf != nil {
		size = len(c.buf.b)
	}
	if size >= limit {
		return ErrBufferFull
	}
	if !c.endpoint.set.draw(min(2*size, limit)) {
		return ErrNoMemory
	}
	larger := &buffer{make([]byte, min(2*size, limit))}
	n := copy(larger.b, old)
	c.release()
	c.buf, c.r, c.w = larger, 0, n
	return nil
}

// release gives the buffer away.
func (c *Conn) release() {
	if c.buf != nil && len(c.buf.b) == c.endpoint.set.opt.ReadBuffer {
		c.endpoint.set.buffers.Put(c.buf)
	} else if c.buf != nil {
		c.endpoint.set.give(len(c.buf.b))
	}
	c.buf, c.r, c.w = nil, 0, 0
}

// shrink gives a grown buffer away.
func (c *Conn) shrink() {
	if c.buf != nil && len(c.buf.b) != c.endpoint.set.opt.ReadBuffer {
		c.release()
	}
}

// Read gives the buffered bytes first and then reads straight into p, past the buffer: for bodies.
func (c *Conn) Read(p []byte) (n int, err error) {
	if c.r != c.w {
		n = copy(p, c.buf.b[c.r:c.w])
		c.r += n
		return n, nil
	}
	n, err = c.net.Read(p)
	c.given += int64(n)
	return n, c.refusal(err)
}

// refusal names a TLS alert. In TLS 1.3 a server that does not accept the client's certificate says so only after the
// handshake.
func (c *Conn) refusal(err error) error {
	if err == nil || c.net == c.wire || tlsReason(err) != TLSRefused {
		return err
	}
	return c.endpoint.tls.failure(c.endpoint.Address, TLSRefused, err)
}

// Write writes all of p or fails. It writes nothing to a reused connection if bytes or its end arrived while it was
// idle.
func (c *Conn) Write(p []byte) (n int, err error) {
	if c.unchecked {
		c.unchecked = false
		if !c.Alive() {
			return 0, errUnasked
		}
	}
	return c.net.Write(p)
}

// ReadBy sets the time by which reads must be done; zero means never. A read fails no earlier than t and no later than
// t+slack. The network's own deadline is set to t+slack, and further calls do not change it while it lies between their
// t and t+slack. So a busy connection with t always a minute ahead and a slack of a second touches its timer once a
// second. slack 0 is exact, with a timer each.
func (c *Conn) ReadBy(t time.Time, slack time.Duration) error {
	if within(c.readBy, t, slack) {
		return nil
	}
	if !t.IsZero() {
		t = t.Add(slack)
	}
	c.readBy = t
	return c.net.SetReadDeadline(t)
}

// WriteBy is ReadBy for writes. With TLS a write that fails by its deadline leaves the connection unusable.
func (c *Conn) WriteBy(t time.Time, slack time.Duration) error {
	if within(c.writeBy, t, slack) {
		return nil
	}
	if !t.IsZero() {
		t = t.Add(slack)
	}
	c.writeBy = t
	return c.wire.SetWriteDeadline(t)
}

// within is true if the deadline that is set will do for t.
func within(set, t time.Time, slack time.Duration) bool {
	if t.IsZero() || set.IsZero() {
		return t.IsZero() && set.IsZero()
	}
	d := set.Sub(t)
	return d >= 0 && d <= slack
}

// Alive is false if the other side has closed the idle connection or sent unexpected bytes. It checks without waiting
// (MSG_PEEK), and processes TLS's own messages. True is no guarantee: the close may be on its way.
func (c *Conn) Alive() bool {
	if c.r != c.w || !c.settled() {
		return false
	}
	if c.raw == nil {
		return true
	}
	c.alive = false
	if c.raw.Control(c.peek) != nil {
		return false
	}
	return c.alive || c.records != nil && c.drain(recordsNow)
}

// acknowledge has the system acknowledge the answer now, not with the next request. What the endpoint has written behind
// its answer, and its system holds back until then, arrives a round trip later and is found by the look before the next
// request.
func (c *Conn) acknowledge() {
	if c.raw != nil {
		c.raw.Control(socket.Acknowledge)
	}
}

// TCP is the connection below, for splicing, writev and socket options; nil if the connection is TLS, or not TCP. Read
// what is Buffered first, and do not set deadlines on it.
func (c *Conn) TCP() *net.TCPConn {
	tcp, _ := c.net.(*net.TCPConn)
	return tcp
}

// CloseWrite ends the writing side, as for a tunnel that was half closed.
func (c *Conn) CloseWrite() error {
	if h, ok := c.net.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

// Abort makes reads and writes under way fail, from any goroutine; the owner must still call Close.
func (c *Conn) Abort() {
	if c.state.CompareAndSwap(connUsed, connAborted) {
		c.wire.Close()
	}
}

// Reset is Abort in such a way that the endpoint sees an abnormal end, which it cannot take for the end of what was sent.
func (c *Conn) Reset() {
	if tcp, ok := c.wire.(*net.TCPConn); ok && c.state.Load() == connUsed {
		tcp.SetLinger(0)
	}
	c.Abort()
}

// Close closes the connection and ends its part of InFlight. Only its owner calls it, after its reads and writes
// returned; a second call does nothing. With TLS no close_notify is sent, since that could block.
func (c *Conn) Close() error { return c.close(c.wire) }

// closeGently is Close for a connection with nothing under way: with TLS the other side is notified.
func (c *Conn) closeGently() { c.close(c.net) }

func (c *Conn) close(nc net.Conn) error {
	was := c.state.Swap(connClosed)
	if was == connClosed {
		return nil
	}
	if was != connIdle {
		c.endpoint.leave()
	}
	err := nc.Close()
	c.release()
	e := c.endpoint
	e.set.open.Add(-1)
	e.mu.Lock()
	delete(e.open, c)
	e.mu.Unlock()
	return err
}
