package controller

import (
	"context"
	"log/slog"
	"maps"
	"sync"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/model"
)

// sidecars gives the sidecars that are connected to this replica their configurations: one when it connects, all after
// each change of the cluster. One task makes them, one after the other, so that Gateways never wait for them. What has
// changed several times meanwhile is made once.
type sidecars struct {
	feeds *feed.Server
	log   *slog.Logger
	woken chan struct{}
	wrong loglimit.Limiter

	// common is what the sidecars have in common, of the state that of is; only run uses it.
	common *feed.Common
	of     *control.Sidecars

	mu sync.Mutex
	// newest makes configurations; nil before the first report.
	newest *control.Sidecars
	// known are the pods that are connected, and whether their configurations are due. Those that came since the last change
	// are in fresh, others in stale.
	known        map[model.Owner]bool
	fresh, stale []model.Owner
	turn         bool
}

// sidecarStatus is how they stand, for /status.
type sidecarStatus struct {
	// Connected are those connected to this replica, Due those of them whose configuration is not of the newest state of the
	// cluster yet.
	Connected int `json:"connected"`
	Due       int `json:"due"`
}

// newSidecars returns nil if there are none to be fed.
func newSidecars(c *controlPlane) *sidecars {
	if !c.mesh.on {
		return nil
	}
	return &sidecars{feeds: c.feeds, log: c.log, woken: make(chan struct{}, 1), known: map[model.Owner]bool{}}
}

// know is called with what makes configurations, after each change.
func (s *sidecars) know(newest *control.Sidecars) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if newest == s.newest { // it was reported again
		return
	}
	s.newest = newest
	for owner, due := range s.known {
		if !due {
			s.known[owner] = true
			s.stale = append(s.stale, owner)
		}
	}
	s.wake()
}

// changed is called when a proxy of a pod may have come or gone.
func (s *sidecars) changed(owner model.Owner) {
	connected, has := len(s.feeds.Running(owner)) > 0, s.feeds.Version(owner) != ""
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.known[owner]:
	case !connected:
		delete(s.known, owner)
	case !has:
		s.known[owner] = true
		s.fresh = append(s.fresh, owner)
		s.wake()
	}
}

func (s *sidecars) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// run makes configurations until ctx ends.
func (s *sidecars) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.woken:
		}
		for ctx.Err() == nil && s.step() {
		}
	}
}

// step makes a configuration that is due, and reports whether there was one.
func (s *sidecars) step() bool {
	owner, newest := s.next()
	if owner == "" {
		return false
	}
	s.prepare(newest)
	own, left := newest.Inbound(owner.Namespace(), owner.Name())
	if own == nil {
		s.forget(owner, len(s.feeds.Running(owner)) > 0) // a pod that is not known yet, or not any more, keeps what it has
		return true
	}
	connected, err := s.feeds.Set(owner, own, s.common)
	s.forget(owner, connected)
	s.tell(left, err, "workload", owner.Namespace()+"/"+owner.Name())
	return true
}

// prepare makes what the sidecars of a state have in common, unless it did so before.
func (s *sidecars) prepare(newest *control.Sidecars) {
	if s.of == newest {
		return
	}
	outbound, left := newest.Outbound()
	common, err := feed.NewCommon(outbound, s.common)
	if err == nil {
		s.common = common
	}
	s.of = newest
	s.tell(left, err, "workload", "all")
}

// tell logs what of a configuration is not sent.
func (s *sidecars) tell(left []model.Omission, err error, about ...any) {
	if len(left) > 0 {
		s.wrong.Log(s.log, slog.LevelError, "left out", "part of the configuration of sidecars is left out", append(about, "part", left[0].String(), "parts", len(left))...)
	}
	if err != nil {
		s.wrong.Log(s.log, slog.LevelError, "unsent", "the configuration of sidecars cannot be sent, and they keep the previous one", append(about, "error", err)...)
	}
}

// next takes an owner that is due; "" if there is none. Those that have nothing yet and the others have turns.
func (s *sidecars) next() (model.Owner, *control.Sidecars) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil {
		return "", nil
	}
	s.turn = !s.turn
	from := &s.fresh
	if len(s.fresh) == 0 || len(s.stale) > 0 && !s.turn {
		from = &s.stale
	}
	if len(*from) == 0 {
		return "", nil
	}
	owner := (*from)[0]
	*from = (*from)[1:]
	s.known[owner] = false // it is due again with what comes from now on
	return owner, s.newest
}

// forget forgets an owner unless it is connected or due again.
func (s *sidecars) forget(owner model.Owner, connected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !connected && !s.known[owner] {
		delete(s.known, owner)
	}
}

// status is how they stand; nil if none are fed.
func (s *sidecars) status() *sidecarStatus {
	if s == nil {
		return nil
	}
	connected := int(s.feeds.Stats().Workloads)
	s.mu.Lock()
	defer s.mu.Unlock()
	due := 0
	for is := range maps.Values(s.known) {
		if is {
			due++
		}
	}
	return &sidecarStatus{connected, due}
}
