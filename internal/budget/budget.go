// Package budget bounds the memory in which a process keeps what others have sent and it cannot pass on yet: heads that are not complete, bodies, copies.
// Whoever keeps bytes draws them first and gives them back when it lets go of them. What every connection and every exchange needs anyway is not drawn but
// bounded by their number, so that ordinary ones never come here. It knows nothing of what is kept, and ends nothing: its users do.
package budget

import (
	"math"
	"sync/atomic"
)

// Use is what bytes are drawn for. The later ones may draw more of the budget, so that the earlier ones give way to them.
type Use uint8

// The uses, by rank.
const (
	// Mirror is a copy of a request, which nobody waits for. All copies get up to half of the budget, and only what others leave of that.
	Mirror Use = iota
	// Head is a head that is not complete, of a client of which nothing else is known. Up to three quarters.
	Head
	// Retry is a body that is kept to be sent again: without it there is an answer nonetheless. Up to seven eighths.
	Retry
	// Exchange is what a request under way cannot go on without.
	Exchange
	uses
)

// String is the use as metrics have it.
func (u Use) String() string { return [...]string{"mirror", "head", "retry", "exchange"}[u] }

// Uses yields all uses.
func Uses(yield func(Use) bool) {
	for u := range uses {
		if !yield(u) {
			return
		}
	}
}

// Budget is a number of bytes that may be kept. Its methods may be called at the same time.
type Budget struct {
	limit   int64
	share   [uses]int64
	refused [uses]atomic.Uint64

	_     [64]byte // what is above seldom changes
	drawn atomic.Int64
	_     [56]byte
}

// New makes a budget of limit bytes; 0 or less is no bound: what is drawn is counted all the same.
func New(limit int64) *Budget {
	b := &Budget{limit: limit}
	if limit <= 0 {
		b.limit = 0
		limit = math.MaxInt64
	}
	eighth := limit / 8
	b.share = [uses]int64{Mirror: 4 * eighth, Head: 6 * eighth, Retry: 7 * eighth, Exchange: limit}
	return b
}

// Draw takes n bytes, which Give gives back, or reports that there are not as many for that use.
func (b *Budget) Draw(u Use, n int64) bool {
	for {
		old := b.drawn.Load()
		if old > b.share[u]-n {
			return false
		}
		if b.drawn.CompareAndSwap(old, old+n) {
			return true
		}
	}
}

// Force takes n bytes even if there are none left: of something that is there and has its own bound.
func (b *Budget) Force(n int64) { b.drawn.Add(n) }

// Give gives n bytes back.
func (b *Budget) Give(n int64) { b.drawn.Add(-n) }

// Refuse counts that something was given up because Draw had refused.
func (b *Budget) Refuse(u Use) { b.refused[u].Add(1) }

// Drawn is how many bytes are drawn now.
func (b *Budget) Drawn() int64 { return b.drawn.Load() }

// Limit is how many may be; 0 is no bound.
func (b *Budget) Limit() int64 { return b.limit }

// Refused is how often something was given up; see Refuse.
func (b *Budget) Refused(u Use) uint64 { return b.refused[u].Load() }

// Cover draws in steps for something that grows and shrinks often, so that most changes cost nothing. It is its owner's, who guards it; the zero value
// holds nothing.
type Cover struct {
	free, step int64
	drawn      int64
}

// NewCover draws for what is beyond free bytes, in multiples of step.
func NewCover(free, step int64) Cover { return Cover{free: free, step: step} }

// Drawn is what is drawn.
func (c *Cover) Drawn() int64 { return c.drawn }

// Lacks is how much more is to be drawn for used bytes, 0 if they are covered.
func (c *Cover) Lacks(used int64) int64 {
	if used <= c.free+c.drawn {
		return 0
	}
	return (used - c.free - c.drawn + c.step - 1) / c.step * c.step
}

// Drew notes that n bytes more were drawn.
func (c *Cover) Drew(n int64) { c.drawn += n }

// Spare is how much is to be given back when used bytes are left, and notes that it was. It keeps two steps more than needed, unless nothing is used.
func (c *Cover) Spare(used int64) int64 {
	keep := int64(0)
	if used > 0 {
		keep = (max(used-c.free, 0)+c.step-1)/c.step*c.step + 2*c.step
	}
	n := max(c.drawn-keep, 0)
	c.drawn -= n
	return n
}
