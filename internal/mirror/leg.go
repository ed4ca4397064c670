package mirror

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// Leg is one copy. The exchange calls Write any number of times, then End or Abort once, then Outcome once as its last
// call. The leg copies the head when it begins, and then the body's bytes without framing. A worker sends the copied
// bytes in the meantime. A worker gets the copy after Outcome, when the primary was answered. It gets the copy earlier
// if the bytes exceed the first part, or if the leg was held back for long (waitingCopies).
type Leg struct {
	service  *service
	target   *Target
	metric   *telemetry.Mirror
	shard    uint32
	endpoint *upstream.Endpoint
	from     clientaddr.Pair // for endpoints that want a PROXY header
	born     time.Time
	probe    bool             // of the breaker
	request  upstream.Request // its strings are in text
	text     []byte
	trailers []byte // formatted as a last chunk; empty if there are none
	chunked  bool

	wake chan struct{} // the worker has something new to do
	refs atomic.Int32  // the exchange's, the worker's, and that of waitingCopies
	fate atomic.Uint32 // telemetry.MirrorOutcome, settled once

	mu      sync.Mutex // never held while anything waits
	left    int64      // bytes of a body of known length still to be written
	queue   copyQueue
	unsent  int           // bytes gathered and not sent
	listed  bool          // it was held back
	carried bool          // it counts among the service's copies in flight
	started bool          // a worker has it or is about to
	ended   bool          // all is gathered
	over    bool          // nothing more is gathered
	call    http2.Aborter // what an aborted copy must stop

	// Of waitingCopies.
	waiting        bool
	turn           uint32
	before, behind *Leg
}

var legPool = sync.Pool{New: func() any {
	return &Leg{text: make([]byte, 0, 1<<10), wake: make(chan struct{}, 1)}
}}

func (l *Leg) reset(s *service, e *upstream.Endpoint, now time.Time, probe bool) {
	l.service, l.endpoint, l.born, l.probe = s, e, now, probe
	l.refs.Store(1)
	l.fate.Store(uint32(telemetry.MirrorPending))
	l.unsent = 0
	l.listed, l.carried, l.started, l.ended, l.over = false, false, false, false, false
	l.trailers = l.trailers[:0]
	l.from = clientaddr.Pair{}
}

func (l *Leg) recycle() {
	select {
	case <-l.wake:
	default:
	}
	l.queue.reset()
	if cap(l.text) > keepSize {
		l.text = nil
	}
	l.service, l.target, l.metric, l.endpoint, l.call = nil, nil, nil, nil, nil
	legPool.Put(l)
}

// release gives up one hold on the leg.
func (l *Leg) release() {
	if l.refs.Add(-1) == 0 {
		l.recycle()
	}
}

// Write copies a piece of the body. It never blocks and never fails; a leg that exceeds its bounds is abandoned and
// counted.
func (l *Leg) Write(p []byte) {
	if len(p) == 0 {
		return
	}
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return
	}
	n := len(p)
	if !l.chunked && int64(n) > l.left {
		l.abandon(telemetry.MirrorDroppedAborted)
		return
	}
	if o := l.room(n); o != telemetry.MirrorPending {
		l.abandon(o)
		return
	}
	l.unsent += n
	l.queue.put(p)
	if !l.chunked {
		l.left -= int64(n)
	}
	l.hand()
}

// End reports that the body is complete.
func (l *Leg) End(trailers []http1.Field) {
	l.mu.Lock()
	switch {
	case l.over:
		l.mu.Unlock()
		return
	case l.left > 0:
		l.abandon(telemetry.MirrorDroppedAborted)
		return
	}
	l.ended = true
	if l.chunked && len(trailers) > 0 {
		l.trailers = http1.AppendLastChunk(l.trailers, trailers)
		l.unsent += len(l.trailers)
		l.service.queued.Add(int64(len(l.trailers)))
	}
	l.hand()
}

// Abort reports that the request ended before its body was complete.
func (l *Leg) Abort() {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return
	}
	l.abandon(telemetry.MirrorDroppedAborted)
}

// Outcome returns what is known about the copy now. The leg must not be used afterwards.
func (l *Leg) Outcome() telemetry.MirrorOutcome {
	held := &l.service.mirrors.waiting
	l.mu.Lock()
	if l.listed {
		l.listed = false
		l.mu.Unlock()
		held.remove(l)
		l.mu.Lock()
	}
	switch {
	case l.started || l.over:
		l.mu.Unlock()
	case !l.reserve():
	default:
		l.mu.Unlock()
		if held.postpone(l) {
			return telemetry.MirrorPending
		}
		l.refs.Add(1)
		l.beginHeld()
	}
	o := telemetry.MirrorOutcome(l.fate.Load())
	l.release()
	return o
}

// fairShare is how far any copy may fall behind, as long as the service has room. Beyond that, a copy may take no more
// than it leaves for all others. So a single copy takes half of the service's bound, two take a third each, and small
// ones always find room.
const fairShare = 256 << 10

// room counts n bytes more as held, or returns why they do not fit. The caller holds mu.
func (l *Leg) room(n int) telemetry.MirrorOutcome {
	s, most := l.service, int64(l.unsent+n)
	opt := &s.mirrors.opt
	cause := dropNothing
	switch {
	case most > int64(opt.MaxCopyBytes):
		cause = DropBody
	case most > fairShare && most > opt.MaxBytes-s.queued.Load()-int64(n):
		cause = DropBytes
	default:
		if cause = s.hold(int64(n)); cause == dropNothing {
			return telemetry.MirrorPending
		}
	}
	whole := most
	if !l.chunked {
		whole += l.left
	}
	if cause == DropBytes {
		whole *= 2 // see fairShare
	}
	s.dropped(l.target, cause, whole)
	if cause == DropBody {
		return telemetry.MirrorDroppedBody
	}
	return telemetry.MirrorDroppedBytes
}

// hand wakes the worker, finds one, or holds the copy back. The caller holds mu, which hand releases.
func (l *Leg) hand() {
	switch {
	case l.started:
		l.mu.Unlock()
		l.signal()
	case l.queue.long():
		l.start()
	case l.listed:
		l.mu.Unlock()
	default:
		l.listed = true
		l.mu.Unlock()
		l.service.mirrors.waiting.add(l)
	}
}

// reserve takes one of the service's places for copies in flight. If there is none, it gives up the copy. The caller
// holds mu; reserve releases it if it returns false.
func (l *Leg) reserve() bool {
	s := l.service
	if l.carried {
		return true
	}
	l.carried = true
	if s.carried.Add(1) > int64(s.mirrors.opt.MaxInFlight) {
		s.dropped(l.target, DropInFlight, 0)
		l.abandon(telemetry.MirrorDroppedInFlight)
		return false
	}
	if !s.covers() {
		s.dropped(l.target, DropBuffered, 0)
		l.abandon(telemetry.MirrorDroppedBytes)
		return false
	}
	return true
}

// start finds a worker. The caller holds mu, which start releases.
func (l *Leg) start() {
	if !l.reserve() {
		return
	}
	l.started = true
	l.refs.Add(1)
	l.mu.Unlock()
	if !l.service.dispatch(l) {
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
		l.settle(telemetry.MirrorDroppedDraining)
		l.finish()
		l.release()
	}
}

func (l *Leg) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// abandon gives the copy up on the exchange's side. The caller holds mu, which abandon releases.
func (l *Leg) abandon(o telemetry.MirrorOutcome) {
	l.over = true
	l.settle(o)
	if !l.started {
		l.mu.Unlock()
		l.finish()
		return
	}
	if l.call != nil {
		// Closing a connection may wait for a write to return. The connection still belongs to the worker, which closes
		// it for good: see detach.
		l.service.mirrors.helpers.Go(l.call.Abort)
	}
	l.mu.Unlock()
	l.signal()
}

// settle counts the outcome unless the leg has one already.
func (l *Leg) settle(o telemetry.MirrorOutcome) {
	if l.fate.CompareAndSwap(uint32(telemetry.MirrorPending), uint32(o)) {
		l.metric.Count(l.shard, o)
	}
}

// finish releases the leg's part of its service's bounds, once.
func (l *Leg) finish() {
	s := l.service
	l.mu.Lock()
	n := l.unsent
	l.unsent = 0
	l.queue.reset()
	if l.carried {
		l.carried = false
		s.carried.Add(-1)
	}
	l.mu.Unlock()
	s.inFlight.Add(-1)
	s.letGo(int64(n))
	if l.probe {
		l.probe = false
		s.breaker.forgo()
	}
	if s.mirrors.ended != nil {
		s.mirrors.ended()
	}
}

// The worker's side.

// take returns the next part for the worker, valid until the next take. ended reports that no part follows, over that
// the copy was given up.
func (l *Leg) take() (p []byte, ended, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return nil, false, true
	}
	p, more := l.queue.take()
	return p, l.ended && !more, false
}

// sent accounts for n bytes that were taken, unless finish has done so.
func (l *Leg) sent(n int) {
	l.mu.Lock()
	n = min(n, l.unsent)
	l.unsent -= n
	l.mu.Unlock()
	l.service.letGo(int64(n))
}

// sentAll accounts for all bytes taken of a complete copy, and releases them.
func (l *Leg) sentAll() {
	l.mu.Lock()
	n := l.unsent
	l.unsent = 0
	l.queue.drop()
	l.mu.Unlock()
	l.service.letGo(int64(n))
}

// forget releases the parts that were sent, before the worker waits for the answer.
func (l *Leg) forget() {
	l.mu.Lock()
	l.queue.drop()
	l.mu.Unlock()
}

// attach names the call to stop if the copy is given up. It returns false if the copy was given up earlier.
func (l *Leg) attach(call http2.Aborter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.call = call
	return !l.over
}

// detach stops gathering. It returns false if the copy was given up before.
func (l *Leg) detach() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	whole := !l.over
	l.over, l.call = true, nil
	return whole
}

// Wanted implements upstream.Waiting.
func (l *Leg) Wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.service.mirrors.quit:
		return false
	default:
	}
	return !l.over
}
