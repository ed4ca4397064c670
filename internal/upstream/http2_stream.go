package upstream

import (
	"errors"
	"time"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/http2"
)

// Waiting says how long Endpoint.Open may wait for a stream.
type Waiting struct {
	// Until, if not zero, is when it gives up; ConnectTimeout bounds it anyway.
	Until time.Time
	// Wanted, if not nil, is asked about once a second.
	Wanted interface {
		// Wanted is false once the stream would be of no use any more.
		Wanted() bool
	}
	// From is who the exchange is for, for an endpoint that Announces.
	From clientaddr.Pair
	// Waited is set by Open, and by Call.Open: no stream was free, or no connection open.
	Waited bool
}

// Stream is an exchange over HTTP/2, in flight until it is closed. The zero value is none.
type Stream struct {
	*http2.Stream
	conn *http2Conn
}

// Open begins an exchange over HTTP/2, with prior knowledge in cleartext (h2c), or over TLS with ALPN "h2"; it works for every service, also one whose
// Protocol is HTTP, which gRPC needs. h is the request's head: its fields must hold none that are specific to connections (RFC 9113 §8.2.2). body is the
// first of its body, which end completes; sent is how much of it the endpoint gave room for at once: the rest, completed by end, is for Stream.Send.
//
// Nothing was sent if it fails: with *ConnectError or *TLSError, which have been counted by the health check, or because of Waiting.Wanted. When the
// stream fails later call Blame, and when the answer's head came Answered.
func (e *Endpoint) Open(h *http2.Head, body []byte, end bool, wait *Waiting) (s Stream, sent int, err error) {
	e.inFlight.Add(1)
	pool := e.h2
	if e.Announces() {
		if pool, err = e.single(wait.From); err != nil {
			e.inFlight.Add(-1)
			return s, 0, err
		}
	}
	s, sent, err = pool.open(h, body, end, wait)
	if err != nil {
		pool.spent()
		e.inFlight.Add(-1)
	}
	return s, sent, err
}

// Close ends the exchange: a stream that is not complete is cancelled. No other goroutine may still use it.
func (s *Stream) Close() {
	s.Stream.Close()
	c := s.conn
	*s = Stream{}
	c.pool.endpoint.inFlight.Add(-1)
	c.pool.released(c)
}

// Blame counts against the endpoint what ended the stream, if it is its fault: an answer that is malformed, or a connection that broke, once for all its
// streams. A stream that the endpoint reset is not, since the request may be the reason.
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
