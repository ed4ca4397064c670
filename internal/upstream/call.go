package upstream

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
)

// JoinBody is the largest part of a body, in bytes, that goes out in one write with what comes before it.
const JoinBody = 32 << 10

// maxInterim bounds the interim answers to one request over HTTP/1.1; http2 has a bound of its own.
const maxInterim = 32

// maxTries bounds how often Again lets a request be sent to one endpoint that has not looked at it.
const maxTries = 4

var (
	// ErrTimeout is what waiting for an answer gives after Call.Look, and at Call.Deadline. The call goes on.
	ErrTimeout = http2.ErrTimeout
	// ErrAborted is what Head and Next give after Abort.
	ErrAborted = http2.ErrInterrupted
	// ErrInterim is a 101 that nobody asked for, or too many interim answers.
	ErrInterim = errors.New("unexpected 1xx response")
)

// Request is what a Call sends. Its strings stay valid as long as it may be sent.
type Request struct {
	Method    string
	Target    string
	Authority string
	// Fields go out as they are. They hold none that frame the message or belong to a connection.
	Fields []http1.Field
	Body   http1.Body
	// Expect100 and Upgrade are of HTTP/1.1; over HTTP/2 they are left out.
	Expect100 bool
	Upgrade   string
	// HTTP2 says how it is sent.
	HTTP2 bool
}

// Call is the endpoint's side of an exchange: a request that is laid out in memory, sent to an endpoint, and its answer, over HTTP/1.1 or HTTP/2. Its
// zero value is ready, and it is used for one exchange after the other:
//
//	Begin, First, Add, End  lay the request out, as far as it is in memory; nothing is sent
//	Open                    gets a connection, or a stream
//	Send                    sends what was laid out
//	Write, Finish           send the rest, if Sent is false; another goroutine may call them
//	Head                    waits for a head of the answer; interim ones come first
//	Ready, Next, Splice     take the answer's body, Trailers what comes behind it
//	Close                   ends it; the connection is used again if it can be
//
// What fails between Open and Close is followed by Blame, for the health of the endpoint, and by Again, which says whether the request may be sent to the
// same endpoint once more. The Call never retries by itself. It owns the connection, its buffers and the deadlines of both; the caller owns the request's
// memory and decides when to give up: Head and Next return ErrTimeout in time for that.
//
// One goroutine uses a Call, another may send the rest of the request, and any may call Abort between Open and Close.
type Call struct {
	// Request is filled in before Begin.
	Request Request
	// Limits bound the answer's head over HTTP/1.1; over HTTP/2 Options do.
	Limits http1.Limits
	// Stall is how long the endpoint may take to accept a piece of the request over HTTP/1.1; over HTTP/2 it is Options.StallTimeout.
	Stall time.Duration
	// Deadline, if not zero, is when waiting for the answer ends. It is read when waiting begins.
	Deadline time.Time
	// Look, if not zero, is how long Head and Next wait until they return ErrTimeout for the caller to look whether the answer is still wanted: once or
	// twice as long, whichever needs no timer of its own.
	Look time.Duration

	endpoint *Endpoint
	conn     *Conn  // over HTTP/1.1, from Open to Close
	stream   Stream // over HTTP/2

	// The request. wire is its head and its body, or over HTTP/2 what was copied of the body; after Send, what is gathered.
	wire     []byte
	rest     []byte // of the body in the caller's memory, behind wire; after Open over HTTP/2, what is left to be sent
	trailers []http1.Field
	whole    bool // all of it is laid out
	unsent   bool // no endpoint has taken any of what is laid out
	sent     bool // the endpoint has all of it
	reused   bool // the connection served others before
	try      int
	gathers  bool      // wire holds what is gathered to be written
	now      time.Time // a recent time
	head     http2.Head

	// The answer.
	heard    bool // something came
	interims int
	body     http1.Body // over HTTP/1.1; Length is what is left
	done     bool       // it was read to its end
	persist  bool       // and the connection can be used again then
	looked   bool       // ErrTimeout was returned: the deadline is to be set anew
	ready    bool       // over HTTP/2: Next will not wait
	chunks   http1.ChunkReader
	piece    *piece
	limited  io.LimitedReader
}

// Begin begins to lay out Request, without its body.
func (c *Call) Begin() {
	c.rest, c.trailers = nil, nil
	c.whole, c.unsent, c.sent, c.gathers = false, true, false, false
	if c.wire = c.wire[:0]; !c.Request.HTTP2 {
		c.wire = c.appendHead(c.wire)
	}
}

// First lays out the first of the body. It is not copied if it is large, or if nothing is added to it: p stays valid as long as the request may be sent.
func (c *Call) First(p []byte) {
	switch {
	case len(p) == 0:
	case c.Request.HTTP2:
		c.rest = p
	case c.Request.Body.Kind == http1.BodyChunked:
		c.wire = http1.AppendChunk(c.wire, p)
	case len(p) > JoinBody:
		c.rest = p
	default:
		c.wire = append(c.wire, p...)
	}
}

// Add lays out a copy of p, which comes next in a body of unknown length.
func (c *Call) Add(p []byte) {
	if !c.Request.HTTP2 {
		c.wire = http1.AppendChunk(c.wire, p)
		return
	}
	c.wire = append(c.wire, c.rest...)
	c.wire, c.rest = append(c.wire, p...), nil
}

// End says that the body is complete with what is laid out. trailers stay valid as long as the request may be sent.
func (c *Call) End(trailers []http1.Field) {
	c.whole = true
	switch {
	case c.Request.HTTP2:
		c.trailers = trailers
	case c.Request.Body.Kind == http1.BodyChunked:
		c.wire = http1.AppendLastChunk(c.wire, trailers)
	}
}

// Laid is how many bytes are laid out in the call's own memory.
func (c *Call) Laid() int { return len(c.wire) }

// Whole is true if all of the request is laid out.
func (c *Call) Whole() bool { return c.whole }

// Unsent is true if what is laid out can be sent as it is: no endpoint has taken any of it, or Again said so.
func (c *Call) Unsent() bool { return c.unsent }

// Sent is true if the endpoint was sent the whole request.
func (c *Call) Sent() bool { return c.sent }

// Reset makes the call ready for another exchange: nothing is laid out.
func (c *Call) Reset() {
	c.unsent, c.rest, c.trailers = false, nil, nil
}

// Shrink lets go of what others own, and of memory if it is more than most bytes.
func (c *Call) Shrink(most int) {
	c.Request, c.endpoint, c.rest, c.trailers = Request{}, nil, nil, nil
	if cap(c.wire) > most {
		c.wire = nil
	}
}

// Open gets a connection to e, at the time now, or over HTTP/2 a stream, which begins with as much of the request as e gives room for. What was opened
// is in flight until Close. try counts from 1; only the first over HTTP/1.1 may use a connection that served others: see Again. Errors are those of
// Endpoint.Get and Endpoint.Open: nothing was sent, and there is nothing to close.
func (c *Call) Open(e *Endpoint, wait *Waiting, try int, now time.Time) error {
	c.endpoint, c.try, c.now = e, try, now
	wait.Waited = false
	c.heard, c.interims, c.done, c.persist, c.looked, c.ready = false, 0, false, false, false, false
	if c.Request.HTTP2 {
		return c.openHTTP2(wait)
	}
	return c.openHTTP1(wait)
}

// Opened is true between Open and Close.
func (c *Call) Opened() bool { return c.conn != nil || c.stream.Stream != nil }

// Asks is true if Send may wait for the answer's first bytes.
func (c *Call) Asks() bool { return !c.Request.HTTP2 && c.whole && c.rest == nil }

// Send sends what was laid out. With await nothing is left to do until the answer comes, so that the first of it may be waited for at once. Without an error,
// or with Unsent false, there may be an answer: an endpoint may answer before it ends a connection.
func (c *Call) Send(await bool) error {
	if c.Request.HTTP2 {
		return c.sendHTTP2()
	}
	return c.sendHTTP1(await)
}

// Write sends the next piece of the body, or gathers it if more follows at once. An empty p sends what Open and Send have left over.
func (c *Call) Write(p []byte, more bool) error {
	if c.Request.HTTP2 {
		return c.writeHTTP2(p, more)
	}
	return c.writeHTTP1(p, more)
}

// Finish sends what is left, the end of the body and trailers.
func (c *Call) Finish(trailers []http1.Field) error {
	var err error
	if c.Request.HTTP2 {
		err = c.finishHTTP2(trailers)
	} else {
		err = c.finishHTTP1(trailers)
	}
	c.sent = err == nil
	return err
}

// Head waits for the next head of the answer and makes r of it, whose Body is the answer's. Those with a Status of less than 200 are interim and come
// first, but for 101, which is the answer if it switches to what was asked for. r keeps what has come of a head between calls: reset it when the call is
// given up. Errors are ErrTimeout, ErrInterim and what reading gives, io.ErrUnexpectedEOF for an end.
func (c *Call) Head(r *http1.Response) error {
	var err error
	if c.Request.HTTP2 {
		err = c.headHTTP2(r)
	} else {
		err = c.headHTTP1(r)
	}
	if err == nil && (r.Status >= 200 || r.Status == http.StatusSwitchingProtocols) {
		c.endpoint.Answered(r.Status)
	}
	return err
}

// Ready is true if Next will not wait.
func (c *Call) Ready() bool {
	if c.Request.HTTP2 {
		c.ready = c.stream.Ready()
		return c.ready
	}
	return c.done || len(c.conn.Buffered()) > 0
}

// Next returns the next piece of the answer's body, which may be empty, valid until the next call; io.EOF after the last. Errors are otherwise those of
// Head.
func (c *Call) Next() ([]byte, error) {
	if c.Request.HTTP2 {
		return c.nextHTTP2()
	}
	return c.nextHTTP1()
}

// Trailers are those behind the answer's body, after Next gave io.EOF; over HTTP/2 valid until Close.
func (c *Call) Trailers() []http1.Field {
	switch {
	case c.Request.HTTP2:
		return c.stream.Trailers()
	case c.body.Kind == http1.BodyChunked:
		return c.chunks.Trailers()
	}
	return nil
}

// gather begins to gather, if it was not begun.
func (c *Call) gather() {
	if !c.gathers {
		c.wire, c.gathers = c.wire[:0], true
	}
}

// gathered ends it.
func (c *Call) gathered() []byte {
	if !c.gathers {
		return nil
	}
	c.gathers = false
	return c.wire
}

// Skip drops the rest of the answer if it is in memory.
func (c *Call) Skip() {
	if !c.Request.HTTP2 && c.body.Kind == http1.BodyLength && c.body.Length <= int64(len(c.conn.Buffered())) {
		c.conn.Discard(int(c.body.Length))
		c.body.Length, c.done = 0, true
	}
}

// Abort makes all that waits fail, and all that would.
func (c *Call) Abort() {
	if c.conn != nil {
		c.conn.Abort()
	} else if c.stream.Stream != nil {
		c.stream.Abort()
	}
}

// Aborter is what Abort aborts, from Open to Close. It may be aborted later too: then nothing happens, unless the connection is used again.
func (c *Call) Aborter() http2.Aborter {
	if c.conn != nil {
		return c.conn
	}
	return c.stream.Stream
}

// Reused is true if the connection served others before, over HTTP/1.1.
func (c *Call) Reused() bool { return c.reused && c.conn != nil }

// Blame counts against the endpoint what ended the call, if it is its fault. Slowness is not: it may lie in the request.
func (c *Call) Blame(err error) {
	switch {
	case c.stream.Stream != nil:
		c.stream.Blame(err)
	case c.conn == nil || c.Stale(err) || err == ErrAborted || errors.Is(err, ErrNoMemory) || IsTimeout(err):
	default:
		c.endpoint.Failed()
	}
}

// Again says of a call that failed with err, before an answer's head came, whether the request may be sent to the same endpoint at once: it did not
// process it (RFC 9113 §8.7), or the connection had been idle and ended before a byte of the answer came, and the request may be repeated. If Unsent is
// false it has to be laid out anew. It is asked before Close.
func (c *Call) Again(err error, idempotent bool) bool {
	if c.stream.Stream != nil {
		return c.againHTTP2(err, idempotent)
	}
	if !c.Stale(err) {
		return false
	}
	if idempotent && c.whole {
		c.unsent = true // all of it is in memory still
	}
	return c.unsent || idempotent
}

// Close ends the call. The connection is used again if the request was sent and the answer read, both whole. A stream that is not complete is cancelled. No
// other goroutine may use the call any more.
func (c *Call) Close() {
	if c.piece != nil {
		piecePool.Put(c.piece)
		c.piece = nil
	}
	if k := c.conn; k != nil {
		if c.conn = nil; c.done && c.persist && c.sent {
			c.endpoint.Put(k)
		} else {
			k.Close()
		}
	} else if c.stream.Stream != nil {
		c.stream.Close()
	}
}

// Detach ends the call without its connection, over HTTP/1.1, which is the caller's from now on: protocols were switched.
func (c *Call) Detach() *Conn {
	k := c.conn
	c.conn = nil
	return k
}
