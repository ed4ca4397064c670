package proxy

import (
	"crypto/tls"
	"slices"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/upstream"
)

// snapshot is one configuration, ready to serve. Its slices are parallel to the dense IDs of the table.
type snapshot struct {
	*exchange.Snapshot
	left  []model.Omission // out of the configuration
	ports map[*bind]*routing.Port
	// configs are the listeners' TLS sides; nil for cleartext and for a listener that cannot be served.
	configs []*tls.Config
	// certificates are those that listeners present, by name.
	certificates map[string]*certificate
	// kinds are what the listeners' ports do.
	kinds []*portKind
}

// compile prepares a configuration; it changes nothing that the current one uses. What cannot be served is left out. The services of the new
// snapshot come later, with attach.
func (s *Server) compile(cfg *model.Config, prev *snapshot) *snapshot {
	var prevTable *routing.Table
	if prev != nil {
		prevTable = prev.Table
	}
	table, left := routing.Compile(cfg, prevTable)
	snap := &snapshot{Snapshot: exchange.NewSnapshot(table), left: left, ports: map[*bind]*routing.Port{}}
	s.compileTLS(cfg, snap, prev)
	for _, l := range table.Listeners() {
		snap.kinds = append(snap.kinds, portKinds[l.Listener.Protocol])
	}
	snap.left = model.SortOmissions(snap.left)
	return snap
}

// LeftOut returns what the configuration being served has that cannot be served, sorted by object, and why. There is none of it in one that
// model.Config.Validate accepts and whose certificates are good.
func (s *Server) LeftOut() []model.Omission {
	if snap := s.state.Load(); snap != nil {
		return slices.Clone(snap.left)
	}
	return nil
}

// tellLeftOut logs what a snapshot leaves out and the one before did not.
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
