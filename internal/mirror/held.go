package mirror

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// heldTurn is how often the clock looks.
	heldTurn = 10 * time.Millisecond
	// heldLong is after how many turns a copy is begun though its exchange has not ended.
	heldLong = 5
	// heldLull is after how many turns without a copy the clock stops.
	heldLull = 100
	// heldDue is how many copies at most the clock begins in a turn for exchanges that have ended: many at once would be in the way of others.
	heldDue = 4
)

// waitingCopies are the copies that nobody works for yet: those that are small and whose primary is under way, and those whose primary was answered just now.
// To begin a copy wakes threads, here and in what it is sent to, and takes processors from whoever works for the primary in this moment, or for the client
// that gets its answer. That would take longer than the exchange of a fast backend. So copies are begun by a clock, a few in a turn; where there are more,
// each when its exchange has ended, for then threads are awake anyway. Those of slow exchanges, or of streams, are begun by the clock as well. It runs as
// long as there are copies: they cost no timer each, and wake nobody.
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

// waitingShard is the part of connections that have little to do with others.
type waitingShard struct {
	mu          sync.Mutex
	first, last *Leg
	_           [40]byte
}

func (h *waitingCopies) of(l *Leg) *waitingShard { return &h.shards[l.shard%uint32(len(h.shards))] }

// add takes a hold on the leg, which remove or the clock gives up.
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

// keepRunning has the clock run, after something was added.
func (h *waitingCopies) keepRunning() {
	if !h.added.Load() {
		h.added.Store(true)
	}
	if !h.running.Load() && h.running.CompareAndSwap(false, true) {
		h.wake <- struct{}{} // there is room: the clock stands
	}
}

// remove takes the leg out, unless the clock has.
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

// unlink is called with mu held.
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

// postpone leaves a leg whose exchange has ended to the next turn, with the caller's hold on it; false if there are enough.
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

// flush begins what was postponed. When it returns, what was postponed before has been begun, by whomever.
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
				break // none was added meanwhile, or whoever added it sends a wake
			}
		}
	}
}

// begin hands over what was held back for long. late is memory to use.
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

// beginHeld begins the copy, unless it was begun or given up, and gives up the hold on it.
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
