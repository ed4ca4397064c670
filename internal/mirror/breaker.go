package mirror

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/clock"
)

// A breaker stays open for breakMin. The time doubles, up to breakMax, each time it opens again without a success in
// between.
const (
	breakMin = time.Second
	breakMax = 30 * time.Second
)

// breaker stops copies to a service that fails all of them. Closed, it counts consecutive failures. Open, it admits
// nothing until its time is up. Then it admits one copy, the probe, and the probe's outcome decides.
type breaker struct {
	after int // failures that open it; less than 0 never

	until    atomic.Int64 // the instant at which it admits a copy again; 0 means closed
	failures atomic.Int32

	mu    sync.Mutex
	level int // how often it opened since the last success
}

// open reports whether the breaker is not closed.
func (b *breaker) open() bool { return b.until.Load() != 0 }

// admit reports whether a copy may begin. The caller reports a probe's outcome with succeeded, failed or forgo. If it
// calls none of them, another probe is admitted once patience has passed.
func (b *breaker) admit(now time.Time, patience time.Duration) (ok, probe bool) {
	until := b.until.Load()
	if until == 0 {
		return true, false
	}
	if clock.Instant(now) < until {
		return false, false
	}
	ok = b.until.CompareAndSwap(until, clock.Instant(now.Add(patience)))
	return ok, ok
}

// forgo reports that the probe learned nothing; the next copy is the probe.
func (b *breaker) forgo() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.Load() != 0 {
		b.until.Store(1)
	}
}

// succeeded closes the breaker if the copy was a probe, or restarts the count of failures.
func (b *breaker) succeeded(probe bool) {
	if b.failures.Load() == 0 && !probe {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if probe || b.until.Load() == 0 {
		b.until.Store(0)
		b.failures.Store(0)
		b.level = 0
	}
}

// failed counts a failure. opened is how long the breaker then stays open; 0 if the failure does not open it. Copies
// that were under way when it opened no longer count.
func (b *breaker) failed(now time.Time, probe bool) (opened time.Duration) {
	if b.after < 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !probe {
		if b.until.Load() != 0 || int(b.failures.Add(1)) < b.after {
			return 0
		}
	}
	d := min(breakMin<<b.level, breakMax)
	if d < breakMax {
		b.level++
	}
	b.failures.Store(0)
	b.until.Store(clock.Instant(now.Add(d)))
	return d
}
