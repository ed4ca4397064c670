package proxy

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/pace"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

const http2Preface = http2.Preface

// isPreface is true if the bytes are the beginning of an HTTP/2 preface (RFC 9113 §3.4), as far as they go.
func isPreface(b []byte) bool {
	n := min(len(b), len(http2Preface))
	return string(b[:n]) == http2Preface[:n]
}

// idleWorkers is how many idle goroutines are kept for new streams, per processor.
const idleWorkers = 64

// sharedWindow is how many unread bytes of each body a proxy of the mesh may send, however many others are not read.
const sharedWindow = 128 << 10

// serveHTTP2 serves the connection's streams to its end. early holds the bytes that were read behind the preface, if
// the preface was read already.
func (c *conn) serveHTTP2(early []byte, sawPreface bool) {
	if c.w != nil {
		putWork(c.w)
		c.w = nil
		c.giveBack()
	}
	c.become(stateStreams)
	o := &c.srv.opt
	c.sock.SetDeadline(time.Time{})
	cfg := http2.Config{
		MaxStreams: o.MaxStreams, MaxHeader: o.Limits.Head, MaxFields: o.Limits.Fields,
		HeaderTimeout: o.HeaderTimeout, IdleTimeout: o.IdleTimeout, StallTimeout: o.StreamTimeout, PingAfter: o.IdleTimeout,
		Workers: c.srv.workers, Refused: c.refusedStream, Memory: clientMemory{c},
	}
	if c.peer.Meshed() { // its requests are those of many clients
		cfg.Shared, cfg.StreamWindow = true, sharedWindow
		cfg.ConnWindow = min(sharedWindow*int(o.MaxStreams), 1<<30)
	}
	if c.paced {
		cfg.Pace, cfg.Acked = c.srv.minPace, c.acknowledged
	}
	h := http2.NewServer(c.nc, cfg, c.serveStream)
	c.h2.Store(h)
	if c.bind.phase.Load() != phaseServe {
		h.Shutdown() // the bind may have missed it
	}
	c.ended(h.Run(early, sawPreface))
}

// goAway tells an HTTP/2 client that the port is about to close.
func (c *conn) goAway() {
	if h := c.h2.Load(); h != nil {
		h.Shutdown()
	}
}

// refusedStream counts a request with a malformed head.
func (c *conn) refusedStream(err *http2.StreamError) {
	c.srv.opt.Metrics.Unrouted().Fail(c.shard, telemetry.BadRequest)
	c.srv.log.Debug("HTTP/2 request refused", "client", c.peer.Name(), "error", err)
}

// ended logs why a connection ended. It counts the end if the client caused it.
func (c *conn) ended(err error) {
	var e *http2.ConnError
	if !errors.As(err, &e) {
		return
	}
	if !e.Remote && e.Code != http2.NoError {
		reason := telemetry.ClientProtocol
		if e.Code == http2.SettingsTimeout {
			reason = telemetry.ClientTimeout
		}
		c.srv.opt.Metrics.Unrouted().Fail(c.shard, reason)
	}
	if e.Flood {
		if suppressed, ok := c.srv.floods.Allow(""); ok {
			c.srv.log.Info("closing HTTP/2 connection: flood", loglimit.Args(suppressed, "client", c.peer.Name(), "cause", e.Detail)...)
			return
		}
	}
	c.srv.log.Debug("HTTP/2 connection ended", "client", c.peer.Name(), "error", err)
}

// stream is the HTTP/2 side of an exchange; it implements exchange.Client.
type stream struct {
	ex   exchange.Exchange
	req  *exchange.Request
	conn *conn
	s    *http2.Stream

	watched   bool        // the call is aborted when the client leaves
	whole     []byte      // the body, if all of it came with the head
	taken     bool        // whole was handed out
	continued atomic.Bool // the client does not wait for 100 (Continue)
	arrived   atomic.Bool // some of the body has arrived
	answering atomic.Bool // the answer has begun
	err       error       // why reading ended
	pace      pace.Pace   // of the client in sending its body
	came      int64       // bytes of the body at the last check of pace

	head  http2.Head // of the answer
	begun bool
	sent  bool   // at least the head was sent
	noOut bool   // the answer has no body
	out   []byte // bytes of its body that are not sent yet
	text  []byte // the head's strings
	drawn int    // bytes that were drawn for text
}

var streamPool = sync.Pool{New: func() any { return new(stream) }}

// serveStream serves one request.
func (c *conn) serveStream(hs *http2.Stream) {
	s := streamPool.Get().(*stream)
	defer func() {
		if p := recover(); p != nil {
			s.ex.Dispose()
			s.dropText()
			c.srv.recovered(p)
			return // s is not used again
		}
		s.release()
	}()
	s.serve(c, hs)
}

func (s *stream) serve(c *conn, hs *http2.Stream) {
	s.conn, s.s = c, hs
	ex := &s.ex
	snap, port := c.current()
	if port == nil {
		if snap, port = c.renewStream(); snap == nil {
			hs.Reset(http2.RefusedStream) // it may be sent again
			return
		}
	}
	s.req = ex.Begin(c.srv.pipe, &exchange.Origin{Client: s, Peer: &c.peer, Shard: c.shard, Snapshot: snap.Snapshot, Port: port, Start: hs.Born()})
	if f := s.message(); f != nil {
		ex.Refuse(f)
		return
	}
	ex.Serve()
}

// message fills in the neutral request. http2 has checked the fields (RFC 9113 §8.2, §8.3). message checks what goes
// into an HTTP/1.1 request line and its Host field.
func (s *stream) message() *exchange.Failure {
	h, q := s.s.Head(), s.req
	*q = exchange.Request{Proto: "HTTP/2.0", HTTP2: true, Minor: 1, Method: h.Method, Target: h.Path, Authority: h.Authority, Fields: h.Fields, Body: h.Body}
	expect, other, host := false, false, ""
	for i := range q.Fields {
		switch f := &q.Fields[i]; f.ID {
		case http1.FieldContentType:
			q.GRPC = exchange.IsGRPC(f.Value)
		case http1.FieldExpect:
			proceed, unknown := http1.Expectations(f.Value)
			expect, other = expect || proceed, other || unknown
		case http1.FieldHost:
			if host != "" && !http1.EqualFold(f.Value, host) {
				return exchange.FailMalformed
			}
			host = f.Value
		}
	}
	if q.Authority == "" {
		q.Authority = host
	}
	q.Path, q.Query, q.HasQuery = strings.Cut(q.Target, "?")
	limits := &s.conn.srv.opt.Limits
	switch {
	case h.TooLarge:
		return exchange.FailHeadSize
	case len(q.Method)+len(q.Target)+len("  HTTP/1.1\r\n") > limits.Line:
		return exchange.FailLineSize
	case host != "" && !http1.EqualFold(host, q.Authority):
		return exchange.FailMalformed // RFC 9113 §8.3.1
	case other:
		return exchange.FailExpectation
	case q.Method == http.MethodConnect:
		q.Form = http1.FormAuthority
		return exchange.FailConnect
	case !http1.EqualFold(h.Scheme, "http") && !http1.EqualFold(h.Scheme, "https"):
		return exchange.FailMalformed // other schemes are not served; the connection tells http from https
	case !http1.ValidMethod(q.Method) || !http1.ValidAuthority(q.Authority):
		return exchange.FailMalformed
	case q.Target == "*" && q.Method == http.MethodOptions:
		q.Form = http1.FormAsterisk
	case q.Target[0] != '/':
		return exchange.FailMalformed
	}
	if valid, unescaped := http1.CheckTarget(q.Target); !valid {
		return exchange.FailMalformed
	} else if unescaped {
		q.Unescaped = true
	}
	s.takeBody()
	q.Expect100 = expect && s.whole == nil && q.Body.Content()
	s.continued.Store(!q.Expect100)
	if q.GRPC {
		s.s.Patient()
	}
	return nil
}

func (s *stream) release() {
	s.ex.Shrink()
	s.dropText()
	s.conn, s.req, s.s, s.watched, s.whole, s.taken, s.err = nil, nil, nil, false, nil, false, nil
	s.pace, s.came = pace.Pace{}, 0
	s.arrived.Store(false)
	s.answering.Store(false)
	s.begun, s.sent, s.noOut = false, false, false
	clear(s.head.Fields)
	s.head = http2.Head{Fields: s.head.Fields[:0]}
	if cap(s.out) > keepSize {
		s.out = nil
	}
	if cap(s.text) > headFree {
		s.text = nil
	}
	s.out = s.out[:0]
	streamPool.Put(s)
}

func (s *stream) Proceed() error { return s.Inform(http.StatusContinue, nil) }

func (s *stream) Gone() bool { return s.s.Gone() }

func (s *stream) Watch(c *upstream.Call) {
	s.watched = true
	s.s.Watch(c)
}

func (s *stream) Unwatch() bool { return !s.watched || s.s.Unwatch() }

func (s *stream) Waited() (age time.Duration, left, known bool) { return s.conn.Waited() }

// TurnAway resets the stream. Otherwise it would keep its place and its memory until the client reads the refusal.
func (s *stream) TurnAway() bool {
	if !s.s.Crowded() {
		return false
	}
	s.s.Reset(http2.RefusedStream)
	return true
}

// WaitsToBegin is true while the client may be waiting for 100 (Continue) before it sends its body.
func (s *stream) WaitsToBegin() bool { return !s.continued.Load() && !s.arrived.Load() }
