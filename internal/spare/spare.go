// Package spare keeps the scheduler free for traffic while the process computes something long: reads manifests, translates and applies a
// configuration. It is for those who do that, and does nothing by itself.
//
// Go's scheduler looks at the network when a processor of its has nothing else to do. Work that never waits holds such a processor for 10 to 20 ms at a
// time, and requests wait for it twice: before they are forwarded and before they are answered. Where there is more than one, the others serve; hence
// Workers, which leaves one alone. Where there is one only, there are two during Do, and the kernel, whose time slices are shorter and which prefers
// what has waited, shares the real one out.
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

// Do does work that may take long. Others may do theirs meanwhile.
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
		runtime.SetDefaultGOMAXPROCS() // which also goes on to follow the machine and its control group
	}
}

// Workers is how many goroutines may compute at once, 1 at least.
func Workers() int { return max(1, runtime.GOMAXPROCS(0)-1) }
