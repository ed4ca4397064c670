package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirmesh/weir/internal/routing"
)

// Pauses between two attempts to bind a port. The first pause is short, because the obstacle may be a port that this
// server is about to close.
const (
	rebindFirst = 20 * time.Millisecond
	rebindPause = time.Second
)

// ErrNothingServed is why a configuration with listeners is not applied: none of them can be bound.
var ErrNothingServed = errors.New("nothing is served")

// nothingServed gives the reason for each port.
func nothingServed(unbound []*ListenError) error {
	errs := make([]error, len(unbound))
	for i, e := range unbound {
		errs[i] = e
	}
	return fmt.Errorf("%w: %w", ErrNothingServed, errors.Join(errs...))
}

// Unbound returns the ports of the configuration that cannot be bound now, by number, then address. Their listeners are
// not served until the ports are bound.
func (s *Server) Unbound() []*ListenError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.unbound)
}

// miss notes the ports that cannot be bound. It logs the ports that are new among them, or fail for a new reason. It
// reports whether the ports or reasons changed. The caller holds s.mu.
func (s *Server) miss(unbound []*ListenError) (changed bool) {
	same := func(a, b *ListenError) bool {
		return a.Port == b.Port && a.Address == b.Address && slices.Equal(a.Listeners, b.Listeners) && a.Err.Error() == b.Err.Error()
	}
	for _, e := range unbound {
		if !slices.ContainsFunc(s.unbound, func(old *ListenError) bool { return same(old, e) }) {
			s.log.Error("cannot bind port, trying again; other ports are served", "address", portKey(e.Address, e.Port), "listeners", e.Listeners, "error", e.Err)
		}
	}
	changed = !slices.EqualFunc(unbound, s.unbound, same)
	s.unbound = unbound
	return changed
}

// tryAgain wakes rebindLoop.
func (s *Server) tryAgain() {
	select {
	case s.missing <- struct{}{}:
	default:
	}
}

// rebindLoop tries again and again to bind the unbound ports, until ctx ends.
func (s *Server) rebindLoop(ctx context.Context) {
	for pause := time.Duration(0); ; {
		var again <-chan time.Time
		var timer *time.Timer
		if pause > 0 {
			timer = time.NewTimer(pause)
			again = timer.C
		}
		select {
		case <-ctx.Done():
		case <-s.missing: // unbound has something new
			pause = rebindFirst
		case <-again:
			if pause = min(2*pause, rebindPause); !s.rebind() {
				pause = 0
			}
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// rebind tries once. It reports whether some port still cannot be bound.
func (s *Server) rebind() bool {
	s.mu.Lock()
	if s.ended || len(s.unbound) == 0 {
		s.mu.Unlock()
		return false
	}
	snap := *s.state.Load()
	ports := make(map[*bind]*routing.Port, len(snap.ports)+len(s.unbound))
	for b, p := range snap.ports {
		ports[b] = p
	}
	snap.ports = ports
	binds := slices.Clone(s.binds)
	var opened []*bind
	var left []*ListenError
	for _, e := range s.unbound {
		b, err := s.open(e.port)
		if err != nil {
			left = append(left, err)
			continue
		}
		opened, binds, ports[b] = append(opened, b), append(binds, b), e.port
	}
	slices.SortFunc(binds, func(a, b *bind) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.address, b.address))
	})
	changed := s.miss(left)
	if len(opened) > 0 {
		s.state.Store(&snap)
		s.binds = binds
		for _, b := range opened {
			s.log.Info("port bound", "address", portKey(b.address, b.number))
			b.run()
		}
	}
	s.mu.Unlock()
	if changed {
		s.opt.PortsChanged()
	}
	return len(left) > 0
}
