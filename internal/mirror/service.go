package mirror

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// idleTime is the least time that an idle worker is kept.
const idleTime = 10 * time.Second

// service is a destination of copies, for all filters that name it. It lives as long as the configurations name it.
type service struct {
	name     string
	mirrors  *Set
	upstream atomic.Pointer[upstream.Service] // nil: no service has that name
	breaker  breaker
	gone     atomic.Bool   // it accepts no more copies
	failure  atomic.Uint32 // the last one, a telemetry.MirrorOutcome
	drops    [dropCauses]dropNote

	_        [64]byte     // the fields above seldom change
	inFlight atomic.Int64 // copies that began and have not ended
	carried  atomic.Int64 // those that a worker has, or will have in a moment
	queued   atomic.Int64 // bytes copied and not yet sent
	copies   copies       // the memory drawn for them

	mu     sync.Mutex
	closed bool
	idle   []*worker // a stack; since never decreases from bottom to top
}

func newService(m *Set, name string) *service {
	s := &service{name: name, mirrors: m}
	s.breaker.after = m.opt.BreakAfter
	s.copies.init()
	return s
}

// begin makes a leg with the head in it, or returns why it is dropped.
func (s *service) begin(t *Target, head *Head) (*Leg, telemetry.MirrorOutcome) {
	if s.gone.Load() {
		return nil, telemetry.MirrorDroppedDraining
	}
	up := s.upstream.Load()
	if up == nil {
		return nil, telemetry.MirrorDroppedNoEndpoint
	}
	now := time.Now()
	admitted, probe := s.breaker.admit(now, s.mirrors.opt.MaxDuration)
	if !admitted {
		s.dropped(t, DropFailing, 0)
		return nil, telemetry.MirrorDroppedBreaker
	}
	drop := func(o telemetry.MirrorOutcome) (*Leg, telemetry.MirrorOutcome) {
		if probe {
			s.breaker.forgo()
		}
		return nil, o
	}
	e := up.Pick(nil)
	if e == nil {
		return drop(telemetry.MirrorDroppedNoEndpoint)
	}
	if s.carried.Load() >= int64(s.mirrors.opt.MaxInFlight) {
		s.dropped(t, DropInFlight, 0)
		return drop(telemetry.MirrorDroppedInFlight)
	}
	l := legPool.Get().(*Leg)
	l.reset(s, e, now, probe)
	if e.Announces() && head.From != nil {
		l.from = head.From.Addresses()
	}
	l.copyHead(head, &s.mirrors.opt, up.Protocol == model.H2C)
	n := len(l.text)
	if cause := s.hold(int64(n)); cause != dropNothing {
		s.dropped(t, cause, 0)
		l.recycle()
		return drop(telemetry.MirrorDroppedBytes)
	}
	s.inFlight.Add(1)
	l.unsent = n
	return l, telemetry.MirrorPending
}

// dispatch gives a leg to a worker: the last one used, else a new one. It returns false if the service accepts no more
// copies.
func (s *service) dispatch(l *Leg) bool {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	if n := len(s.idle) - 1; n >= 0 {
		w := s.idle[n]
		s.idle[n] = nil
		s.idle = s.idle[:n]
		s.mu.Unlock()
		w.next <- l // there is room: a worker is idle once
		return true
	}
	// There are as many workers as legs that may be carried.
	w := newWorker(s)
	s.mirrors.workers.Go(func() { w.run(l) })
	s.mu.Unlock()
	return true
}

// park makes the worker available. It returns false if the worker must end.
func (s *service) park(w *worker) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	w.since = now
	s.idle = append(s.idle, w)
	return true
}

// retire ends workers that have been idle since before.
func (s *service) retire(before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.idle) && s.idle[n].since.Before(before) {
		s.idle[n].next <- nil
		n++
	}
	if n > 0 {
		kept := copy(s.idle, s.idle[n:])
		clear(s.idle[kept:])
		s.idle = s.idle[:kept]
	}
}

// close accepts no more copies. Workers end when they are idle.
func (s *service) close() {
	s.gone.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, w := range s.idle {
		w.next <- nil
	}
	s.idle = nil
}

// copyHead copies the head for the service: the head that the primary's backend gets, and the mark.
func (l *Leg) copyHead(h *Head, opt *Options, overHTTP2 bool) {
	overHTTP2 = overHTTP2 || h.GRPC
	size := len(h.Method) + len(h.Target) + len(h.Authority)
	for i := range h.Fields {
		size += len(h.Fields[i].Name) + len(h.Fields[i].Value)
	}
	l.text = slices.Grow(l.text[:0], size) // the strings in it stay in place
	r := &l.request
	fields := slices.Grow(r.Fields[:0], len(h.Fields)+2)
	for i := range h.Fields {
		f := &h.Fields[i]
		if len(f.Name) == len(opt.Header) && http1.EqualFold(f.Name, opt.Header) {
			continue // a filter's
		}
		n := len(fields)
		fields = fields[:n+1]
		to := &fields[n]
		to.Name, to.Value, to.ID = l.copyText(f.Name), l.copyText(f.Value), f.ID
	}
	if !opt.Unmarked {
		fields = append(fields, http1.Field{Name: opt.Header, Value: "1"})
	}
	if overHTTP2 && h.Trailers {
		fields = append(fields, http1.Field{Name: "TE", Value: "trailers", ID: http1.FieldTE}) // gRPC requires it
	}
	r.Method, r.Target, r.Authority = l.copyText(h.Method), l.copyText(h.Target), l.copyText(h.Authority)
	r.Fields, r.Body, r.HTTP2 = fields, h.Body, overHTTP2
	l.chunked = h.Body.Kind == http1.BodyChunked
	l.left = h.Body.Length
}

// copyText copies s to text, which has room for it.
func (l *Leg) copyText(s string) string {
	n := len(l.text)
	l.text = l.text[:n+len(s)]
	copy(l.text[n:], s)
	return unsafe.String(unsafe.SliceData(l.text[n:]), len(s))
}
