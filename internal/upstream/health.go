package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

// An ejection lasts ejectMin, doubles each time the endpoint fails again, up to ejectMax, and is forgotten ejectForget after the last.
const (
	ejectMin    = time.Second
	ejectMax    = 30 * time.Second
	ejectForget = 60 * time.Second
)

// health is passive: it knows what exchanges and connects reported. States: healthy (until is 0), ejected (until lies ahead), half-open
// (until has passed: the next Pick claims the endpoint for one request and moves until on, so that another is let through if that one
// never reports).
type health struct {
	until    atomic.Int64 // Set.now at which an ejection ends; 0 if healthy
	failures atomic.Int32 // consecutive

	mu      sync.Mutex
	probing atomic.Bool
	level   int   // ejections in a row
	ended   int64 // when the last ejection ends or ended

	failed    atomic.Uint64
	ejections atomic.Uint64
}

// admit says whether Pick may choose the endpoint, and whether it must, having claimed it for the one request that a half-open endpoint
// is given.
func (e *Endpoint) admit() (ok, probe bool) {
	until := e.health.until.Load()
	if until == 0 {
		return true, false
	}
	now := e.set.now()
	if now < until {
		return false, false
	}
	if !e.health.until.CompareAndSwap(until, now+int64(e.set.opt.ConnectTimeout)) {
		return false, false
	}
	e.health.probing.Store(true)
	return true, true
}

// Healthy is true unless the endpoint is ejected.
func (e *Endpoint) Healthy() bool { return e.health.until.Load() == 0 }

// Succeeded notes that the endpoint answered: consecutive failures start again at zero and an ejection ends.
func (e *Endpoint) Succeeded() {
	h := &e.health
	if h.failures.Load() == 0 && h.until.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures.Store(0)
	h.probing.Store(false)
	if h.until.Swap(0) != 0 {
		h.ended = e.set.now()
		e.set.opt.Logger.Info("endpoint recovered", "endpoint", e.Address)
	}
}

// Failed notes a failure that is the endpoint's: a connection reset or closed before a response, a malformed response. Failures to
// connect and those of HTTP2 are noted inside. Never call it for what the client did or for a reused connection that had been closed
// while idle.
func (e *Endpoint) Failed() {
	h := &e.health
	h.failed.Add(1)
	limit := e.set.opt.EjectAfter
	if limit < 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.failures.Load()
	if n < 1<<30 {
		n++
		h.failures.Store(n)
	}
	if h.until.Load() == 0 {
		if int(n) >= limit {
			e.eject(int(n))
		}
	} else if h.probing.Load() { // others in an ejected state failed late, or because all are ejected
		e.eject(int(n))
	}
}

// eject is called with health.mu held.
func (e *Endpoint) eject(failures int) {
	h := &e.health
	now := e.set.now()
	if now-h.ended > int64(ejectForget) {
		h.level = 0
	}
	d := min(ejectMin<<h.level, ejectMax)
	if d < ejectMax {
		h.level++
	}
	h.ended = now + int64(d)
	h.probing.Store(false)
	h.until.Store(h.ended)
	h.ejections.Add(1)
	e.set.opt.Logger.Warn("endpoint ejected", "endpoint", e.Address, "for", d, "failures", failures)
}
