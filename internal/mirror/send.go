package mirror

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// mostInterim bounds the interim answers to one copy.
const mostInterim = 8

// worker is a goroutine that sends one copy after another.
type worker struct {
	service *service
	next    chan *Leg // nil ends it
	since   time.Time // idle

	call    upstream.Call
	waiting upstream.Waiting
	last    http1.ChunkReader // of trailers
	resp    http1.Response
	answers chan result
	timer   *time.Timer
}

// result is how a copy, or its answer, ended.
type result struct {
	outcome telemetry.MirrorOutcome
	// stale reports that the connection was closed while it was idle, which does not count against the service.
	stale bool
}

func newWorker(s *service) *worker {
	return &worker{service: s, next: make(chan *Leg, 1)}
}

func (w *worker) run(l *Leg) {
	for l != nil {
		w.carry(l)
		if !w.service.park(w) {
			return
		}
		l = <-w.next
	}
}

// carry sends the leg to its end.
func (w *worker) carry(l *Leg) {
	result := result{outcome: telemetry.MirrorFailedReset}
	s := w.service
	defer func() {
		w.recovered(recover())
		l.detach()
		select {
		case <-s.mirrors.quit:
			if result.outcome.Failed() {
				result.outcome = telemetry.MirrorDroppedDraining
			}
		default:
		}
		w.judge(l, result)
		l.settle(result.outcome)
		l.finish()
		l.release()
	}()
	result = w.send(l)
}

// recovered reports a panic: a bug here costs a copy, not the process.
func (w *worker) recovered(p any) {
	if p == nil {
		return
	}
	m := w.service.mirrors
	if suppressed, ok := m.panics.Allow(""); ok {
		m.log.Error("panic in a mirror", loglimit.Args(suppressed, "service", w.service.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))...)
	}
}

// judge tells the breaker.
func (w *worker) judge(l *Leg, r result) {
	b := &w.service.breaker
	switch {
	case r.stale || telemetry.MirrorOutcome(l.fate.Load()).Dropped():
	case r.outcome == telemetry.MirrorSent:
		b.succeeded(l.probe)
		l.probe = false
	case r.outcome.Failed():
		w.service.failure.Store(uint32(r.outcome))
		if d := b.failed(time.Now(), l.probe); d > 0 {
			w.service.mirrors.log.Warn("mirror paused after failures", "service", w.service.name, "for", d, "outcome", r.outcome.String())
		}
		l.probe = false
	}
}

// send carries the leg.
func (w *worker) send(l *Leg) result {
	c, opt := &w.call, &w.service.mirrors.opt
	p, ended, over := l.take()
	if over {
		return result{outcome: telemetry.MirrorDroppedAborted}
	}
	c.Request, c.Stall = l.request, opt.Timeout
	c.Begin()
	c.First(p)
	if ended {
		c.End(w.trailers(l))
	}
	defer c.Shrink(keepSize)
	w.waiting = upstream.Waiting{Wanted: l, From: l.from}
	for try := 1; ; try++ {
		now := time.Now()
		if c.Deadline = now.Add(opt.Timeout); !ended {
			c.Deadline = l.born.Add(opt.MaxDuration)
		}
		if err := c.Open(l.endpoint, &w.waiting, try, now); err != nil {
			if upstream.IsFull(err) {
				return result{outcome: telemetry.MirrorDroppedNoEndpoint}
			}
			return result{outcome: telemetry.MirrorFailedConnect}
		}
		var r result
		var err error
		if l.attach(c.Aborter()) {
			// This takes one step on a reused connection. The server of a new one may send something before the
			// request.
			if err = c.Send(c.Reused()); err == nil {
				r, err = w.carryOn(l, ended, len(p))
			}
		}
		if err != nil {
			r.outcome, r.stale = w.failed(err), c.Stale(err)
		}
		again := err != nil && c.Again(err, false) && c.Unsent()
		if !again && !l.detach() || again && !l.attach(nil) {
			c.Abort() // an abort may follow, and must not hit another copy's call
			again, r = false, result{outcome: telemetry.MirrorDroppedAborted}
		}
		if r.outcome == telemetry.MirrorFailedTimeout {
			l.endpoint.Failed()
		}
		if c.Close(); !again {
			return r
		}
	}
}

// carryOn sends the rest of a copy whose first n bytes were sent, and reads the answer. It returns an error only if
// reading the answer of a complete copy failed.
func (w *worker) carryOn(l *Leg, ended bool, n int) (result, error) {
	c, opt := &w.call, &w.service.mirrors.opt
	if !ended {
		return w.stream(l, n), nil
	}
	if !c.Sent() {
		if c.Finish(w.trailers(l)) == upstream.ErrTimeout {
			return result{outcome: telemetry.MirrorFailedTimeout}, nil
		} // any other failure shows in the answer
		c.Deadline = time.Now().Add(opt.Timeout)
	}
	l.sentAll()
	if err := w.answer(); err != nil {
		return result{}, err
	}
	return result{outcome: telemetry.MirrorSent}, nil
}

// stream sends a copy while it is gathered; owed bytes of it were taken. It reads the answer at the same time, because
// the service may begin to answer before it has the whole request.
func (w *worker) stream(l *Leg, owed int) result {
	c, opt := &w.call, &w.service.mirrors.opt
	w.setTimer(l.born.Add(opt.MaxDuration))
	defer w.timer.Stop()
	w.await()

	answers, r := w.answers, result{}
	end := func(o telemetry.MirrorOutcome) result {
		c.Abort()
		if answers != nil {
			<-answers
		}
		return result{outcome: o}
	}
	var p []byte
	for ended := false; ; {
		err := c.Write(p, false) // the first time, what did not fit before
		if err == nil && ended {
			err = c.Finish(w.trailers(l))
		}
		if err != nil && upstream.IsTimeout(err) && r.outcome == telemetry.MirrorPending {
			return end(telemetry.MirrorFailedTimeout)
		}
		l.sent(owed)
		if err != nil || ended {
			l.forget()
			break // the answer shows what an error means
		}
		var over bool
		if p, ended, over = l.take(); over {
			return end(telemetry.MirrorDroppedAborted)
		}
		owed = len(p)
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
			case telemetry.MirrorFailedTimeout: // the time for the answer ends with the copy's time
				return end(telemetry.MirrorDroppedTime)
			default:
				return r
			}
		case <-w.timer.C:
			return end(telemetry.MirrorDroppedTime)
		case <-w.service.mirrors.quit:
			return end(telemetry.MirrorDroppedDraining)
		}
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
	c.Abort()
	if r = <-answers; r.outcome != telemetry.MirrorSent {
		r.outcome = telemetry.MirrorFailedTimeout
	}
	return r
}

// always is a channel that can always be received from.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// trailers returns the trailers of a complete copy.
func (w *worker) trailers(l *Leg) []http1.Field {
	if len(l.trailers) == 0 {
		return nil
	}
	w.last.Reset()
	w.last.Next(l.trailers) // which were made from fields
	return w.last.Trailers()
}

// setTimer makes the worker's timer fire at t.
func (w *worker) setTimer(t time.Time) {
	if w.timer == nil {
		w.answers = make(chan result, 1)
		w.timer = time.NewTimer(time.Until(t))
		return
	}
	w.timer.Reset(time.Until(t))
}

// await starts a goroutine that reads the answer and sends the result to w.answers.
func (w *worker) await() {
	go func() {
		r := result{outcome: telemetry.MirrorFailedResponse}
		defer func() {
			w.recovered(recover())
			w.answers <- r
		}()
		r.outcome = telemetry.MirrorSent
		if err := w.answer(); err != nil {
			r = result{outcome: w.failed(err), stale: w.call.Stale(err)}
		}
	}()
}

// answer reads an answer, as far as that is worth it, and discards it.
func (w *worker) answer() error {
	c := &w.call
	w.resp.Reset()
	for interim := 0; ; interim++ {
		if err := c.Head(&w.resp); err != nil {
			return err
		}
		if w.resp.Status >= 200 {
			break
		}
		if interim == mostInterim {
			return upstream.ErrInterim
		}
	}
	left := w.service.mirrors.opt.MaxAnswerBytes
	if body := w.resp.Body; body.Kind == http1.BodyLength && body.Length > left {
		return nil
	}
	for left >= 0 {
		p, err := c.Next()
		left -= int64(len(p))
		switch err {
		case nil:
		case io.EOF, upstream.ErrTimeout, upstream.ErrAborted:
			return nil // an endless answer counts as an answer
		default:
			return err
		}
	}
	return nil
}

// failed returns the outcome for an error of the call, by what it means and who caused it.
func (w *worker) failed(err error) telemetry.MirrorOutcome {
	w.call.Blame(err)
	var te *upstream.TLSError
	var malformed *http1.Error
	var se *http2.StreamError
	switch {
	case errors.Is(err, upstream.ErrNoMemory), errors.Is(err, http2.ErrNoMemory):
		return telemetry.MirrorDroppedBytes
	case errors.As(err, &te):
		return telemetry.MirrorFailedConnect
	case err == upstream.ErrInterim, errors.Is(err, upstream.ErrBufferFull), errors.As(err, &malformed), errors.As(err, &se) && !se.Remote:
		return telemetry.MirrorFailedResponse
	case upstream.IsTimeout(err):
		return telemetry.MirrorFailedTimeout
	}
	return telemetry.MirrorFailedReset
}
