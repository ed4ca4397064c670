package proxy

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

// mirrorLeg is one copy. The exchange calls write any number of times, then end or abort once, then outcome once as its last call; a worker
// sends what has been gathered meanwhile. What is gathered is the copy as a message of HTTP/1.1, whatever the service speaks.
type mirrorLeg struct {
	service  *mirrorService
	metric   *telemetry.Mirror
	shard    uint32
	endpoint *upstream.Endpoint
	from     clientaddr.Pair // for endpoints that want a PROXY header
	born     time.Time
	probe    bool // of the breaker
	http2    bool
	bodyless bool // the answer has no body, whatever it says
	chunked  bool

	wake chan struct{} // there is something new for the worker
	refs atomic.Int32  // the exchange's and the worker's
	fate atomic.Uint32 // telemetry.MirrorOutcome, settled once

	mu      sync.Mutex     // never held while anything waits
	left    int64          // of a body of known length, not yet written
	queue   []byte         // gathered and not taken
	unsent  int            // bytes gathered and not sent
	started bool           // a worker has it or is about to
	ended   bool           // all is gathered
	over    bool           // nothing is gathered any more
	conn    *upstream.Conn // what giving up has to end, or
	stream  *http2.Stream

	spare []byte // the worker's
}

// mirrorKeep is the largest buffer a leg keeps for the next copy.
const mirrorKeep = 32 << 10

var mirrorLegPool = sync.Pool{New: func() any {
	return &mirrorLeg{queue: make([]byte, 0, 1<<10), wake: make(chan struct{}, 1)}
}}

func (l *mirrorLeg) reset(s *mirrorService, e *upstream.Endpoint, now time.Time, probe bool) {
	l.service, l.endpoint, l.born, l.probe = s, e, now, probe
	l.refs.Store(1)
	l.fate.Store(uint32(telemetry.MirrorPending))
	l.queue, l.unsent = l.queue[:0], 0
	l.started, l.ended, l.over = false, false, false
	l.from = clientaddr.Pair{}
}

func (l *mirrorLeg) recycle() {
	select {
	case <-l.wake:
	default:
	}
	if cap(l.queue) > mirrorKeep {
		l.queue = nil
	}
	if cap(l.spare) > mirrorKeep {
		l.spare = nil
	}
	l.service, l.metric, l.endpoint, l.conn, l.stream = nil, nil, nil, nil, nil
	mirrorLegPool.Put(l)
}

// release gives up one of the two holds on the leg.
func (l *mirrorLeg) release() {
	if l.refs.Add(-1) == 0 {
		l.recycle()
	}
}

// write copies a piece of the body. It never blocks and never fails; a leg over its bounds is abandoned and counted.
func (l *mirrorLeg) write(p []byte) {
	if len(p) == 0 {
		return
	}
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return
	}
	n := len(p)
	if l.chunked {
		n += 12 // at most, for its frame
	} else if int64(n) > l.left {
		l.abandon(telemetry.MirrorDroppedAborted)
		return
	}
	if o := l.room(n); o != telemetry.MirrorPending {
		l.abandon(o)
		return
	}
	before := len(l.queue)
	wait := false
	if l.chunked {
		l.queue = http1.AppendChunk(l.queue, p)
	} else {
		l.queue = append(l.queue, p...)
		l.left -= int64(n)
		wait = l.left == 0 // end follows: then all of it goes out at once
	}
	l.grew(before, n)
	l.hand(wait)
}

// end says that the body was whole.
func (l *mirrorLeg) end(trailers []http1.Field) {
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
	if l.chunked {
		before := len(l.queue)
		l.queue = http1.AppendLastChunk(l.queue, trailers)
		l.grew(before, 0)
	}
	l.hand(false)
}

// abort says that the request ended before its body was whole.
func (l *mirrorLeg) abort() {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return
	}
	l.abandon(telemetry.MirrorDroppedAborted)
}

// outcome is what is known of the copy now; the leg must not be used afterwards.
func (l *mirrorLeg) outcome() telemetry.MirrorOutcome {
	o := telemetry.MirrorOutcome(l.fate.Load())
	l.release()
	return o
}

// room holds n bytes more, or says why they do not fit; called with mu held.
func (l *mirrorLeg) room(n int) telemetry.MirrorOutcome {
	opt := &l.service.mirrors.opt
	if l.unsent+n > opt.MaxCopyBytes {
		return telemetry.MirrorDroppedBody
	}
	if !l.service.hold(int64(n)) {
		return telemetry.MirrorDroppedBytes
	}
	return telemetry.MirrorPending
}

// grew accounts for what the queue holds beyond before, of which room has held some bytes; called with mu held.
func (l *mirrorLeg) grew(before, held int) {
	n := len(l.queue) - before
	l.unsent += n
	l.service.queued.Add(int64(n - held))
}

// hand tells the worker, or finds one unless it is better to wait; called with mu held, which it releases.
func (l *mirrorLeg) hand(wait bool) {
	if l.started {
		l.mu.Unlock()
		l.signal()
		return
	}
	if wait {
		l.mu.Unlock()
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

func (l *mirrorLeg) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// abandon gives the copy up on the exchange's side; called with mu held, which it releases.
func (l *mirrorLeg) abandon(o telemetry.MirrorOutcome) {
	l.over = true
	l.settle(o)
	if !l.started {
		l.mu.Unlock()
		l.finish()
		return
	}
	switch {
	case l.conn != nil:
		// Closing a connection may wait for a write to return. It is the worker's still, which closes it for good: see detach.
		l.service.mirrors.helpers.Go(l.conn.Abort)
	case l.stream != nil:
		l.stream.Abort()
	}
	l.mu.Unlock()
	l.signal()
}

// settle counts the outcome unless there is one already.
func (l *mirrorLeg) settle(o telemetry.MirrorOutcome) {
	if l.fate.CompareAndSwap(uint32(telemetry.MirrorPending), uint32(o)) {
		l.metric.Count(l.shard, o)
	}
}

// finish frees what the leg took of its service's bounds, once.
func (l *mirrorLeg) finish() {
	s := l.service
	l.mu.Lock()
	n := l.unsent
	l.unsent = 0
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

// take gives the worker what has been gathered, valid until the next take; ended says that nothing follows, over that the copy was given up.
func (l *mirrorLeg) take() (p []byte, ended, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return nil, false, true
	}
	if cap(l.spare) > mirrorKeep {
		l.spare = nil // it was sent
	}
	p = l.queue
	l.queue, l.spare = l.spare[:0], p
	return p, l.ended, false
}

// sent accounts for n bytes that were taken, unless finish has done so.
func (l *mirrorLeg) sent(n int) {
	l.mu.Lock()
	n = min(n, l.unsent)
	if l.unsent -= n; cap(l.spare) > mirrorKeep {
		l.spare = nil // it is not to be held until the answer comes
	}
	l.mu.Unlock()
	l.service.letGo(int64(n))
}

// attach names what abandoning the copy has to stop; false if it was given up before.
func (l *mirrorLeg) attach(c *upstream.Conn, s *http2.Stream) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.stream = c, s
	return !l.over
}

// detach ends the gathering; false if the copy was given up before.
func (l *mirrorLeg) detach() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	whole := !l.over
	l.over, l.conn, l.stream = true, nil, nil
	return whole
}
