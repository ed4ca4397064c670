package mirror

import (
	"cmp"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/clock"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

// dropsQuiet is how long no copy must have been dropped for a cause before the cause is no longer reported.
const dropsQuiet = time.Minute

// DropCause is the bound that made the Set drop copies.
type DropCause uint8

const (
	dropNothing DropCause = iota
	// DropInFlight is Options.MaxInFlight.
	DropInFlight
	// DropBytes is Options.MaxBytes.
	DropBytes
	// DropBuffered is the limit of the memory budget, which copies share.
	DropBuffered
	// DropBody is Options.MaxCopyBytes.
	DropBody
	// DropFailing is Options.BreakAfter: the service fails too often.
	DropFailing
	dropCauses
)

// Drop reports that copies are being dropped.
type Drop struct {
	// Service is the name of the service that copies go to. Ref is the filter whose copy was dropped first.
	Service string
	Ref     model.Ref
	Cause   DropCause
	// Bound is the bound that was exceeded, in the unit of the cause. Enough is a bound that would have admitted that
	// copy, as far as it is known.
	Bound, Enough int64
	// Failure is the last outcome before DropFailing.
	Failure telemetry.MirrorOutcome
}

// dropNote is what the Set knows about dropped copies to one service for one cause.
type dropNote struct {
	last atomic.Int64 // when a copy was dropped, within the last second
	told atomic.Bool  // drop is valid
	drop Drop         // guarded by Set.dropsMu
}

// Drops returns the bounds that copies exceeded in the last minute, by service, then cause.
func (m *Set) Drops() (out []Drop) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropsMu.Lock()
	defer m.dropsMu.Unlock()
	for _, s := range m.services {
		for i := range s.drops {
			if n := &s.drops[i]; n.told.Load() {
				out = append(out, n.drop)
			}
		}
	}
	slices.SortFunc(out, func(a, b Drop) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Cause, b.Cause), a.Ref.Compare(b.Ref), cmp.Compare(a.Enough, b.Enough))
	})
	// A service with several client certificates has an entry for each.
	return slices.CompactFunc(out, func(a, b Drop) bool { return a.Service == b.Service && a.Cause == b.Cause })
}

// dropped records that a copy of the target was dropped. enough is as in Drop.
func (s *service) dropped(t *Target, cause DropCause, enough int64) {
	n := &s.drops[cause]
	if now := clock.Instant(time.Now()); now-n.last.Load() > int64(time.Second) || !n.told.Load() {
		n.last.Store(now)
	}
	if n.told.Load() {
		return
	}
	m := s.mirrors
	m.dropsMu.Lock()
	first := !n.told.Load()
	if first {
		n.drop = Drop{Service: s.name, Ref: t.ref, Cause: cause, Bound: s.bound(cause), Failure: telemetry.MirrorOutcome(s.failure.Load())}
		n.drop.Enough = max(2*n.drop.Bound, roundUp(enough))
		n.told.Store(true)
	}
	m.dropsMu.Unlock()
	if first {
		select {
		case m.news <- struct{}{}:
		default:
		}
	}
}

// bound returns the value of the cause's bound.
func (s *service) bound(c DropCause) int64 {
	opt := &s.mirrors.opt
	switch c {
	case DropInFlight:
		return int64(opt.MaxInFlight)
	case DropBytes:
		return opt.MaxBytes
	case DropBuffered:
		return s.mirrors.budget.Limit()
	case DropBody:
		return int64(opt.MaxCopyBytes)
	case DropFailing:
		return int64(opt.BreakAfter)
	}
	return 0
}

// roundUp returns the next power of two.
func roundUp(n int64) int64 {
	if n <= 1 || n > 1<<61 {
		return n
	}
	return 1 << bits.Len64(uint64(n-1))
}

// forgetDrops clears the causes for which no copy was dropped since before. It reports whether it cleared any.
func (m *Set) forgetDrops(before time.Time) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropsMu.Lock()
	defer m.dropsMu.Unlock()
	for _, s := range m.services {
		for i := range s.drops {
			if n := &s.drops[i]; n.told.Load() && n.last.Load() < clock.Instant(before) {
				n.told.Store(false)
				changed = true
			}
		}
	}
	return changed
}

// keepDrops clears the drops of filters that are gone. The caller holds m.mu.
func (m *Set) keepDrops(specs []Spec) {
	m.dropsMu.Lock()
	defer m.dropsMu.Unlock()
	for _, s := range m.services {
		for i := range s.drops {
			if n := &s.drops[i]; n.told.Load() && !slices.ContainsFunc(specs, func(spec Spec) bool { return spec.Name == s.name && spec.Ref == n.drop.Ref }) {
				n.told.Store(false)
			}
		}
	}
}
