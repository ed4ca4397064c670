package upstream

import (
	"sync/atomic"
	"time"
)

// AskAgain is the time between two attempts to reach an endpoint that is away.
const AskAgain = 100 * time.Millisecond

// away is whether an endpoint can be reached, for those who wait until it can.
type away struct {
	next   atomic.Int64 // Set.now from which the next one may try; 0 while it can be reached
	behind atomic.Bool  // its proxy can, and what stands behind that cannot
}

// Again reports whether what could not be delivered to the endpoint is worth sending there once more: it can be reached
// again, or nobody has tried for a while. So one tries for all who wait.
func (e *Endpoint) Again() bool {
	next := e.away.next.Load()
	if next == 0 {
		return true
	}
	now := e.set.now()
	return now >= next && e.away.next.CompareAndSwap(next, now+int64(AskAgain))
}

// unreached notes that the endpoint, or what stands behind its proxy, could not be reached.
func (e *Endpoint) unreached(behind bool) {
	if behind {
		e.away.behind.Store(true)
	}
	e.away.next.CompareAndSwap(0, max(e.set.now()+int64(AskAgain), 1))
}

// reached notes a connection, or an answer of what stands behind.
func (e *Endpoint) reached(behind bool) {
	if e.away.next.Load() == 0 || !behind && e.away.behind.Load() {
		return
	}
	e.away.behind.Store(false)
	e.away.next.Store(0)
}
