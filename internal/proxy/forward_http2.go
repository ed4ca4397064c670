package proxy

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// http2Attempts bounds how often a request is sent to one endpoint that has not looked at it.
const http2Attempts = 4

// tryHTTP2 sends the request over a stream to e and takes the answer's head into ex.resp. With a nil error ex.attempt.stream has the answer's body. What the
// endpoint says it did not process (RFC 9113 §8.7) is sent again as often as makes sense, whatever the method; a request that may be repeated is, once, if
// the connection it went to broke before a byte of the answer came.
func (ex *exchange) tryHTTP2(e *upstream.Endpoint) error {
	if ex.req.method == http.MethodConnect {
		return failConnect
	}
	if ex.req.expect100 {
		if err := ex.client.proceed(); err != nil {
			return err
		}
		ex.req.expect100 = false
	}
	if ex.req.body.Kind == http1.BodyChunked && !ex.whole {
		ex.beginCopies()
		if err := ex.gatherBody(); err != nil {
			return err
		}
	}
	a := &ex.attempt
	for try := 1; ; try++ {
		err := ex.openStream(e)
		if err != nil {
			return err
		}
		if err = ex.awaitStream(e); err == nil {
			return nil
		}
		reused := a.stream.ID() > 1
		cerr := ex.stopUpload()
		if ex.left() {
			cerr = failClientClosed
		}
		if cerr == nil {
			a.stream.Blame(err)
		}
		a.stream.Close()
		if cerr != nil {
			return cerr
		}
		if !ex.repeats(err, try, reused) || ex.expired() {
			return streamError(err)
		}
		ex.rewind()
	}
}

// repeats says whether a request whose stream failed is sent again at once.
func (ex *exchange) repeats(err error, try int, reused bool) bool {
	if !ex.replayable() || ex.attempt.informed {
		return false
	}
	var se *http2.StreamError
	var ce *http2.ConnError
	switch {
	case errors.As(err, &se) && se.Code == http2.RefusedStream:
		return try == 1
	case http2.Unprocessed(err):
		return try < http2Attempts
	case errors.As(err, &ce):
		return try == 1 && reused && idempotent(ex.req.method)
	}
	return false
}

// gatherBody takes what is here of a body of unknown length, so that it goes out with the head.
func (ex *exchange) gatherBody() error {
	for len(ex.keep) < joinBody && ex.client.ready() {
		p, err := ex.next()
		if ex.touched {
			ex.keep = append(ex.keep, p...) // too much to keep it for long, but it is needed for once
		}
		if err == io.EOF {
			ex.whole = true
			break
		}
		if err != nil {
			return err
		}
	}
	ex.body = ex.keep
	return nil
}

// openStream begins a stream with the head and what is in memory of the body; the rest is left to an upload.
func (ex *exchange) openStream(e *upstream.Endpoint) error {
	a := &ex.attempt
	var trailers []http1.Field
	if ex.whole {
		trailers = ex.requestTrailers()
	}
	ex.waiting = upstream.Waiting{Until: a.connectDeadline(), Wanted: ex}
	if e.Announces() {
		ex.waiting.From = ex.addresses()
	}
	s, sent, err := e.Open(ex.streamHead(), ex.body, ex.whole && len(trailers) == 0, &ex.waiting)
	if err != nil {
		switch {
		case ex.client.gone():
			return failClientClosed
		case ex.expired():
			return a.expired
		}
		return connectFailure(err)
	}
	a.stream = s
	ex.abortWithClient(s.Stream)
	ex.beginCopies() // after the write, so that they do not keep the primary waiting
	switch {
	case sent < len(ex.body), !ex.whole:
		u := &ex.upload
		u.stream, u.rest = s.Stream, ex.body[sent:]
		ex.startUpload()
	case len(trailers) > 0:
		s.SendTrailers(trailers) // that it failed shows when the answer is read
	}
	return nil
}

// Wanted implements upstream.Waiting.
func (ex *exchange) Wanted() bool { return !ex.client.gone() }

// streamHead is the request's head.
func (ex *exchange) streamHead() *http2.Head {
	r, h := &ex.req, &ex.request
	h.Method, h.Scheme, h.Authority, h.Path, h.Body = r.method, "http", ex.authority, ex.target, r.body
	if ex.backend.service.TLS {
		h.Scheme = "https"
	}
	h.Fields = ex.fields
	if te, _ := http1.GetID(r.fields, http1.FieldTE); r.grpc || http1.HasToken(te, "trailers") {
		h.Fields = append(h.Fields, http1.Field{Name: "te", Value: "trailers", ID: http1.FieldTE})
		ex.fields = h.Fields[:len(ex.fields)]
	}
	return h
}

// lookAt is until when to wait for the endpoint before looking whether that still makes sense: at the attempt's deadline, else after a while that http2
// needs no timer for.
func (ex *exchange) lookAt(now time.Time) time.Time {
	d := ex.attempt.deadline
	if d.IsZero() || d.Sub(now) > 3*look {
		return now.Add(2 * look)
	}
	if t := now.Add(look - look/16); t.Before(d) {
		return t
	}
	return d
}

// awaitStream waits for the head of the final answer; interim ones are passed on.
func (ex *exchange) awaitStream(e *upstream.Endpoint) error {
	now := ex.attempt.start
	since := now
	for {
		h, err := ex.attempt.stream.AwaitHead(ex.lookAt(now))
		if err == http2.ErrTimeout {
			now = time.Now()
			silence := ex.srv.opt.ResponseTimeout
			if ex.req.grpc {
				// gRPC has deadlines of its own: a server that streams may begin with its first message, whenever that is.
				since = now
			}
			if err := ex.stillWanted(now, &since, silence); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		ex.takeHead(h)
		if h.Status >= 200 {
			e.Answered(h.Status)
			return nil
		}
		if err := ex.inform(); err != nil {
			return err
		}
	}
}

// takeHead makes ex.resp of an answer's head.
func (ex *exchange) takeHead(h *http2.Head) {
	r := &ex.resp
	r.Reset()
	r.Status, r.KeepAlive, r.Body = h.Status, true, h.Body
	r.Fields = append(r.Fields, h.Fields...)
	if ex.req.http2 || ex.req.method == http.MethodHead {
		return
	}
	switch r.Body.Kind {
	case http1.BodyNone: // HTTP/1.1 must be told where the body ends that there is not
		if r.Status != http.StatusNoContent && r.Status != http.StatusNotModified {
			r.Body = http1.Body{Kind: http1.BodyLength}
		}
	case http1.BodyLength: // and has trailers only behind chunks
		if _, announced := http1.GetID(h.Fields, http1.FieldTrailer); announced {
			r.Body = http1.Body{Kind: http1.BodyChunked}
		}
	}
}

// relayHTTP2 passes the answer on from a stream.
func (ex *exchange) relayHTTP2() error {
	s := &ex.attempt.stream
	err := ex.head()
	if err == nil && ex.resp.Body.Kind != http1.BodyNone {
		err = ex.relayStream(s.Stream)
	}
	if err != nil {
		cerr := ex.stopUpload()
		var f *failure
		switch {
		case cerr != nil:
		case errors.As(err, &f):
			cerr = f
		case ex.left():
			cerr = failClientClosed
		default:
			s.Blame(err)
			cerr = streamError(err)
		}
		ex.closeStream()
		return cerr
	}
	err = ex.client.end(ex.sentTrailers(s.Trailers()))
	if ex.pollUpload(); ex.upload.running {
		ex.endUpload()
	}
	ex.closeStream()
	return err
}

func (ex *exchange) relayStream(s *http2.Stream) error {
	// The body of a short answer is about to come: head and body go out together.
	short := ex.resp.Body.Kind == http1.BodyLength && ex.resp.Body.Length <= gather
	var since time.Time
	for {
		var until time.Time
		if !s.Ready() {
			if !short {
				if err := ex.client.flush(); err != nil {
					return err
				}
			}
			now := time.Now()
			if until = ex.lookAt(now); since.IsZero() {
				since = now
			}
		}
		short = false
		p, err := s.Next(until)
		switch err {
		case nil:
		case io.EOF:
			return nil
		case http2.ErrTimeout:
			now := time.Now()
			if ex.req.grpc {
				since = now
			}
			if err := ex.stillWanted(now, &since, ex.srv.opt.StreamTimeout); err != nil {
				return err
			}
			continue
		default:
			return err
		}
		since = time.Time{}
		if err := ex.write(p); err != nil {
			return err
		}
	}
}

// left ends the watch over an HTTP/2 client and is true if the client has left.
func (ex *exchange) left() bool { return !ex.attempt.unwatch() }

// closeStream ends the attempt, whose upload has ended.
func (ex *exchange) closeStream() {
	ex.attempt.unwatch()
	ex.attempt.stream.Close()
}

// streamError is what an error of a stream means.
func streamError(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	if errors.Is(err, http2.ErrNoMemory) {
		return failAnswerRoom
	}
	var se *http2.StreamError
	var ce *http2.ConnError
	if errors.As(err, &se) && !se.Remote || errors.As(err, &ce) && !ce.Remote && ce.Code != http2.NoError {
		return &failure{status: 502, reason: telemetry.MalformedResponse, detail: "the backend's answer is not valid HTTP", err: err}
	}
	return &failure{status: 502, reason: telemetry.BackendReset, detail: "the backend closed the connection", err: err, retry: true}
}
