package proxy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

// drain ends a bind. It accepts no new connections, and answers announce the end. After the grace time it closes idle
// connections. When ctx ends, it aborts the rest. It returns when the last connection has ended.
func (b *bind) drain(ctx context.Context) {
	b.phase.Store(phaseDrain)
	close(b.quit)
	socket.StopAccepting(b.ln)
	b.queue.Wake()
	<-b.accepting
	b.each((*conn).goAway)

	ended := make(chan struct{})
	go func() {
		b.wg.Wait()
		close(ended)
	}()
	if grace := b.srv.opt.DrainGrace; grace > 0 {
		t := time.NewTimer(grace)
		select {
		case <-ended:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
	b.phase.Store(phaseClose)
	b.each((*conn).wakeIdle)
	b.srv.idle.evict(b)
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	b.each((*conn).kill)
	b.relays.each(func(r *relay) { r.abort(&exchange.Failure{Reason: telemetry.Draining}) })
	<-ended
}

// each calls f with every open connection.
func (b *bind) each(f func(*conn)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		f(c)
	}
}

// remove drains a port that the configuration no longer has, in the background. The caller holds s.mu.
func (s *Server) remove(b *bind) {
	if !s.running {
		b.socket.Close()
		return
	}
	s.removed.Go(func() {
		ctx, cancel := context.WithTimeout(s.cut, s.opt.DrainTimeout)
		defer cancel()
		b.drain(ctx)
	})
}

// Sockets calls pass with each port's socket and its name, so that another process can serve from it too. It stops at
// the first error. The sockets stay the server's.
func (s *Server) Sockets(pass func(socket.Name, socket.Bound) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.binds {
		if err := pass(b.name(), b.socket); err != nil {
			return err
		}
	}
	return nil
}

// Taken notes that another process serves from these sockets from now on. When the server drains, it leaves waiting
// connections to that process.
func (s *Server) Taken(names []socket.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.binds {
		if slices.Contains(names, b.name()) {
			b.shared.Store(true)
		}
	}
}

// Run serves until ctx ends, then drains: it accepts no new connections, gives exchanges in flight DrainTimeout and
// aborts the rest. It returns when everything that the server started has ended.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.running || s.ended {
		s.mu.Unlock()
		return errors.New("proxy: Run was called twice")
	}
	s.running = true
	s.shortage.open()
	idle, err := newParking(s.opt.IdleTimeout)
	if s.idle = idle; err != nil && !errors.Is(err, errors.ErrUnsupported) {
		s.log.Warn("idle connections will keep their goroutines", "error", err)
	}
	for _, b := range s.binds {
		b.run()
	}
	s.mu.Unlock()

	s.rebindLoop(ctx)

	s.mu.Lock()
	s.ended = true
	binds := s.binds
	s.binds = nil
	s.mu.Unlock()
	s.log.Info("draining", "connections", s.connections.Load(), "timeout", s.opt.DrainTimeout)
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opt.DrainTimeout)
	defer cancel()
	context.AfterFunc(limit, func() {
		s.cutNow()
		// Closing the connections to endpoints ends the exchanges that wait for them.
		s.upstream.Close()
	})
	var wg sync.WaitGroup
	for _, b := range binds {
		wg.Go(func() { b.drain(limit) })
	}
	wg.Wait()
	s.removed.Wait()
	s.refusals.close()
	s.shortage.close()
	s.mirrors.Close(limit)
	s.workers.Close()
	s.idle.close()
	s.cutNow()
	return s.upstream.Close()
}
