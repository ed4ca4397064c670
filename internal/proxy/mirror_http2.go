package proxy

import (
	"errors"
	"io"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// sendHTTP2 carries the leg over a stream.
func (w *mirrorWorker) sendHTTP2(l *mirrorLeg) mirrorResult {
	p, ended, over := l.take()
	if over {
		return mirrorResult{outcome: telemetry.MirrorDroppedAborted}
	}
	w.req.Reset() // a head may not have been whole
	n, err := w.req.Parse(p, http1.Limits{Line: len(p) + 1, Head: len(p) + 1, Fields: len(p)})
	if n == 0 {
		w.service.mirrors.log.Error("a mirrored head cannot be sent over HTTP/2", "service", w.service.name, "error", err)
		return mirrorResult{outcome: telemetry.MirrorDroppedAborted}
	}
	w.body.Reset()
	data, done, err := w.decode(l, p[n:])
	if err != nil {
		return mirrorResult{outcome: telemetry.MirrorDroppedAborted}
	}
	done = done || ended
	trailers := w.trailers(done)
	w.waiting = upstream.Waiting{Wanted: l, From: l.from}
	s, sent, err := l.endpoint.Open(w.streamHead(), data, done && len(trailers) == 0, &w.waiting)
	if err != nil {
		return mirrorResult{outcome: telemetry.MirrorFailedConnect}
	}
	defer func() {
		l.detach() // from now on nobody else ends the stream
		s.Close()
		if cap(w.data) > mirrorKeep {
			w.data = nil
		}
	}()
	if !l.attach(nil, s.Stream) {
		return mirrorResult{outcome: telemetry.MirrorDroppedAborted}
	}
	data = data[sent:]
	if !done {
		l.sent(len(p) - len(data))
		return w.streamHTTP2(l, &s, data)
	}
	switch {
	case len(trailers) > 0:
		err = s.Finish(nil, data, trailers)
	case len(data) > 0:
		err = s.Send(data, true)
	}
	if err == http2.ErrTimeout {
		return mirrorResult{outcome: telemetry.MirrorFailedTimeout}
	}
	l.sent(len(p)) // any other failure shows in the answer
	w.forget(p)
	l.forget()
	return w.answerHTTP2(l, &s, time.Now().Add(w.service.mirrors.opt.Timeout))
}

// Wanted implements upstream.Waiting.
func (l *mirrorLeg) Wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.service.mirrors.quit:
		return false
	default:
	}
	return !l.over
}

// decode takes the body out of what was gathered; done says that it is whole.
func (w *mirrorWorker) decode(l *mirrorLeg, p []byte) (data []byte, done bool, err error) {
	if !l.chunked {
		return p, false, nil
	}
	w.data = w.data[:0]
	for len(p) > 0 && !done {
		var piece []byte
		var n int
		if piece, n, done, err = w.body.Next(p); err != nil {
			return nil, false, err
		}
		w.data = append(w.data, piece...)
		p = p[n:]
	}
	return w.data, done, nil
}

// trailers are those behind a body that is done.
func (w *mirrorWorker) trailers(done bool) []http1.Field {
	if !done || w.req.Body.Kind != http1.BodyChunked {
		return nil
	}
	return w.body.Trailers()
}

// streamHead is the head of w.req.
func (w *mirrorWorker) streamHead() *http2.Head {
	r, h := &w.req, &w.head
	h.Method, h.Scheme, h.Authority, h.Path, h.Body = r.Method, "http", r.Authority, r.Target, r.Body
	if w.service.upstream.Load().TLS {
		h.Scheme = "https"
	}
	h.Fields = h.Fields[:0]
	for i := range r.Fields {
		switch f := &r.Fields[i]; f.ID {
		case http1.FieldHost, http1.FieldContentLength, http1.FieldTransferEncoding:
		default:
			h.Fields = append(h.Fields, *f)
		}
	}
	return h
}

// streamHTTP2 sends a copy while it is gathered, beginning with data. The answer is read at the same time.
func (w *mirrorWorker) streamHTTP2(l *mirrorLeg, s *upstream.Stream, data []byte) mirrorResult {
	opt := &w.service.mirrors.opt
	last := l.born.Add(opt.MaxDuration)
	w.setTimer(last)
	defer w.timer.Stop()
	w.await(func() mirrorResult { return w.answerHTTP2(l, s, last) })

	answers, r := w.answers, mirrorResult{}
	end := func(o telemetry.MirrorOutcome) mirrorResult {
		s.Abort()
		if answers != nil {
			<-answers
		}
		return mirrorResult{outcome: o}
	}
	owed := len(data) // bytes taken and not sent
	for done := false; ; {
		if len(data) > 0 || done {
			var err error
			if done {
				err = s.Finish(nil, data, w.trailers(true))
			} else {
				err = s.Send(data, false)
			}
			if err == http2.ErrTimeout && r.outcome == telemetry.MirrorPending {
				return end(telemetry.MirrorFailedTimeout)
			}
			l.sent(owed)
			if err != nil || done {
				l.forget()
				break // what an error means shows in the answer
			}
		}
		p, ended, over := l.take()
		if over {
			return end(telemetry.MirrorDroppedAborted)
		}
		var wait <-chan struct{} = always
		if len(p) == 0 && !ended {
			wait = l.wake
		}
		select {
		case <-wait:
		case r = <-answers:
			answers = nil
			switch r.outcome {
			case telemetry.MirrorSent:
			case telemetry.MirrorFailedTimeout: // the answer's time ends with the copy's
				return end(telemetry.MirrorDroppedTime)
			default:
				return r
			}
		case <-w.timer.C:
			return end(telemetry.MirrorDroppedTime)
		case <-w.service.mirrors.quit:
			return end(telemetry.MirrorDroppedDraining)
		}
		var err error
		if data, done, err = w.decode(l, p); err != nil {
			return end(telemetry.MirrorDroppedAborted)
		}
		owed = len(p)
		done = done || ended
	}
	if answers == nil {
		return r
	}
	w.timer.Reset(opt.Timeout)
	select {
	case r = <-answers:
		return r
	case <-w.timer.C:
	}
	s.Abort()
	if r = <-answers; r.outcome != telemetry.MirrorSent {
		r.outcome = telemetry.MirrorFailedTimeout
	}
	return r
}

// always can be received from.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// answerHTTP2 reads an answer, which is to begin by until, and discards it.
func (w *mirrorWorker) answerHTTP2(l *mirrorLeg, s *upstream.Stream, until time.Time) mirrorResult {
	for interim := 0; ; interim++ {
		h, err := s.AwaitHead(until)
		if err != nil {
			return w.failedHTTP2(s, err)
		}
		if h.Status >= 200 {
			l.endpoint.Answered(h.Status)
			break
		}
		if interim == mirrorInterim {
			return mirrorResult{outcome: telemetry.MirrorFailedResponse}
		}
	}
	for left := w.service.mirrors.opt.MaxAnswerBytes; left >= 0; {
		p, err := s.Next(until)
		switch left -= int64(len(p)); {
		case err == nil:
			continue
		case err == io.EOF, err == http2.ErrTimeout, err == http2.ErrInterrupted:
			// An answer without end was an answer.
			return mirrorResult{outcome: telemetry.MirrorSent}
		}
		return w.failedHTTP2(s, err)
	}
	return mirrorResult{outcome: telemetry.MirrorSent}
}

// failedHTTP2 says what the failure of a stream means.
func (w *mirrorWorker) failedHTTP2(s *upstream.Stream, err error) mirrorResult {
	s.Blame(err)
	var se *http2.StreamError
	switch {
	case err == http2.ErrTimeout:
		return mirrorResult{outcome: telemetry.MirrorFailedTimeout}
	case err == http2.ErrInterrupted:
		return mirrorResult{outcome: telemetry.MirrorDroppedAborted}
	case errors.As(err, &se) && !se.Remote:
		return mirrorResult{outcome: telemetry.MirrorFailedResponse}
	}
	return mirrorResult{outcome: telemetry.MirrorFailedReset}
}
