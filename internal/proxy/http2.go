package proxy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

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

// takeBody notes what is known about the body. A body that has completely arrived has a known length.
func (s *stream) takeBody() {
	q := s.req
	switch q.Body.Kind {
	case http1.BodyNone:
		switch q.Method {
		case http.MethodPost, http.MethodPut, http.MethodPatch:
			q.Body = http1.Body{Kind: http1.BodyLength} // RFC 9110 §8.6
		}
		return
	}
	if b, ok := s.s.Whole(); ok {
		s.whole = b
		if s.whole == nil {
			s.whole = []byte{}
		}
		if !q.GRPC { // gRPC goes over HTTP/2 and announces no lengths
			q.Body = http1.Body{Kind: http1.BodyLength, Length: int64(len(b))}
		}
	}
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

func (s *stream) Buffered() []byte {
	s.taken = s.whole != nil
	return s.whole
}

func (s *stream) Ready() bool { return s.err != nil || s.s.Ready() }

func (s *stream) Next() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.whole != nil && !s.taken {
		s.taken = true
		return s.whole, nil
	}
	p, err := s.await()
	if err != nil {
		s.err = streamBodyFailure(err)
		return nil, s.err
	}
	s.arrived.Store(true)
	return p, nil
}

// await waits for the next piece of the body, as long as the client's pace allows.
func (s *stream) await() ([]byte, error) {
	if s.s.Ready() {
		return s.s.Next(time.Time{})
	}
	m := s.conn.srv.minPace
	start := time.Now()
	latest := start.Add(s.conn.srv.opt.StreamTimeout)
	if s.req.GRPC {
		return s.s.Next(latest) // a gRPC body is never due, see bodyDue
	}
	_, held := s.s.Arrived()
	for {
		limit := latest.Sub(start)
		due := m.Rate > 0 && s.bodyDue()
		if due {
			if limit = s.pace.Left(m, limit); limit <= 0 {
				return nil, http2.ErrTimeout
			}
		}
		if m.Rate > 0 {
			limit = min(limit, m.LookAfter()) // the body may become due, or stop being due
		}
		p, err := s.s.Next(start.Add(limit))
		now := time.Now()
		came, still := s.s.Arrived()
		if due && s.bodyDue() {
			s.pace.Waited(m, now.Sub(start)-(still-held), came-s.came)
		}
		s.came = came
		if err != http2.ErrTimeout || !now.Before(latest) {
			return p, err
		}
		start, held = now, still
	}
}

// bodyDue is true while the client must send its body without pauses; see conn.bodyDue.
func (s *stream) bodyDue() bool {
	q := s.req
	return !q.GRPC && !s.WaitsToBegin() && (q.Body.Kind == http1.BodyLength || !s.answering.Load())
}

// streamBodyFailure is why reading a stream's body ended. It returns io.EOF unchanged.
func streamBodyFailure(err error) error {
	var se *http2.StreamError
	switch {
	case err == io.EOF:
		return err
	case err == http2.ErrInterrupted:
		return exchange.FailInterrupted
	case errors.As(err, &se) && !se.Remote:
		return &exchange.Failure{Reason: telemetry.BadBody, Detail: se.Detail, Err: err}
	}
	return exchange.BodyFailure(err)
}

func (s *stream) Trailers() []http1.Field { return s.s.Trailers() }

func (s *stream) Interrupt() { s.s.Pause() }

func (s *stream) Resume() {
	s.s.Resume()
	if s.err == exchange.FailInterrupted {
		s.err = nil
	}
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

func (s *stream) Inform(status int, fields []http1.Field) error {
	if status == http.StatusContinue {
		if s.continued.Swap(true) {
			return nil
		}
	}
	if err := s.s.Answer(&http2.Head{Status: status, Fields: fields}, nil, false); err != nil {
		return exchange.WriteFailure(err)
	}
	return nil
}

// Begin implements exchange.Client.
func (s *stream) Begin(a *exchange.Answer) error {
	h := &s.head
	h.Status, h.Body = a.Status, a.Body
	size := 0
	for i := range a.Fields {
		size += len(a.Fields[i].Name) + len(a.Fields[i].Value)
	}
	if cap(s.text) < size {
		if size > headFree {
			if !(clientMemory{s.conn}).Draw(size, true) {
				return exchange.FailAnswerRoom
			}
			s.drawn = size
		}
		s.text = make([]byte, 0, max(size, 1<<10))
	}
	text, fields := s.text[:0], h.Fields[:0]
	for i := range a.Fields {
		f := &a.Fields[i]
		n, v := len(text), len(text)+len(f.Name)
		text = append(append(text, f.Name...), f.Value...)
		fields = append(fields, http1.Field{Name: alias(text[n:v]), Value: alias(text[v:])})
	}
	s.text, h.Fields = text, fields
	s.noOut = a.Body.Kind == http1.BodyNone || s.req.Method == http.MethodHead
	if a.Refusal && !s.noOut && s.s.Shut() {
		s.noOut, h.Body = true, http1.Body{}
	}
	s.begun, s.out = true, s.out[:0]
	s.answering.Store(true)
	return nil
}

// headFree is how many bytes of an answer's head a stream keeps without drawing: as many as the endpoint's side does.
const headFree = 16 << 10

// dropText frees the strings of a large head, once they are sent or not needed any more.
func (s *stream) dropText() {
	if s.drawn > 0 {
		clear(s.head.Fields)
		s.head.Fields, s.text = s.head.Fields[:0], nil
		clientMemory{s.conn}.Give(s.drawn)
		s.drawn = 0
	}
}

// alias is b as a string, without a copy.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func (s *stream) Write(p []byte) error {
	if s.noOut || len(p) == 0 {
		return nil
	}
	if len(p) <= exchange.Gather/2 {
		if s.out = append(s.out, p...); len(s.out) < exchange.Gather {
			return nil
		}
		return s.Flush()
	}
	if err := s.Flush(); err != nil {
		return err
	}
	return s.wrote(s.s.Send(p, false))
}

func (s *stream) Flush() error {
	var err error
	switch {
	case s.begun && !s.sent:
		err = s.sendHead(s.out)
	case len(s.out) > 0:
		err = s.s.Send(s.out, false)
	}
	s.out = s.out[:0]
	return s.wrote(err)
}

// sendHead sends the head, and p behind it as soon as the client gives room. A large head is not kept until then.
func (s *stream) sendHead(p []byte) error {
	var rest []byte
	if s.drawn > 0 {
		p, rest = nil, p
	}
	err := s.s.Answer(&s.head, p, false)
	if s.sent = err != http2.ErrNoMemory; err != nil {
		return err
	}
	if s.dropText(); len(rest) == 0 {
		return nil
	}
	return s.s.Send(rest, false)
}

func (s *stream) End(trailers []http1.Field) error {
	var head *http2.Head
	switch {
	case s.sent:
	case s.drawn > 0 && len(s.out) > 0:
		if err := s.sendHead(nil); err != nil {
			return s.wrote(err)
		}
	default:
		s.sent = true
		head = &s.head
	}
	err := s.s.Finish(head, s.out, trailers)
	if head != nil && err == http2.ErrNoMemory {
		s.sent = false
	}
	s.out = s.out[:0]
	return s.wrote(err)
}

func (s *stream) wrote(err error) error {
	if err == http2.ErrNoMemory {
		return exchange.FailAnswerRoom
	}
	if err != nil {
		return exchange.WriteFailure(err)
	}
	return nil
}

func (s *stream) Retract() bool {
	if s.sent {
		return false
	}
	s.begun, s.out = false, s.out[:0]
	s.dropText()
	return true
}

func (s *stream) Abort() { s.s.Reset(http2.InternalError) }
