package proxy

import (
	"sync"

	"github.com/weirmesh/weir/internal/routing"
)

// lasting are the relays or the tunnels of a bind: what passed the access stage once and lasts.
type lasting[T comparable] struct {
	mu  sync.Mutex
	all map[T]struct{}
}

func (l *lasting[T]) add(x T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[T]struct{}{}
	}
	l.all[x] = struct{}{}
}

func (l *lasting[T]) remove(x T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, x)
}

// each calls f with all of them. None is added or removed meanwhile.
func (l *lasting[T]) each(f func(T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for x := range l.all {
		f(x)
	}
}

// list returns all of them; some may have ended by the time the caller looks.
func (l *lasting[T]) list() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]T, 0, len(l.all))
	for x := range l.all {
		all = append(all, x)
	}
	return all
}

// rejudge judges what lasts by the policies of a snapshot that has just taken the place of prev. Ports whose policies did
// not change cost nothing. A connection that is let in by prev at this moment judges itself again: it first puts itself
// where rejudge finds it, and then looks whether the configuration is still the same.
func (s *Server) rejudge(snap, prev *snapshot) {
	if prev == nil {
		return
	}
	for b, port := range snap.ports {
		if before := prev.ports[b]; before != nil {
			b.rejudge(snap, port, prev, before)
		}
	}
}

func (b *bind) rejudge(snap *snapshot, port *routing.Port, prev *snapshot, before *routing.Port) {
	same := func(now, then *routing.Port) bool {
		if now == nil || then == nil {
			return now == then
		}
		return snap.SameAccess(now, prev.Snapshot, then)
	}
	if b.redirect == "" && same(port, before) {
		return
	}
	for _, r := range b.relays.list() {
		if now := port.Meant(r.to); !same(now, before.Meant(r.to)) {
			r.rejudge(snap, now)
		}
	}
	for _, t := range b.tunnels.list() {
		if now := port.Meant(t.c.to); !same(now, before.Meant(t.c.to)) {
			t.rejudge(snap, now)
		}
	}
}
