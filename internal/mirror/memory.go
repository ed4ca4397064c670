package mirror

import (
	"sync"
	"sync/atomic"

	"github.com/weirmesh/weir/internal/budget"
)

// Beyond copiesFree, a service's copies draw from the memory budget, in steps of twice the queued bytes. The factor is
// two because a first part doubles as it grows, and a piece may have only begun to fill. A copy that a worker has takes
// half of copyWeight twice: its goroutine, and a buffer for its answer.
const (
	copiesFree, copiesStep = 512 << 10, 64 << 10
	copyWeight             = 24 << 10
)

// copies is the memory drawn by the copies to a service.
type copies struct {
	covered atomic.Int64 // bytes that copies may take with the memory drawn

	mu    sync.Mutex
	cover budget.Cover
}

func (c *copies) init() {
	c.cover = budget.NewCover(copiesFree, copiesStep)
	c.covered.Store(copiesFree)
}

// hold counts n bytes more as queued, or returns the bound of the service, or of all mirrors, that they would exceed.
func (s *service) hold(n int64) DropCause {
	cause := dropNothing
	if q := s.queued.Add(n); q > s.mirrors.opt.MaxBytes {
		cause = DropBytes
	} else if !s.covers() {
		cause = DropBuffered
	}
	if cause != dropNothing {
		s.letGo(n)
	}
	return cause
}

// covers draws the memory for the copies, unless enough is drawn. It returns false if the budget lacks it.
func (s *service) covers() bool { return s.taken() <= s.copies.covered.Load() || s.draw() }

// taken returns the bytes that the copies take.
func (s *service) taken() int64 { return s.queued.Load() + s.carried.Load()*(copyWeight/2) }

// draw draws the memory for the copies.
func (s *service) draw() bool {
	c, b := &s.copies, s.mirrors.budget
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.cover.Lacks(s.taken()); n > 0 {
		if !b.Draw(budget.Mirror, 2*n) {
			b.Refuse(budget.Mirror)
			return false
		}
		c.cover.Drew(n)
		c.covered.Store(copiesFree + c.cover.Drawn())
	}
	return true
}

// letGo counts n bytes less as queued. It is also called when a copy has ended.
func (s *service) letGo(n int64) {
	s.queued.Add(-n)
	c := &s.copies
	if covered, taken := c.covered.Load(), s.taken(); covered == copiesFree || taken > 0 && covered-taken < 8*copiesStep {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.cover.Spare(s.taken()); n > 0 {
		s.mirrors.budget.Give(2 * n)
		c.covered.Store(copiesFree + c.cover.Drawn())
	}
}
