package upstream

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
)

// JoinBody is the largest part of a body, in bytes, that is sent in one write together with the bytes before it.
const JoinBody = 32 << 10

// maxInterim bounds the interim answers to one request over HTTP/1.1; http2 has its own bound.
const maxInterim = 32

// maxTries bounds how often Again lets a request be sent to one endpoint that has not looked at it.
const maxTries = 4

var (
	// ErrTimeout is returned while waiting for an answer, after Call.Look and at Call.Deadline. The call continues.
	ErrTimeout = http2.ErrTimeout
	// ErrAborted is returned by Head and Next after Abort.
	ErrAborted = http2.ErrInterrupted
	// ErrInterim means an unexpected 101, or too many interim answers.
	ErrInterim = errors.New("unexpected 1xx response")
)

// Request is what a Call sends. Its strings must stay valid while it may be sent.
type Request struct {
	Method    string
	Target    string
	Authority string
	// Fields are sent as they are. They must not include fields that frame the message or belong to a connection.
	Fields []http1.Field
	Body   http1.Body
	// Expect100 and Upgrade are of HTTP/1.1; over HTTP/2 they are left out.
	Expect100 bool
	Upgrade   string
	// HTTP2 selects HTTP/2 instead of HTTP/1.1.
	HTTP2 bool
}

// Call is the endpoint's side of an exchange: a request that is laid out in memory, sent to an endpoint, and its
// answer, over HTTP/1.1 or HTTP/2. Its zero value is ready, and it can be used for one exchange after the other:
//
//	Begin, First, Add, End  lay the request out, as far as it is in memory; nothing is sent
//	Open                    gets a connection, or a stream
//	Send                    sends what was laid out
//	Write, Finish           send the rest, if Sent is false; another goroutine may call them
//	Head                    waits for a head of the answer; interim ones come first
//	Ready, Next, Splice     take the answer's body, Trailers what follows it
//	Close                   ends it; the connection is used again if possible
//
// After a failure between Open and Close, call Blame, for the health of the endpoint, and Again, which reports whether
// the request may be sent to the same endpoint once more. The Call never retries by itself. It owns the connection, its
// buffers and the deadlines of both. The caller owns the request's memory and decides when to give up: Head and Next
// return ErrTimeout in time for that.
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
	// Look, if not zero, is how long Head and Next wait before they return ErrTimeout, so that the caller can check
	// whether the answer is still wanted. They wait once or twice as long, whichever needs no additional timer.
	Look time.Duration

	endpoint *Endpoint
	conn     *Conn  // over HTTP/1.1, from Open to Close
	stream   Stream // over HTTP/2

	// The request. wire is its head and its body, or over HTTP/2 the copied part of the body; after Send, the gathered
	// bytes.
	wire     []byte
	rest     []byte // of the body in the caller's memory, after wire; after Open over HTTP/2, the unsent part
	trailers []http1.Field
	whole    bool // all of the request is laid out
	unsent   bool // no endpoint has got any of what is laid out
	sent     bool // the endpoint has got all of the request
	reused   bool // the connection served others before
	try      int
	gathers  bool      // wire holds gathered bytes that must be written
	now      time.Time // a recent time
	head     http2.Head

	// The answer.
	heard    bool // something came
	returned bool // the endpoint's proxy answered that it delivered the request to nobody
	interims int
	body     http1.Body // over HTTP/1.1; Length is the length of the rest
	done     bool       // it was read to its end
	persist  bool       // and the connection can be used again then
	looked   bool       // ErrTimeout was returned: the deadline must be set again
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

// First lays out the beginning of the body. It is not copied if it is large, or if nothing is added to it: p must stay
// valid while the request may be sent.
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

// End completes the body with what is laid out. trailers must stay valid while the request may be sent.
func (c *Call) End(trailers []http1.Field) {
	c.whole = true
	switch {
	case c.Request.HTTP2:
		c.trailers = trailers
	case c.Request.Body.Kind == http1.BodyChunked:
		c.wire = http1.AppendLastChunk(c.wire, trailers)
	}
}

// Replace puts another value of a field, as long and found nowhere else, into a head that is laid out and not sent. Over
// HTTP/2 the head is laid out later, from Request.Fields.
func (c *Call) Replace(old, value string) {
	if !c.unsent || c.Request.HTTP2 || len(old) != len(value) {
		return
	}
	if i := bytes.Index(c.wire, []byte(old)); i >= 0 {
		copy(c.wire[i:], value)
	}
}

// Laid is how many bytes are laid out in the call's own memory.
func (c *Call) Laid() int { return len(c.wire) }

// Whole is true if all of the request is laid out.
func (c *Call) Whole() bool { return c.whole }

// Unsent is true if the request can be sent as it is laid out: no endpoint has got any of it, or Again allowed it.
func (c *Call) Unsent() bool { return c.unsent }

// Sent is true if the endpoint was sent the whole request.
func (c *Call) Sent() bool { return c.sent }

// Reset prepares the call for another exchange: nothing is laid out.
func (c *Call) Reset() {
	c.unsent, c.rest, c.trailers = false, nil, nil
}

// Shrink releases memory of others, and its own memory if it is more than most bytes.
func (c *Call) Shrink(most int) {
	c.Request, c.endpoint, c.rest, c.trailers = Request{}, nil, nil, nil
	if cap(c.wire) > most {
		c.wire = nil
	}
}

// Open gets a connection to e, at the time now. Over HTTP/2 it gets a stream, which begins with as much of the request
// as e gives room for. The call is in flight until Close. try counts from 1; over HTTP/1.1 only the first may use a
// connection that served others: see Again. Errors are those of Endpoint.Get and Endpoint.Open: then nothing was sent,
// and there is nothing to close.
func (c *Call) Open(e *Endpoint, wait *Waiting, try int, now time.Time) error {
	c.endpoint, c.try, c.now = e, try, now
	wait.Waited = false
	c.heard, c.returned, c.interims, c.done, c.persist, c.looked, c.ready = false, false, 0, false, false, false, false
	if c.Request.HTTP2 {
		return c.openHTTP2(wait)
	}
	return c.openHTTP1(wait)
}

// Opened is true between Open and Close.
func (c *Call) Opened() bool { return c.conn != nil || c.stream.Stream != nil }

// Asks is true if Send may wait for the answer's first bytes.
func (c *Call) Asks() bool { return !c.Request.HTTP2 && c.whole && c.rest == nil }

// Send sends what was laid out. With await there is nothing else to do until the answer arrives, so Send may already
// wait for its beginning. Without an error, or with Unsent false, there may be an answer: an endpoint may answer before
// it ends a connection.
func (c *Call) Send(await bool) error {
	if c.Request.HTTP2 {
		return c.sendHTTP2()
	}
	return c.sendHTTP1(await)
}

// Write sends the next piece of the body, or gathers it if more follows at once. An empty p sends what Open and Send
// have not sent.
func (c *Call) Write(p []byte, more bool) error {
	if c.Request.HTTP2 {
		return c.writeHTTP2(p, more)
	}
	return c.writeHTTP1(p, more)
}

// Finish sends the rest, the end of the body and trailers.
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

// Head waits for the next head of the answer and parses it into r, whose Body is the answer's. Heads with a Status of
// less than 200 are interim and come first. Status 101 is different: it is the answer, if it switches to the requested
// protocol. r keeps a partial head between calls: reset it when the call is given up. Errors are ErrTimeout, ErrInterim
// and errors of reading; at the end it is io.ErrUnexpectedEOF.
func (c *Call) Head(r *http1.Response) error {
	var err error
	if c.Request.HTTP2 {
		err = c.headHTTP2(r)
	} else {
		err = c.headHTTP1(r)
	}
	if err == nil && (r.Status >= 200 || r.Status == http.StatusSwitchingProtocols) {
		if c.returned = (r.Status >= 502 || c.Request.HTTP2) && c.endpoint.Meshed() && returned(r.Fields); c.returned {
			c.endpoint.unreached(true)
			c.endpoint.Failed()
		} else {
			c.endpoint.Answered(r.Status)
		}
	}
	return err
}

// returned reports whether an answer's fields say that the request was not delivered.
func returned(fields []http1.Field) bool {
	_, ok := http1.GetID(fields, http1.FieldWeirUndelivered)
	return ok
}

// Returned reports whether the answer whose head Head returned is a Meshed endpoint's word that it could not deliver the
// request, and that none of it went any further.
func (c *Call) Returned() bool { return c.returned }

// Ready is true if Next will not wait.
func (c *Call) Ready() bool {
	if c.Request.HTTP2 {
		c.ready = c.stream.Ready()
		return c.ready
	}
	return c.done || len(c.conn.Buffered()) > 0
}

// Next returns the next piece of the answer's body, which may be empty and is valid until the next call; io.EOF after
// the last. Other errors are those of Head.
func (c *Call) Next() ([]byte, error) {
	if c.Request.HTTP2 {
		return c.nextHTTP2()
	}
	return c.nextHTTP1()
}

// Trailers are the trailers of the answer, after Next returned io.EOF; over HTTP/2 valid until Close.
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

// Aborter is what Abort aborts, from Open to Close. It may be aborted later, too: that has no effect, unless the
// connection is used again.
func (c *Call) Aborter() http2.Aborter {
	if c.conn != nil {
		return c.conn
	}
	return c.stream.Stream
}

// Reused is true if the connection served others before, over HTTP/1.1.
func (c *Call) Reused() bool { return c.reused && c.conn != nil }

// Blame counts the call's error against the endpoint, if it is the endpoint's fault. Slowness is not: the request may
// be the reason.
func (c *Call) Blame(err error) {
	switch {
	case c.stream.Stream != nil:
		c.stream.Blame(err)
	case c.conn == nil || c.Stale(err) || err == ErrAborted || errors.Is(err, ErrNoMemory) || IsTimeout(err):
	default:
		c.endpoint.Failed()
	}
}

// Again reports whether a request may be sent to the same endpoint at once, after the call failed with err before the
// head of an answer. It may in two cases: the endpoint did not process it (RFC 9113 §8.7); or the connection had been
// idle and ended before a byte of the answer arrived, and the request may be repeated. If Unsent is false, the request
// must be laid out again. Call it before Close.
func (c *Call) Again(err error, idempotent bool) bool {
	if c.stream.Stream != nil {
		return c.againHTTP2(err, idempotent)
	}
	if !c.Stale(err) {
		return false
	}
	if idempotent && c.whole {
		c.unsent = true // all of it is still in memory
	}
	return c.unsent || idempotent
}

// Unanswered reports whether err is the end of the connection before a byte of an answer: the endpoint closed or reset
// it. It says nothing about what the endpoint did with the request. Call it before Close.
func (c *Call) Unanswered(err error) bool {
	if c.stream.Stream != nil {
		var ce *http2.ConnError
		return !c.heard && errors.As(err, &ce) && (ce.Remote || ce.Code == http2.NoError)
	}
	if c.conn == nil || c.heard || len(c.conn.Buffered()) > 0 {
		return false
	}
	var malformed *http1.Error
	return err != ErrAborted && !IsTimeout(err) && !errors.Is(err, ErrNoMemory) && !errors.Is(err, ErrBufferFull) && !errors.As(err, &malformed)
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
