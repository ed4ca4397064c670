package upstream

import (
	"errors"
	"time"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/http2"
)

// Waiting bounds how Endpoint.Open waits for a stream.
type Waiting struct {
	// Until, if not zero, is when it gives up; ConnectTimeout bounds it anyway.
	Until time.Time
	// Briefly gives up after slowConnect where a connection has to be opened: another endpoint may be quicker.
	Briefly bool
	// Wanted, if not nil, is asked about once a second.
	Wanted interface {
		// Wanted is false once the stream would be of no use any more.
		Wanted() bool
	}
	// From is the client of the exchange, for an endpoint that Announces.
	From clientaddr.Pair
	// Waited is set by Open, and by Call.Open: no stream was free, or no connection open.
	Waited bool
}

// Stream is an exchange over HTTP/2, in flight until it is closed. The zero value is no stream.
type Stream struct {
	*http2.Stream
	conn *http2Conn
}

// Open begins an exchange over HTTP/2: in cleartext with prior knowledge (h2c), over TLS with ALPN "h2". It works for
// every service, including one whose Protocol is HTTP, which gRPC needs. h is the request's head: its fields must not
// include fields that are specific to connections (RFC 9113 §8.2.2). body is the beginning of its body; end means that
// it is complete. sent is how much of it the endpoint gave room for at once: send the rest, completed by end, with
// Stream.Send.
//
// If it fails, nothing was sent. The error is a *ConnectError or a *TLSError, which have been counted by the health
// check, or caused by Waiting.Wanted. If the stream fails later, call Blame; when the answer's head arrived, call
// Answered.
func (e *Endpoint) Open(h *http2.Head, body []byte, end bool, wait *Waiting) (s Stream, sent int, err error) {
	if err := e.enter(); err != nil {
		return s, 0, err
	}
	pool := e.h2
	if e.Announces() {
		if pool, err = e.single(wait.From); err != nil {
			e.leave()
			return s, 0, err
		}
	}
	s, sent, err = pool.open(h, body, end, wait)
	if err != nil {
		pool.spent()
		e.leave()
	}
	return s, sent, err
}

// Close ends the exchange: a stream that is not complete is cancelled. No other goroutine may still use it.
func (s *Stream) Close() {
	s.Stream.Close()
	c := s.conn
	*s = Stream{}
	c.pool.endpoint.leave()
	c.pool.released(c)
}

// Blame counts the stream's error against the endpoint, if it is the endpoint's fault: a malformed answer, or a broken
// connection, once for all its streams. A stream that the endpoint reset does not count, since the request may be the
// reason.
func (s *Stream) Blame(err error) {
	var se *http2.StreamError
	var ce *http2.ConnError
	p := s.conn.pool
	switch {
	case http2.Unprocessed(err):
	case errors.As(err, &se):
		if !se.Remote {
			p.endpoint.Failed()
		}
	case errors.As(err, &ce):
		if !s.conn.broke.Swap(true) && !p.isClosed() {
			p.endpoint.Failed()
		}
	}
}
