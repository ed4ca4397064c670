package spare

import (
	"os"
	"runtime"
	"sync"
	"testing"
)

// processors sets how many there are for a test. They are a custom value then, as with the environment variable, so that it is set too: what Do puts
// back is the value before.
func processors(t *testing.T, n int) {
	t.Helper()
	t.Setenv("GOMAXPROCS", "1")
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func TestOneProcessorBecomesTwoWhileThereIsWork(t *testing.T) {
	processors(t, 1)
	Do(func() {
		if n := runtime.GOMAXPROCS(0); n != 2 {
			t.Errorf("%d processors during the work, want 2", n)
		}
		if n := Workers(); n != 1 {
			t.Errorf("%d workers, want 1", n)
		}
		Do(func() {
			if n := runtime.GOMAXPROCS(0); n != 2 {
				t.Errorf("%d processors during work within work, want 2", n)
			}
		})
		if n := runtime.GOMAXPROCS(0); n != 2 {
			t.Errorf("%d processors after some of the work, want 2", n)
		}
	})
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors afterwards, want 1", n)
	}
}

func TestMoreProcessorsStayAsTheyAre(t *testing.T) {
	for _, n := range []int{2, 5} {
		processors(t, n)
		Do(func() {
			if got := runtime.GOMAXPROCS(0); got != n {
				t.Errorf("%d processors during the work, want %d", got, n)
			}
			if got := Workers(); got != n-1 {
				t.Errorf("%d workers, want %d", got, n-1)
			}
		})
		if got := runtime.GOMAXPROCS(0); got != n {
			t.Errorf("%d processors afterwards, want %d", got, n)
		}
	}
}

func TestWorkThatPanicsOrComesTogetherLeavesOneProcessor(t *testing.T) {
	processors(t, 1)
	func() {
		defer func() { _ = recover() }()
		Do(func() { panic("work") })
	}()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				Do(func() {
					if n := runtime.GOMAXPROCS(0); n != 2 {
						t.Errorf("%d processors during the work, want 2", n)
					}
				})
			}
		})
	}
	all.Wait()
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors afterwards, want 1", n)
	}
}

// TestTheMachineIsFollowedAgain is of a process whose environment says nothing.
func TestTheMachineIsFollowedAgain(t *testing.T) {
	if os.Getenv("GOMAXPROCS") != "" {
		t.Setenv("GOMAXPROCS", "")
	}
	runtime.SetDefaultGOMAXPROCS()
	found := runtime.GOMAXPROCS(1)
	t.Cleanup(runtime.SetDefaultGOMAXPROCS)
	Do(func() {
		if n := runtime.GOMAXPROCS(0); n != 2 {
			t.Errorf("%d processors during the work, want 2", n)
		}
	})
	if n := runtime.GOMAXPROCS(0); n != found {
		t.Errorf("%d processors afterwards, want the machine's %d", n, found)
	}
}
