package http2

import (
	"time"

	"github.com/weirmesh/weir/internal/http1"
)

// Stream is one request and its answer. One goroutine may receive (AwaitHead, Next, Trailers) while another sends; the others methods may be called by
// any. What it returns as errors is io.EOF, ErrInterrupted, ErrTimeout, *StreamError or *ConnError.
type Stream struct{}

// Aborter is told when a stream ends before its time.
type Aborter interface{ Abort() }

// ID is the stream's number.
func (s *Stream) ID() uint32 { panic("not yet") }

// Born is when the stream was opened, for a server about when the head came.
func (s *Stream) Born() time.Time { panic("not yet") }

// Head is a server's request. It is valid until serve returns.
func (s *Stream) Head() *Head { panic("not yet") }

// AwaitHead waits for the answer's next head: interim ones come first, one a call. The last, with a Status of at least 200, comes again with each
// further call. until, if not zero, is when it gives up with ErrTimeout, up to a second later if it is more than two seconds ahead; the stream goes on. The
// head is valid until the next call or Close.
func (s *Stream) AwaitHead(until time.Time) (*Head, error) { panic("not yet") }

// Next waits for the next piece of the body, which is valid until the next call; io.EOF after the last. What is read may be sent again by the peer,
// when the next call is made. until is as with AwaitHead. An error other than ErrTimeout comes again.
func (s *Stream) Next(until time.Time) ([]byte, error) { panic("not yet") }

// Ready is true if Next will not wait.
func (s *Stream) Ready() bool { panic("not yet") }

// Whole takes the body if all of it is here, with no trailers: it stays valid until serve returns or Close, and Next gives io.EOF.
func (s *Stream) Whole() (body []byte, ok bool) { panic("not yet") }

// Trailers are those that came behind the body, valid as the head is; nil before Next gave io.EOF.
func (s *Stream) Trailers() []http1.Field { panic("not yet") }

// Interrupt ends receiving for good: a Next under way fails, and so does each later one.
func (s *Stream) Interrupt() { panic("not yet") }

// Answer sends a server's head, interim or final, and behind a final one the first bytes of the body, which end completes. Everything is
// copied before it returns. With end and no body, a Body of known length is announced nonetheless: for HEAD and 304.
func (s *Stream) Answer(h *Head, body []byte, end bool) error { panic("not yet") }

// Send sends more of the body; end completes it. It waits for the peer to give room, up to StallTimeout without any. A server's answer that ends before the
// request did resets the stream with NO_ERROR.
func (s *Stream) Send(p []byte, end bool) error { panic("not yet") }

// SendTrailers completes the body with trailers, which may be none.
func (s *Stream) SendTrailers(fields []http1.Field) error { panic("not yet") }

// Sent is true once the head of a server's final answer was sent, or anything behind it.
func (s *Stream) Sent() bool { panic("not yet") }

// Reset ends the stream, unless it has ended.
func (s *Stream) Reset(code Code) { panic("not yet") }

// Gone is true once the peer has reset the stream or the connection has ended.
func (s *Stream) Gone() bool { panic("not yet") }

// Watch has a told when the stream is gone, at once if it is. Abort is called with locks held: it must neither block nor call the stream. It replaces the one
// before.
func (s *Stream) Watch(a Aborter) { panic("not yet") }

// Unwatch ends Watch and is false if the stream is gone: then Abort was called.
func (s *Stream) Unwatch() bool { panic("not yet") }

// Close ends a client's stream, which is not to be used any more: one that is not complete is cancelled. No other goroutine may still use it.
func (s *Stream) Close() { panic("not yet") }
