package http2

import "net"

// Conn is a connection. Its methods may be called by any goroutine.
type Conn struct{}

// NewServer makes the server's side of nc, whose streams serve is called with, each in a goroutine of its own. The stream is gone when
// serve returns: an answer that is not complete is broken off.
func NewServer(nc net.Conn, cfg Config, serve func(*Stream)) *Conn { panic("not yet") }

// NewClient makes the client's side of nc. Preface and settings are sent at once by Run.
func NewClient(nc net.Conn, cfg Config) *Conn { panic("not yet") }

// Run reads until the connection ends and closes it; early is what was read from it already, for a server behind the preface if
// sawPreface. It returns why the connection ended, when every stream has ended: a server's handlers have returned; a client's streams have failed, but
// are still to be closed. Run must be called once, also to end what NewClient began.
func (c *Conn) Run(early []byte, sawPreface bool) error { panic("not yet") }

// Settled is closed when the peer's settings have come: it speaks HTTP/2, and Available is what it allows.
func (c *Conn) Settled() <-chan struct{} { panic("not yet") }

// Done is closed when Run ends.
func (c *Conn) Done() <-chan struct{} { panic("not yet") }

// Err is why the connection takes no more streams, nil as long as it may: it ended, it is ending, or the peer said GOAWAY.
func (c *Conn) Err() error { panic("not yet") }

// Streams is the number of streams that are not closed.
func (c *Conn) Streams() int { panic("not yet") }

// Available is how many streams more a client may open now: 0 for ever once Err is not nil. Before the peer's settings have come it is none.
func (c *Conn) Available() int { panic("not yet") }

// Open begins a request with its head and the first bytes of its body, which end completes; body may be longer than what can be sent at once, see
// Stream.Send. Everything is copied before it returns. The stream must be closed. An error other than of a body that waited leaves no stream; see Unprocessed.
func (c *Conn) Open(h *Head, body []byte, end bool) (*Stream, error) { panic("not yet") }

// Shutdown ends the connection in order, without waiting for it: the peer is told twice (RFC 9113 §6.8), the streams that it opened until it heard
// are served, and Run returns after the last. A client's connection ends with its last stream.
func (c *Conn) Shutdown() { panic("not yet") }

// Close ends the connection at once, with the streams.
func (c *Conn) Close() { panic("not yet") }
