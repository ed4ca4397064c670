// Package loglimit limits how often the log repeats a message, so that events from outside cannot fill the log. It
// writes no log of its own and ignores levels. Packages that log events from outside the process use it.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultEvery is Limiter.Every if that is not set.
	DefaultEvery = 10 * time.Second
	// MaxKeys is how many keys a Limiter distinguishes at a time. Lines about other keys share one allowance.
	MaxKeys = 256
)

// Limiter allows the first line about a key, then one per Every, and counts the lines in between. The key is "" if
// there is nothing to distinguish. Then the Limiter takes no lock and allocates nothing, so it may be used where many
// requests pass. The zero value is ready for use. A Limiter must not be copied after first use.
type Limiter struct {
	// Every is the least time between two lines about one key. Default: DefaultEvery.
	Every time.Duration

	shared allowance // of "", and of keys beyond MaxKeys

	mu    sync.Mutex
	keys  map[string]*allowance
	swept int64 // when the keys were last swept
}

// allowance is the remaining allowance of one key.
type allowance struct {
	next       atomic.Int64 // instant from which a line is allowed
	suppressed atomic.Int64
}

// Allow reports whether a line about key may be written now, and how many lines about it were suppressed since the last
// one.
func (l *Limiter) Allow(key string) (suppressed int64, ok bool) {
	every := l.Every
	if every <= 0 {
		every = DefaultEvery
	}
	now := int64(time.Since(origin))
	a := &l.shared
	if key != "" {
		a = l.of(key, now, int64(every))
	}
	next := a.next.Load()
	if now < next || !a.next.CompareAndSwap(next, now+int64(every)) {
		a.suppressed.Add(1)
		return 0, false
	}
	return a.suppressed.Swap(0), true
}

// Log writes a line about key if Allow permits it. It reports whether it did.
func (l *Limiter) Log(log *slog.Logger, level slog.Level, key, msg string, args ...any) bool {
	if !log.Enabled(context.Background(), level) {
		return false
	}
	suppressed, ok := l.Allow(key)
	if ok {
		log.Log(context.Background(), level, msg, Args(suppressed, args...)...)
	}
	return ok
}

// Args returns the attributes of a line after the given number of suppressed lines.
func Args(suppressed int64, args ...any) []any {
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	return args
}

// of returns the allowance of a key. If there are too many keys, it drops the ones whose next line would be allowed
// now. Lines suppressed for them count with the shared allowance.
func (l *Limiter) of(key string, now, every int64) *allowance {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.keys[key]; a != nil {
		return a
	}
	if len(l.keys) >= MaxKeys {
		if now < l.swept+every {
			return &l.shared
		}
		l.swept = now
		for k, a := range l.keys {
			if now >= a.next.Load() {
				l.shared.suppressed.Add(a.suppressed.Load())
				delete(l.keys, k)
			}
		}
		if len(l.keys) >= MaxKeys {
			return &l.shared
		}
	}
	if l.keys == nil {
		l.keys = make(map[string]*allowance)
	}
	a := &allowance{}
	l.keys[key] = a
	return a
}

// origin lies long before all times that are compared, including those of tests with a fake clock. It has a reading of
// the monotonic clock.
var origin = time.Now().Add(-1 << 61)
