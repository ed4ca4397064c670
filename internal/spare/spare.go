// Package spare keeps the scheduler free for traffic during long computations: reading manifests, translating and
// applying a configuration. The packages that do such work use it; it does nothing by itself.
//
// Go's scheduler polls the network when one of its processors has nothing else to do. Work that never waits holds such
// a processor for 10 to 20 ms at a time, and requests wait for it twice: before they are forwarded and before they are
// answered. With several processors, the others serve traffic; so Workers leaves one free. With a single processor, the
// scheduler gets two during Do. The kernel shares the real one out: its time slices are shorter, and it prefers threads
// that have waited.
package spare

import (
	"os"
	"runtime"
	"sync"
)

var state struct {
	mu     sync.Mutex
	busy   int  // calls of Do that have not ended
	raised bool // there is a processor more than before them
}

// Do does work that may take long. Other calls may run at the same time.
func Do(work func()) {
	begin()
	defer end()
	work()
}

func begin() {
	state.mu.Lock()
	defer state.mu.Unlock()
	if state.busy++; state.busy == 1 && runtime.GOMAXPROCS(0) == 1 {
		state.raised = true
		runtime.GOMAXPROCS(2)
	}
}

func end() {
	state.mu.Lock()
	defer state.mu.Unlock()
	if state.busy--; state.busy > 0 || !state.raised {
		return
	}
	state.raised = false
	if os.Getenv("GOMAXPROCS") != "" {
		runtime.GOMAXPROCS(1)
	} else {
		runtime.SetDefaultGOMAXPROCS() // this also makes it follow the machine and its control group again
	}
}

// Workers is how many goroutines may compute at once, 1 at least.
func Workers() int { return max(1, runtime.GOMAXPROCS(0)-1) }
