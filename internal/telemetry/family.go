package telemetry

import "time"

// life is when the configuration dropped a series; the zero time while it is in use.
type life struct{ dropped time.Time }

// family is the series of one kind, bounded in number. Its owner locks.
type family[K comparable, S any] struct {
	options  Options
	make     func(K) *S
	life     func(*S) *life
	byKey    map[K]*S
	overflow *S
	// next is when the next series may expire; zero is never.
	next time.Time
}

func newFamily[K comparable, S any](o Options, newSeries func(K) *S, lifeOf func(*S) *life, overflow K) family[K, S] {
	return family[K, S]{options: o, make: newSeries, life: lifeOf, byKey: map[K]*S{}, overflow: newSeries(overflow)}
}

func (f *family[K, S]) get(key K) *S {
	if s, ok := f.byKey[key]; ok {
		f.life(s).dropped = time.Time{}
		return s
	}
	if len(f.byKey) >= f.options.MaxSeries {
		f.expire(time.Now())
		if len(f.byKey) >= f.options.MaxSeries {
			return f.overflow
		}
	}
	s := f.make(key)
	f.byKey[key] = s
	return s
}

func (f *family[K, S]) keep(used []*S, now time.Time) {
	in := make(map[*S]struct{}, len(used))
	for _, s := range used {
		in[s] = struct{}{}
	}
	for _, s := range f.byKey {
		l := f.life(s)
		if _, ok := in[s]; ok {
			l.dropped = time.Time{}
		} else if l.dropped.IsZero() {
			l.dropped = now
			f.due(now)
		}
	}
	f.expire(now)
}

// due takes note that a series was dropped.
func (f *family[K, S]) due(dropped time.Time) {
	if at := dropped.Add(f.options.Grace); f.next.IsZero() || at.Before(f.next) {
		f.next = at
	}
}

// expire removes series that were dropped longer ago than the grace time. It only looks for them if there may be some,
// because it is called for each series over the bound.
func (f *family[K, S]) expire(now time.Time) {
	if f.next.IsZero() || now.Before(f.next) {
		return
	}
	f.next = time.Time{}
	for key, s := range f.byKey {
		switch d := f.life(s).dropped; {
		case d.IsZero():
		case now.Sub(d) >= f.options.Grace:
			delete(f.byKey, key)
		default:
			f.due(d)
		}
	}
}

// shown are all series that still count, and the overflow.
func (f *family[K, S]) shown(now time.Time) []*S {
	f.expire(now)
	all := make([]*S, 0, len(f.byKey)+2)
	for _, s := range f.byKey {
		all = append(all, s)
	}
	return append(all, f.overflow)
}
