package upstream

import (
	"net"
	"time"
)

// Conn is a connection to an endpoint with a read buffer to parse in. One goroutine may read while another writes; Abort may be called
// by any.
type Conn struct{}

// Endpoint is where the connection leads.
func (c *Conn) Endpoint() *Endpoint { return nil }

// Buffered returns the bytes read but not discarded. They alias the buffer and are valid until the next Fill, Grow, Put or Close;
// Discard leaves them in place.
func (c *Conn) Buffered() []byte { return nil }

// Fill reads once, at least one byte, behind the buffered ones, moving these to the buffer's front if there is no room behind them. It returns
// ErrBufferFull without reading when they fill the whole buffer. io.EOF is the other side's end. n may be positive only when err is nil.
func (c *Conn) Fill() (n int, err error) { return 0, nil }

// Discard drops the first n buffered bytes; n must not be more than there are.
func (c *Conn) Discard(n int) {}

// Grow doubles the buffer, up to limit bytes; ErrBufferFull if it has that size already. The connection gives the larger buffer back
// when it is Put.
func (c *Conn) Grow(limit int) error { return nil }

// Read gives the buffered bytes first and then reads straight into p, past the buffer: for bodies.
func (c *Conn) Read(p []byte) (n int, err error) { return 0, nil }

// Write writes p whole or fails.
func (c *Conn) Write(p []byte) (n int, err error) { return 0, nil }

// ReadBy sets the time by which reads must be done; zero means never. A read fails no earlier than t and no later than t+slack: the
// network's own deadline is set to t+slack and left alone by further calls as long as it lies between their t and t+slack. So a busy
// connection with t always a minute ahead and a slack of a second touches its timer once a second. slack 0 is exact, and a timer each.
func (c *Conn) ReadBy(t time.Time, slack time.Duration) error { return nil }

// WriteBy is ReadBy for writes.
func (c *Conn) WriteBy(t time.Time, slack time.Duration) error { return nil }

// Alive is false if the other side has closed the idle connection or sent something unasked. It looks without waiting (MSG_PEEK). True is
// no promise: the close may be on its way.
func (c *Conn) Alive() bool { return true }

// TCP is the connection below, for splicing, writev and socket options; nil if the connection is TLS (or no TCP). Read what is Buffered first, and
// do not set deadlines on it.
func (c *Conn) TCP() *net.TCPConn { return nil }

// CloseWrite ends the writing side, as for a tunnel that was half closed.
func (c *Conn) CloseWrite() error { return nil }

// Abort makes reads and writes under way fail, from any goroutine; the owner still has to Close.
func (c *Conn) Abort() {}

// Close closes the connection and ends its part of InFlight. Only its owner calls it, after its reads and writes returned; a second call
// does nothing.
func (c *Conn) Close() error { return nil }
