package proxy

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// mirrorInterim bounds the interim answers to one copy.
const mirrorInterim = 8

// mirrorWorker is a goroutine that carries one copy after the other.
type mirrorWorker struct {
	service *mirrorService
	next    chan *mirrorLeg // nil ends it
	since   time.Time       // idle

	req     http1.Request
	body    http1.ChunkReader // of req
	data    []byte            // decoded by it
	head    http2.Head
	waiting upstream.Waiting
	resp    http1.Response
	chunks  http1.ChunkReader
	answers chan mirrorResult
	timer   *time.Timer
}

// mirrorResult is how a copy, or its answer, ended.
type mirrorResult struct {
	outcome telemetry.MirrorOutcome
	// again: the connection can serve another copy.
	again bool
	// stale: the connection was closed while it was idle, which says nothing of the service.
	stale bool
}

func newMirrorWorker(s *mirrorService) *mirrorWorker {
	return &mirrorWorker{service: s, next: make(chan *mirrorLeg, 1)}
}

func (w *mirrorWorker) run(l *mirrorLeg) {
	for l != nil {
		w.carry(l)
		if !w.service.park(w) {
			return
		}
		l = <-w.next
	}
}

// carry takes the leg to its end.
func (w *mirrorWorker) carry(l *mirrorLeg) {
	result := mirrorResult{outcome: telemetry.MirrorFailedReset}
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
	if l.http2 {
		result = w.sendHTTP2(l)
	} else {
		result = w.sendHTTP1(l)
	}
}

// recovered reports a panic: a fault in here costs a copy, not the process.
func (w *mirrorWorker) recovered(p any) {
	if p != nil {
		w.service.mirrors.log.Error("panic in a mirror", "service", w.service.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// judge tells the breaker.
func (w *mirrorWorker) judge(l *mirrorLeg, r mirrorResult) {
	b := &w.service.breaker
	switch {
	case r.stale || telemetry.MirrorOutcome(l.fate.Load()).Dropped():
	case r.outcome == telemetry.MirrorSent:
		b.succeeded(l.probe)
		l.probe = false
	case r.outcome.Failed():
		w.service.failure.Store(uint32(r.outcome))
		if d := b.failed(time.Now(), l.probe); d > 0 {
			w.service.mirrors.log.Warn("mirror is left alone for a while", "service", w.service.name, "for", d, "outcome", r.outcome.String())
		}
		l.probe = false
	}
}

// connect gets a connection: a new one if it is to name the client, or if anew. One that is reused is checked now if now is set, or by its first write.
func (w *mirrorWorker) connect(l *mirrorLeg, now, anew bool) (c *upstream.Conn, reused bool, err error) {
	switch {
	case l.endpoint.Announces():
		c, err = l.endpoint.DialFor(time.Time{}, l.from)
	case anew:
		c, err = l.endpoint.Dial(time.Time{})
	case now:
		return l.endpoint.GetAlive(time.Time{})
	default:
		return l.endpoint.Get(time.Time{})
	}
	return c, false, err
}

// sendHTTP1 carries the leg over a connection.
func (w *mirrorWorker) sendHTTP1(l *mirrorLeg) mirrorResult {
	p, ended, over := l.take()
	if over {
		return mirrorResult{outcome: telemetry.MirrorDroppedAborted}
	}
	// Of a copy that is still gathered the answer is read while it is sent, so that the connection is checked before.
	c, reused, err := w.connect(l, !ended, false)
	if err != nil {
		return mirrorResult{outcome: telemetry.MirrorFailedConnect}
	}
	var r mirrorResult
	if ended {
		c, reused, r = w.ask(l, c, reused, p)
		if c == nil {
			return r
		}
	} else {
		r = w.stream(l, c, p)
	}
	if !l.detach() {
		c.Close()
		return mirrorResult{outcome: telemetry.MirrorDroppedAborted}
	}
	silent := reused && r.outcome == telemetry.MirrorFailedReset && len(c.Buffered()) == 0
	switch {
	case r.outcome == telemetry.MirrorSent:
		l.endpoint.Succeeded()
	case silent:
		r.stale = true
	case r.outcome.Failed():
		l.endpoint.Failed()
	}
	if r.again {
		l.endpoint.Put(c)
	} else {
		c.Close()
	}
	return r
}

// ask sends p, a whole copy, and reads the answer. A connection that had ended while it was idle is replaced by a new one; c is nil if there is none.
func (w *mirrorWorker) ask(l *mirrorLeg, c *upstream.Conn, reused bool, p []byte) (*upstream.Conn, bool, mirrorResult) {
	limit := w.service.mirrors.opt.Timeout
	for {
		now := time.Now()
		c.WriteBy(now.Add(limit), limit/4)
		c.ReadBy(now.Add(limit), limit/4)
		ask := c.Ask // in one step; but a new connection may have something to say before it is asked
		if !reused {
			ask = c.Write
		}
		n, err := ask(p)
		if n == 0 && err != nil && reused && !isTimeout(err) {
			c.Close()
			if c, reused, err = w.connect(l, false, true); err != nil {
				return nil, false, mirrorResult{outcome: telemetry.MirrorFailedConnect}
			}
			continue
		}
		if n < len(p) {
			return c, reused, mirrorFailure(err)
		}
		l.sent(n)
		l.forget()
		return c, reused, w.answer(c, l.bodyless) // meets the failure of a read again
	}
}

// stream sends a copy while it is gathered, beginning with p. The answer is read at the same time, since the service may begin it before it has
// the whole request.
func (w *mirrorWorker) stream(l *mirrorLeg, c *upstream.Conn, p []byte) mirrorResult {
	if !l.attach(c, nil) {
		return mirrorResult{}
	}
	opt := &w.service.mirrors.opt
	last := l.born.Add(opt.MaxDuration)
	w.setTimer(last)
	defer w.timer.Stop()
	c.ReadBy(last, opt.Timeout/4)
	w.await(func() mirrorResult { return w.answer(c, l.bodyless) })

	answers, answered, r := w.answers, false, mirrorResult{}
	ended := false
	for {
		if len(p) > 0 {
			c.WriteBy(time.Now().Add(opt.Timeout), opt.Timeout/4)
			if _, err := c.Write(p); err != nil {
				r = mirrorFailure(err)
				break
			}
			l.sent(len(p))
		} else if ended {
			break
		} else {
			select {
			case <-l.wake:
			case r = <-answers:
				answers, answered = nil, true
			case <-w.timer.C:
				r = mirrorResult{outcome: telemetry.MirrorDroppedTime}
			case <-w.service.mirrors.quit:
				r = mirrorResult{outcome: telemetry.MirrorDroppedDraining}
			}
			if r.outcome != telemetry.MirrorPending && r.outcome != telemetry.MirrorSent {
				break
			}
		}
		var over bool
		if p, ended, over = l.take(); over {
			r = mirrorResult{outcome: telemetry.MirrorDroppedAborted}
			break
		}
	}
	if !ended || r.outcome != telemetry.MirrorPending && r.outcome != telemetry.MirrorSent {
		c.Abort()
		if !answered {
			<-w.answers
		}
		return r
	}
	if !answered {
		c.ReadBy(time.Now().Add(opt.Timeout), opt.Timeout/4)
		r = <-w.answers
	}
	return r
}

// setTimer has the worker's timer fire at t.
func (w *mirrorWorker) setTimer(t time.Time) {
	if w.timer == nil {
		w.answers = make(chan mirrorResult, 1)
		w.timer = time.NewTimer(time.Until(t))
		return
	}
	w.timer.Reset(time.Until(t))
}

// await has read called by a goroutine, whose result comes to w.answers.
func (w *mirrorWorker) await(read func() mirrorResult) {
	go func() {
		r := mirrorResult{outcome: telemetry.MirrorFailedResponse}
		defer func() {
			w.recovered(recover())
			w.answers <- r
		}()
		r = read()
	}()
}

// answer reads an answer and discards it.
func (w *mirrorWorker) answer(c *upstream.Conn, bodyless bool) mirrorResult {
	method := "GET"
	if bodyless {
		method = "HEAD"
	}
	w.resp.Reset()
	for interim := 0; ; {
		if b := c.Buffered(); len(b) > 0 {
			n, err := w.resp.Parse(b, http1.Limits{}, method)
			if err != nil {
				return mirrorResult{outcome: telemetry.MirrorFailedResponse}
			}
			if n > 0 {
				c.Discard(n)
				if w.resp.Status >= 200 {
					break
				}
				if interim++; w.resp.Status == 101 || interim > mirrorInterim {
					return mirrorResult{outcome: telemetry.MirrorFailedResponse}
				}
				continue
			}
		}
		_, err := c.Fill()
		if err == upstream.ErrBufferFull {
			err = c.Grow(http1.DefaultHead)
		}
		if err != nil {
			return mirrorFailure(err)
		}
	}
	again, err := w.discard(c)
	switch {
	case err == nil || isTimeout(err):
		// An answer without end was an answer.
		return mirrorResult{outcome: telemetry.MirrorSent, again: again && w.resp.KeepAlive}
	case err == errMirrorAnswer:
		return mirrorResult{outcome: telemetry.MirrorFailedResponse}
	}
	return mirrorFailure(err)
}

var errMirrorAnswer = errors.New("malformed answer")

// discard reads the answer's body as far as it is worth it; whole says that it came to its end.
func (w *mirrorWorker) discard(c *upstream.Conn) (whole bool, err error) {
	most := w.service.mirrors.opt.MaxAnswerBytes
	switch body := w.resp.Body; body.Kind {
	case http1.BodyNone:
		return true, nil
	case http1.BodyLength:
		if body.Length > most {
			return false, nil
		}
		n := min(int64(len(c.Buffered())), body.Length)
		c.Discard(int(n))
		if n == body.Length {
			return true, nil
		}
		p := piecePool.Get().(*piece)
		defer piecePool.Put(p)
		for left := body.Length - n; left > 0; left -= n {
			m, err := c.Read(p.b[:min(left, pieceSize)])
			if n = int64(m); n == 0 && err != nil {
				return false, err
			}
		}
		return true, nil
	case http1.BodyChunked:
		w.chunks.Reset()
		for read := int64(0); read <= most; {
			for b := c.Buffered(); len(b) > 0; b = c.Buffered() {
				_, n, done, err := w.chunks.Next(b)
				if err != nil {
					return false, errMirrorAnswer
				}
				c.Discard(n)
				if done {
					return true, nil
				}
			}
			n, err := c.Fill()
			if read += int64(n); err != nil {
				return false, err
			}
		}
	case http1.BodyUntilClose:
		for read := int64(0); read <= most; {
			c.Discard(len(c.Buffered()))
			n, err := c.Fill()
			if err == io.EOF {
				return true, nil
			}
			if read += int64(n); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// mirrorFailure says what an error of a connection means.
func mirrorFailure(err error) mirrorResult {
	var te *upstream.TLSError
	switch {
	case errors.Is(err, upstream.ErrNoMemory):
		return mirrorResult{outcome: telemetry.MirrorDroppedBytes}
	case isTimeout(err):
		return mirrorResult{outcome: telemetry.MirrorFailedTimeout}
	case errors.As(err, &te):
		return mirrorResult{outcome: telemetry.MirrorFailedConnect}
	}
	return mirrorResult{outcome: telemetry.MirrorFailedReset}
}
