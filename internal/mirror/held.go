package mirror

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// heldTurn is the clock's interval.
	heldTurn = 10 * time.Millisecond
	// heldLong is the number of turns after which a copy begins although its exchange has not ended.
	heldLong = 5
	// heldLull is the number of turns without a copy after which the clock stops.
	heldLull = 100
	// heldDue is the most copies that the clock begins in one turn for exchanges that have ended: many at once would
	// disturb other work.
	heldDue = 4
)

// waitingCopies are the copies that no worker has yet: small ones whose primary is under way, and those whose primary
// was answered just now. Beginning a copy wakes threads, here and in the service that gets it. These threads would take
// processors from the primary, or from the client that gets its answer, and delay them by more than a fast backend's
// exchange. So a clock begins copies, a few in each turn. If there are more, each begins when its exchange has ended,
// because threads are awake then anyway. The clock also begins copies of slow exchanges and of streams. It runs as long
// as there are copies, which therefore need no timers of their own and wake no thread.
type waitingCopies struct {
	shards  [16]waitingShard
	turn    atomic.Uint32
	added   atomic.Bool // since the last turn
	running atomic.Bool
	wake    chan struct{}

	flushing sync.Mutex // taken before all other locks
	mu       sync.Mutex
	due      []*Leg // of exchanges that have ended; at most heldDue
}

// waitingShard is a part of the legs, of connections that seldom share a shard with others.
type waitingShard struct {
	mu          sync.Mutex
	first, last *Leg
	_           [40]byte
}

func (h *waitingCopies) of(l *Leg) *waitingShard { return &h.shards[l.shard%uint32(len(h.shards))] }

// add takes a hold on the leg, which remove or the clock releases.
func (h *waitingCopies) add(l *Leg) {
	l.refs.Add(1)
	s := h.of(l)
	s.mu.Lock()
	l.waiting, l.turn = true, h.turn.Load()
	if l.before = s.last; l.before != nil {
		l.before.behind = l
	} else {
		s.first = l
	}
	s.last = l
	s.mu.Unlock()
	h.keepRunning()
}

// keepRunning makes sure that the clock runs, after a leg was added.
func (h *waitingCopies) keepRunning() {
	if !h.added.Load() {
		h.added.Store(true)
	}
	if !h.running.Load() && h.running.CompareAndSwap(false, true) {
		h.wake <- struct{}{} // there is room: the clock has stopped
	}
}

// remove takes the leg out, unless the clock has taken it.
func (h *waitingCopies) remove(l *Leg) {
	s := h.of(l)
	s.mu.Lock()
	held := l.waiting
	if held {
		s.unlink(l)
	}
	s.mu.Unlock()
	if held {
		l.release()
	}
}

// unlink removes a leg from the list. The caller holds mu.
func (s *waitingShard) unlink(l *Leg) {
	if l.before != nil {
		l.before.behind = l.behind
	} else {
		s.first = l.behind
	}
	if l.behind != nil {
		l.behind.before = l.before
	} else {
		s.last = l.before
	}
	l.before, l.behind, l.waiting = nil, nil, false
}

// postpone leaves a leg whose exchange has ended to the next turn, and passes on the caller's hold. It returns false if
// there are enough such legs.
func (h *waitingCopies) postpone(l *Leg) bool {
	h.mu.Lock()
	if len(h.due) >= heldDue {
		h.mu.Unlock()
		return false
	}
	h.due = append(h.due, l)
	h.mu.Unlock()
	h.keepRunning()
	return true
}

// flush begins the copies postponed so far. When it returns, some goroutine has begun all of them.
func (h *waitingCopies) flush() {
	h.flushing.Lock()
	defer h.flushing.Unlock()
	var legs [heldDue]*Leg
	h.mu.Lock()
	n := copy(legs[:], h.due)
	clear(h.due)
	h.due = h.due[:0]
	h.mu.Unlock()
	for _, l := range legs[:n] {
		l.beginHeld()
	}
}

// run is the clock. It returns when quit is closed.
func (h *waitingCopies) run(quit <-chan struct{}) {
	t := time.NewTimer(heldTurn)
	defer t.Stop()
	var late []*Leg
	for {
		t.Stop()
		select {
		case <-quit:
			return
		case <-h.wake:
		}
		for lull := 0; ; {
			t.Reset(heldTurn)
			select {
			case <-quit:
				return
			case <-t.C:
			}
			h.flush()
			late = h.begin(h.turn.Add(1), late[:0])
			if lull++; h.added.Swap(false) {
				lull = 0
			}
			if lull < heldLull || !h.empty() {
				continue
			}
			h.running.Store(false)
			if h.empty() || !h.running.CompareAndSwap(false, true) {
				break // no leg was added in the meantime, or its adder sends a wake
			}
		}
	}
}

// begin hands over legs that were held back for long. late is memory to use.
func (h *waitingCopies) begin(turn uint32, late []*Leg) []*Leg {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		for l := s.first; l != nil && turn-l.turn > heldLong; l = s.first {
			s.unlink(l)
			late = append(late, l)
		}
		s.mu.Unlock()
	}
	for _, l := range late {
		l.beginHeld()
	}
	clear(late)
	return late
}

// beginHeld begins the copy, unless it was begun or given up, and releases the hold on it.
func (l *Leg) beginHeld() {
	l.mu.Lock()
	if l.started || l.over {
		l.mu.Unlock()
	} else {
		l.start()
	}
	l.release()
}

func (h *waitingCopies) empty() bool {
	h.mu.Lock()
	n := len(h.due)
	h.mu.Unlock()
	if n > 0 {
		return false
	}
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		first := s.first
		s.mu.Unlock()
		if first != nil {
			return false
		}
	}
	return true
}
