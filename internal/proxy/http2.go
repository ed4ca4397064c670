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

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/pace"
	"github.com/weirmesh/weir/internal/telemetry"
)

const http2Preface = http2.Preface

// isPreface is true if the bytes are the beginning of HTTP/2 with prior knowledge (RFC 9113 §3.4), as far as they go.
func isPreface(b []byte) bool {
	n := min(len(b), len(http2Preface))
	return string(b[:n]) == http2Preface[:n]
}

// idleWorkers is how many goroutines are kept for streams to come, for each processor.
const idleWorkers = 64

// serveHTTP2 serves the connection's streams to its end; early is what was read behind the preface, if that was read.
func (c *conn) serveHTTP2(early []byte, sawPreface bool) {
	if c.w != nil {
		putWork(c.w)
		c.w = nil
		c.giveBack()
	}
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
		h.Shutdown() // the bind may not have seen it
	}
	c.ended(h.Run(early, sawPreface))
}

// goAway tells an HTTP/2 client that the port is about to close.
func (c *conn) goAway() {
	if h := c.h2.Load(); h != nil {
		h.Shutdown()
	}
}

// refusedStream counts a request whose head was malformed.
func (c *conn) refusedStream(err *http2.StreamError) {
	c.srv.opt.Metrics.Unrouted().Fail(c.shard, telemetry.BadRequest)
	c.srv.log.Debug("HTTP/2 request refused", "client", c.remote(), "error", err)
}

// ended logs why a connection ended, and counts it if it had to be ended because of the client.
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
			c.srv.log.Info("closing HTTP/2 connection: flood", loglimit.Args(suppressed, "client", c.remote(), "cause", e.Detail)...)
			return
		}
	}
	c.srv.log.Debug("HTTP/2 connection ended", "client", c.remote(), "error", err)
}

// stream is the HTTP/2 side of an exchange; it implements client.
type stream struct {
	ex exchange
	s  *http2.Stream

	whole     []byte      // the body, if all of it came with the head
	taken     bool        // whole is
	continued atomic.Bool // the client does not wait for 100 (Continue)
	arrived   atomic.Bool // some of the body has
	answering atomic.Bool // the answer has begun
	err       error       // reading ended
	pace      pace.Pace   // of the client in sending its body
	came      int64       // bytes of the body, when pace was looked at last

	head  http2.Head // of the answer
	begun bool
	sent  bool   // of the answer, the head at least
	noOut bool   // it has no body
	out   []byte // of its body, what is still to be sent
	text  []byte // the head's strings
}

var streamPool = sync.Pool{New: func() any { return new(stream) }}

// serveStream serves one request.
func (c *conn) serveStream(hs *http2.Stream) {
	s := streamPool.Get().(*stream)
	defer func() {
		if p := recover(); p != nil {
			s.ex.dispose()
			c.srv.recovered(p)
			return // s is not used again
		}
		s.release()
	}()
	s.serve(c, hs)
}

func (s *stream) serve(c *conn, hs *http2.Stream) {
	s.s = hs
	ex := &s.ex
	ex.reset()
	ex.srv, ex.client, ex.conn, ex.shard = c.srv, s, c, c.shard
	if ex.snap, ex.port = c.bind.snapshot(); ex.port.TLS != (c.tls != nil) {
		ex.port = nil
	}
	ex.start = hs.Born()
	if f := s.message(); f != nil {
		ex.fail(f)
		ex.finish()
		return
	}
	ex.serve()
}

// message fills in the neutral request. http2 has checked the fields (RFC 9113 §8.2, §8.3); what goes into the first lines of HTTP/1.1 is checked here.
func (s *stream) message() *failure {
	h, q := s.s.Head(), &s.ex.req
	*q = request{proto: "HTTP/2.0", http2: true, minor: 1, method: h.Method, target: h.Path, authority: h.Authority, fields: h.Fields, body: h.Body}
	expect, other, host := false, false, ""
	for i := range q.fields {
		switch f := &q.fields[i]; f.ID {
		case http1.FieldContentType:
			q.grpc = isGRPC(f.Value)
		case http1.FieldExpect:
			proceed, unknown := http1.Expectations(f.Value)
			expect, other = expect || proceed, other || unknown
		case http1.FieldHost:
			if host != "" && !http1.EqualFold(f.Value, host) {
				return failMalformed
			}
			host = f.Value
		}
	}
	if q.authority == "" {
		q.authority = host
	}
	s.ex.setHost()
	q.path, q.query, q.hasQuery = strings.Cut(q.target, "?")
	limits := &s.ex.srv.opt.Limits
	switch {
	case h.TooLarge:
		return failHeadSize
	case len(q.method)+len(q.target)+len("  HTTP/1.1\r\n") > limits.Line:
		return failLineSize
	case host != "" && !http1.EqualFold(host, q.authority):
		return failMalformed // RFC 9113 §8.3.1
	case other:
		return failExpectation
	case q.method == http.MethodConnect:
		q.form = http1.FormAuthority
		return failConnect
	case !http1.EqualFold(h.Scheme, "http") && !http1.EqualFold(h.Scheme, "https"):
		return failMalformed // others are not served here; which of the two is for the connection to say
	case !http1.ValidMethod(q.method) || !http1.ValidAuthority(q.authority):
		return failMalformed
	case q.target == "*" && q.method == http.MethodOptions:
		q.form = http1.FormAsterisk
	case q.target[0] != '/':
		return failMalformed
	}
	if valid, unescaped := http1.CheckTarget(q.target); !valid {
		return failMalformed
	} else if unescaped {
		s.ex.escapeTarget()
	}
	s.takeBody()
	q.expect100 = expect && s.whole == nil && q.body.Content()
	s.continued.Store(!q.expect100)
	if q.grpc {
		s.s.Patient()
	}
	return nil
}

// takeBody settles what is known of the body. One that has come whole by now has a known length.
func (s *stream) takeBody() {
	q := &s.ex.req
	switch q.body.Kind {
	case http1.BodyNone:
		switch q.method {
		case http.MethodPost, http.MethodPut, http.MethodPatch:
			q.body = http1.Body{Kind: http1.BodyLength} // RFC 9110 §8.6
		}
		return
	}
	if b, ok := s.s.Whole(); ok {
		s.whole = b
		if s.whole == nil {
			s.whole = []byte{}
		}
		if !q.grpc { // which goes over HTTP/2, and announces no lengths
			q.body = http1.Body{Kind: http1.BodyLength, Length: int64(len(b))}
		}
	}
}

func (s *stream) release() {
	s.ex.shrink()
	s.ex.req = request{}
	s.s, s.whole, s.taken, s.err = nil, nil, false, nil
	s.pace, s.came = pace.Pace{}, 0
	s.arrived.Store(false)
	s.answering.Store(false)
	s.begun, s.sent, s.noOut = false, false, false
	clear(s.head.Fields)
	s.head = http2.Head{Fields: s.head.Fields[:0]}
	if cap(s.out) > keepSize {
		s.out = nil
	}
	if cap(s.text) > keepSize {
		s.text = nil
	}
	s.out = s.out[:0]
	streamPool.Put(s)
}

func (s *stream) buffered() []byte {
	s.taken = s.whole != nil
	return s.whole
}

func (s *stream) ready() bool { return s.err != nil || s.s.Ready() }

func (s *stream) next() ([]byte, error) {
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
	m := s.ex.srv.minPace
	start := time.Now()
	latest := start.Add(s.ex.srv.opt.StreamTimeout)
	if s.ex.req.grpc {
		return s.s.Next(latest) // it is never due, see bodyDue
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
			limit = min(limit, m.LookAfter()) // it may become due, or be so no more
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

// bodyDue is true while the client is to send its body without pauses; see conn.bodyDue.
func (s *stream) bodyDue() bool {
	q := &s.ex.req
	return !q.grpc && !s.waitsToBegin() && (q.body.Kind == http1.BodyLength || !s.answering.Load())
}

// streamBodyFailure is why reading a stream's body ended; io.EOF is that.
func streamBodyFailure(err error) error {
	var se *http2.StreamError
	switch {
	case err == io.EOF:
		return err
	case err == http2.ErrInterrupted:
		return failInterrupted
	case errors.As(err, &se) && !se.Remote:
		return &failure{reason: telemetry.BadBody, detail: se.Detail, err: err}
	}
	return bodyFailure(err)
}

func (s *stream) trailers() []http1.Field { return s.s.Trailers() }

func (s *stream) interrupt() { s.s.Pause() }

func (s *stream) resume() {
	s.s.Resume()
	if s.err == failInterrupted {
		s.err = nil
	}
}

func (s *stream) proceed() error { return s.inform(http.StatusContinue, nil) }

func (s *stream) gone() bool { return s.s.Gone() }

// waitsToBegin is true while the client may be waiting for 100 (Continue) before it sends its body.
func (s *stream) waitsToBegin() bool { return !s.continued.Load() && !s.arrived.Load() }

func (s *stream) inform(status int, fields []http1.Field) error {
	if status == http.StatusContinue {
		if s.continued.Swap(true) {
			return nil
		}
	}
	if err := s.s.Answer(&http2.Head{Status: status, Fields: fields}, nil, false); err != nil {
		return writeFailure(err)
	}
	return nil
}

// begin implements client.
func (s *stream) begin(a *answer) error {
	h := &s.head
	h.Status, h.Body = a.status, a.body
	size := 0
	for i := range a.fields {
		size += len(a.fields[i].Name) + len(a.fields[i].Value)
	}
	if cap(s.text) < size {
		s.text = make([]byte, 0, max(size, 1<<10))
	}
	text, fields := s.text[:0], h.Fields[:0]
	for i := range a.fields {
		f := &a.fields[i]
		n, v := len(text), len(text)+len(f.Name)
		text = append(append(text, f.Name...), f.Value...)
		fields = append(fields, http1.Field{Name: alias(text[n:v]), Value: alias(text[v:])})
	}
	s.text, h.Fields = text, fields
	s.noOut = a.body.Kind == http1.BodyNone || s.ex.req.method == http.MethodHead
	s.begun, s.out = true, s.out[:0]
	s.answering.Store(true)
	return nil
}

// alias is b as a string.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func (s *stream) write(p []byte) error {
	if s.noOut || len(p) == 0 {
		return nil
	}
	if len(p) <= gather/2 {
		if s.out = append(s.out, p...); len(s.out) < gather {
			return nil
		}
		return s.flush()
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.wrote(s.s.Send(p, false))
}

func (s *stream) flush() error {
	var err error
	switch {
	case s.begun && !s.sent:
		s.sent = true
		err = s.s.Answer(&s.head, s.out, false)
	case len(s.out) > 0:
		err = s.s.Send(s.out, false)
	}
	s.out = s.out[:0]
	return s.wrote(err)
}

func (s *stream) end(trailers []http1.Field) error {
	var head *http2.Head
	if !s.sent {
		s.sent = true
		head = &s.head
	}
	err := s.s.Finish(head, s.out, trailers)
	s.out = s.out[:0]
	return s.wrote(err)
}

func (s *stream) wrote(err error) error {
	if err != nil {
		return writeFailure(err)
	}
	return nil
}

func (s *stream) retract() bool {
	if s.sent {
		return false
	}
	s.begun, s.out = false, s.out[:0]
	return true
}

func (s *stream) abort() { s.s.Reset(http2.InternalError) }
