package routing

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestAShareIsExact(t *testing.T) {
	for _, f := range [][2]uint64{{0, 1}, {1, 1}, {0, 7}, {7, 7}, {1, 100}, {3, 8}, {999, 1000}} {
		s, err := NewShare(f[0], f[1])
		if err != nil {
			t.Fatal(err)
		}
		var taken atomic.Uint64
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range f[1] {
					if s.Take() {
						taken.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if got := taken.Load(); got != 10*f[0] {
			t.Errorf("%d of ten times %d are taken, want %d", got, f[1], 10*f[0])
		}
	}
	for _, f := range [][2]uint64{{0, 0}, {2, 1}, {1, MaxShare + 1}} {
		if _, err := NewShare(f[0], f[1]); err == nil {
			t.Errorf("%d/%d is a share", f[0], f[1])
		}
	}
}
