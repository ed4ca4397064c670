package proxy

import (
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// asks reports whether Options.Unknown is asked before a connection is served: its port is for more than the very address
// and port that the client meant, or given up (Server.Release).
func (b *bind) asks(snap *snapshot, port *routing.Port) bool {
	return b.srv.opt.Unknown != nil && b.redirect == model.RedirectOutbound && (port == nil || port.Number == 0 || !snap.useOf(port).note())
}

// find asks Options.Unknown in the connection's own goroutine, and then serves the connection by what the configuration
// has by then.
func (b *bind) find(nc net.Conn, shard uint32, to netip.AddrPort, n int64) {
	s := b.srv
	b.wg.Go(func() {
		if err := s.opt.Unknown(s.cut, to); err != nil {
			s.connections.Add(-1)
			b.lost(nc, shard, err)
			return
		}
		snap, port := b.serving(to)
		if u := snap.useOf(port); u != nil {
			u.Store(useCame)
		}
		b.admit(nc, shard, to, n, snap, port)
	})
}

// destination is the address and port that a port of the redirect outbound is for alone; ok is false for others.
func destination(l *model.Listener) (to netip.AddrPort, ok bool) {
	if l.Redirect != model.RedirectOutbound || l.Port == 0 {
		return to, false
	}
	a, err := netip.ParseAddr(l.Address)
	return netip.AddrPortFrom(a, uint16(l.Port)), err == nil
}

// use is how a destination is used: connections that come note it, Used reads and resets it, and Release gives the
// destination up, unless a connection came since.
type use struct{ atomic.Uint32 }

const (
	useNone uint32 = iota
	useCame
	// useReleased: Options.Unknown has to be asked again before a connection is served.
	useReleased
)

// note notes that a connection has come. It returns false if the destination is given up. It writes only the first time after
// Used.
func (u *use) note() bool {
	return u == nil || u.Load() == useCame || u.CompareAndSwap(useNone, useCame) || u.Load() == useCame
}

// markUses has the snapshot note to which destinations connections come, beside what the previous one noted.
func (snap *snapshot) markUses(prev *snapshot) {
	before := map[netip.AddrPort]*use{}
	if prev != nil {
		for i, l := range prev.Table.Listeners() {
			if to, ok := destination(l.Listener); ok && prev.uses != nil {
				before[to] = prev.uses[i]
			}
		}
	}
	snap.uses = make([]*use, len(snap.Table.Listeners()))
	for i, l := range snap.Table.Listeners() {
		to, ok := destination(l.Listener)
		if !ok {
			continue
		}
		if snap.uses[i] = before[to]; snap.uses[i] == nil {
			snap.uses[i] = new(use)
			before[to] = snap.uses[i] // listeners of one port share it
		}
	}
}

// useOf is the use of a port that is for a single destination; nil for others.
func (snap *snapshot) useOf(port *routing.Port) *use {
	if snap.uses == nil || port == nil {
		return nil
	}
	return snap.uses[port.Listeners[0].ID]
}

// Release gives a destination up that connections have not come to since the last call of Used, which did not return it. It
// returns false if one has. Connections that come afterwards have Options.Unknown asked, also while the configuration still
// has the destination.
func (s *Server) Release(to netip.AddrPort) bool {
	snap := s.state.Load()
	if snap == nil || snap.uses == nil {
		return true
	}
	for i, l := range snap.Table.Listeners() {
		if at, ok := destination(l.Listener); ok && at == to {
			return snap.uses[i].CompareAndSwap(useNone, useReleased)
		}
	}
	return true
}

// Used returns the addresses and ports that the pod's clients meant with a connection that is open, or began since the last
// call. It is for servers with Options.Unknown, which others do not note.
func (s *Server) Used() map[netip.AddrPort]bool {
	used := map[netip.AddrPort]bool{}
	snap := s.state.Load()
	if snap == nil {
		return used
	}
	if snap.uses != nil {
		for i, l := range snap.Table.Listeners() {
			if to, ok := destination(l.Listener); ok && snap.uses[i].CompareAndSwap(useCame, useNone) {
				used[to] = true
			}
		}
	}
	for b := range snap.ports {
		if b.redirect != model.RedirectOutbound {
			continue
		}
		b.each(func(c *conn) { used[c.to] = true })
		b.relays.each(func(r *relay) { used[r.to] = true })
	}
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	if idle != nil {
		idle.each(func(k *parked) {
			if k.bind.redirect == model.RedirectOutbound {
				used[k.to] = true
			}
		})
	}
	return used
}

// each calls f with all parked connections.
func (p *parking) each(f func(*parked)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := p.oldest; k != nil; k = k.newer {
		f(k)
	}
}
