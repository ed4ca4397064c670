package proxy

import (
	"crypto/tls"
	"net"
	"net/netip"
	"slices"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/upstream"
)

// snapshot is one configuration, ready to serve. Its slices are parallel to the dense IDs of the table.
type snapshot struct {
	*exchange.Snapshot
	left  []model.Omission // parts of the configuration that the proxy cannot serve
	ports map[*bind]*routing.Port
	// relays are the sockets of the ports whose connections are relayed.
	relays []netip.AddrPort
	// configs are the listeners' TLS configurations; nil for cleartext and for a listener that cannot be served.
	configs []*tls.Config
	// identities are the names of the identities that listeners present, by the listeners' IDs; empty for none.
	identities []string
	// certificates are the certificates that listeners present, by name.
	certificates map[string]*certificate
	// kinds are the kinds of the listeners' ports.
	kinds []*portKind
	// uses note, by the listeners' IDs, that connections came; nil without Options.Unknown, and elements of others than
	// single destinations are nil.
	uses []*use
}

// compile prepares a configuration. It changes nothing that the current configuration uses. It leaves out what cannot
// be served. attach later adds the services of the new snapshot.
func (s *Server) compile(cfg *model.Config, prev *snapshot) *snapshot {
	var prevTable *routing.Table
	var prevExchange *exchange.Snapshot
	if prev != nil {
		prevTable, prevExchange = prev.Table, prev.Snapshot
	}
	table, left := routing.Compile(cfg, prevTable)
	snap := &snapshot{Snapshot: exchange.NewSnapshot(cfg, table, prevExchange), left: left, ports: map[*bind]*routing.Port{}}
	s.compileTLS(cfg, snap, prev)
	snap.kinds = make([]*portKind, len(table.Listeners()))
	for _, socket := range table.Ports() {
		for _, p := range socket.All() {
			for _, l := range p.Listeners {
				snap.kinds[l.ID] = kindFor(p)
			}
		}
	}
	if s.opt.Unknown != nil {
		snap.markUses(prev)
	}
	snap.left = model.SortOmissions(snap.left)
	return snap
}

// LeftOut returns the parts of the served configuration that cannot be served, and why, sorted by object. It returns
// nothing if model.Config.Validate accepts the configuration and all certificates are usable.
func (s *Server) LeftOut() []model.Omission {
	if snap := s.state.Load(); snap != nil {
		return slices.Clone(snap.left)
	}
	return nil
}

// Relays returns the addresses of the sockets whose connections are relayed to endpoints without being understood: those of
// TCP listeners, and of listeners that detect what connections carry. A connection to one of them, by this process, may come back for ever.
func (s *Server) Relays() []netip.AddrPort {
	if snap := s.state.Load(); snap != nil {
		return snap.relays
	}
	return nil
}

// addRelay notes a port's socket if its connections are relayed.
func (snap *snapshot) addRelay(b *bind, p *routing.Port) {
	if tcp, ok := b.socket.Addr().(*net.TCPAddr); ok && p.Connections() {
		at := tcp.AddrPort()
		snap.relays = append(snap.relays, netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()))
	}
}

// tellLeftOut logs what a snapshot leaves out and the previous one did not.
func (s *Server) tellLeftOut(snap, prev *snapshot) {
	told := map[model.Omission]bool{}
	if prev != nil {
		for _, o := range prev.left {
			told[o] = true
		}
	}
	for _, o := range snap.left {
		if !told[o] {
			s.log.Error("part of the configuration is not served", "object", o.Ref.String(), "reason", o.Reason)
		}
	}
}

// attach gives the snapshot its services and counters. It cannot fail.
func (s *Server) attach(cfg *model.Config, snap *snapshot, services *upstream.Snapshot) {
	used := s.pipe.Attach(cfg, snap.Snapshot, services)
	for b := range snap.ports {
		used.Listeners = append(used.Listeners, b.metrics)
	}
	s.opt.Metrics.Keep(used)
}
