package proxy

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// heldTurn is how long a copy is held back, at least, for an exchange that does not end; at most twice as long.
	heldTurn = 50 * time.Millisecond
	// heldLull is how many turns without a copy end the clock.
	heldLull = 20
)

// heldLegs are the copies that are small and whose primary is still under way. They are begun when it was answered: to begin one wakes a thread, which
// would take a processor from whoever works for the primary in this moment, often for longer than the exchange lasts. What is held back for long, since
// the primary is slow or streams, is begun by a clock. It runs as long as there are copies, so that a copy costs no timer, and wakes nobody.
type heldLegs struct {
	shards  [16]heldShard
	turn    atomic.Uint32
	added   atomic.Bool // since the last turn
	running atomic.Bool
	wake    chan struct{}
}

// heldShard is the part of connections that have little to do with others.
type heldShard struct {
	mu          sync.Mutex
	first, last *mirrorLeg
	_           [40]byte
}

func (h *heldLegs) of(l *mirrorLeg) *heldShard { return &h.shards[l.shard%uint32(len(h.shards))] }

// add takes a hold on the leg, which remove or the clock gives up.
func (h *heldLegs) add(l *mirrorLeg) {
	l.refs.Add(1)
	s := h.of(l)
	s.mu.Lock()
	l.held, l.turn = true, h.turn.Load()
	if l.before = s.last; l.before != nil {
		l.before.behind = l
	} else {
		s.first = l
	}
	s.last = l
	s.mu.Unlock()
	if !h.added.Load() {
		h.added.Store(true)
	}
	if !h.running.Load() && h.running.CompareAndSwap(false, true) {
		h.wake <- struct{}{} // there is room: the clock stands
	}
}

// remove takes the leg out, unless the clock has.
func (h *heldLegs) remove(l *mirrorLeg) {
	s := h.of(l)
	s.mu.Lock()
	held := l.held
	if held {
		s.unlink(l)
	}
	s.mu.Unlock()
	if held {
		l.release()
	}
}

// unlink is called with mu held.
func (s *heldShard) unlink(l *mirrorLeg) {
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
	l.before, l.behind, l.held = nil, nil, false
}

// run is the clock. It returns when quit is closed.
func (h *heldLegs) run(quit <-chan struct{}) {
	t := time.NewTimer(heldTurn)
	defer t.Stop()
	var late []*mirrorLeg
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

// begin hands over what was held back for a whole turn. late is memory to use.
func (h *heldLegs) begin(turn uint32, late []*mirrorLeg) []*mirrorLeg {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		for l := s.first; l != nil && turn-l.turn >= 2; l = s.first {
			s.unlink(l)
			late = append(late, l)
		}
		s.mu.Unlock()
	}
	for _, l := range late {
		l.mu.Lock()
		if l.started || l.over {
			l.mu.Unlock()
		} else {
			l.start()
		}
		l.release()
	}
	clear(late)
	return late
}

func (h *heldLegs) empty() bool {
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
