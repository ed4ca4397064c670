// Package budget bounds the memory in which a process keeps data of others that it cannot pass on yet: incomplete
// heads, bodies, copies. Its users draw bytes before they keep them and give them back when they free them. The memory
// that every connection and every exchange needs is not drawn, but bounded by their number, so ordinary ones draw
// nothing. The package does not know what is kept, and ends nothing: its users do.
package budget

import (
	"math"
	"sync/atomic"
)

// Use is the purpose for which bytes are drawn. Later ones may draw more of the budget, so that the earlier ones give
// way to them.
type Use uint8

// The uses, by rank.
const (
	// Mirror is a copy of a request, for which no client waits. All copies together get up to half of the budget, if
	// others leave that much.
	Mirror Use = iota
	// Head is an incomplete head of a client that is otherwise unknown. Up to three quarters.
	Head
	// Retry is a body that is kept to be sent again: without it there is an answer nonetheless. Up to seven eighths.
	Retry
	// Exchange is memory without which a request under way cannot continue.
	Exchange
	uses
)

// String is the use's name in metrics.
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

	_     [64]byte // the fields above seldom change
	drawn atomic.Int64
	_     [56]byte
}

// New makes a budget of limit bytes. With 0 or less there is no bound, but drawn bytes are still counted.
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

// Draw takes n bytes, or returns false if there are not as many for that use. Give returns them.
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

// Force takes n bytes even if none are left, for memory that exists already and has its own bound.
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

// Cover draws in steps for something that grows and shrinks often, so that most changes cost nothing. Its owner guards
// it; the zero value has drawn nothing.
type Cover struct {
	free, step int64
	drawn      int64
}

// NewCover draws for the bytes beyond free, in multiples of step.
func NewCover(free, step int64) Cover { return Cover{free: free, step: step} }

// Drawn is the number of bytes drawn.
func (c *Cover) Drawn() int64 { return c.drawn }

// Lacks returns how many more bytes must be drawn for used bytes; 0 if they are covered.
func (c *Cover) Lacks(used int64) int64 {
	if used <= c.free+c.drawn {
		return 0
	}
	return (used - c.free - c.drawn + c.step - 1) / c.step * c.step
}

// Drew notes that n bytes more were drawn.
func (c *Cover) Drew(n int64) { c.drawn += n }

// Spare returns how many bytes must be given back when used bytes are left, and notes that they were. It keeps two
// steps more than needed, unless nothing is used.
func (c *Cover) Spare(used int64) int64 {
	keep := int64(0)
	if used > 0 {
		keep = (max(used-c.free, 0)+c.step-1)/c.step*c.step + 2*c.step
	}
	n := max(c.drawn-keep, 0)
	c.drawn -= n
	return n
}
