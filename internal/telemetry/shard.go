package telemetry

import (
	"math/bits"
	"runtime"
	"sync/atomic"
)

// cacheLine is the distance that keeps two cores' counters apart: two cache lines, because of adjacent-line
// prefetching.
const cacheLine = 128

const maxShards = 16

// shardCount is a small power of two: twice the processors, so that few connections meet in a shard.
func shardCount() int {
	n := runtime.GOMAXPROCS(0)
	if n <= 1 {
		return 1
	}
	return min(maxShards, 1<<bits.Len(uint(2*n-1)))
}

// shards is a set of T, which are allocated on their first use: a configuration of ten thousand rules costs little
// until they get traffic. The pointers are inline, to save a cache miss.
type shards[T any] struct {
	mask uint32
	at   [maxShards]atomic.Pointer[T]
}

func newShards[T any](n int) shards[T] { return shards[T]{mask: uint32(n - 1)} }

func (s *shards[T]) get(shard uint32) *T { return load(&s.at[shard&s.mask&(maxShards-1)]) }

// load returns what p points to, and allocates it first if needed.
func load[T any](p *atomic.Pointer[T]) *T {
	if v := p.Load(); v != nil {
		return v
	}
	v := new(T)
	if !p.CompareAndSwap(nil, v) {
		v = p.Load()
	}
	return v
}

// each calls f with the shards that exist.
func (s *shards[T]) each(f func(*T)) {
	for i := range s.at {
		if v := s.at[i].Load(); v != nil {
			f(v)
		}
	}
}

// used reports whether anything was counted.
func (s *shards[T]) used() bool {
	for i := range s.at {
		if s.at[i].Load() != nil {
			return true
		}
	}
	return false
}
