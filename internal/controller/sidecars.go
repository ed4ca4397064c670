package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/identity/workload"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

// sidecars gives the sidecars that are connected to this replica their configurations: one when it connects, all after
// each change of the cluster. One task makes them, one after the other, so that Gateways never wait for them. What has
// changed several times meanwhile is made once.
type sidecars struct {
	feeds *feed.Server
	log   *slog.Logger
	// roots are those by which identities are signed, as PEM; empty if they are not known.
	roots func() string
	woken chan struct{}
	// directing is called when questions are answered by a newer state.
	directing func()
	wrong     loglimit.Limiter

	// base is what sidecars that ask for destinations have in common, and of the state it is of; everything is what others have,
	// by namespace. Only run uses them.
	base       *feed.Common
	everything map[string]everything
	of         *control.Sidecars

	mu sync.Mutex
	// newest makes configurations; nil before the first report. directed is what answers those that ask.
	newest, directed *control.Sidecars
	// known are the pods that are connected, and whether their configurations are due. Those that came since the last change
	// are in fresh, others in stale.
	known        map[model.Owner]bool
	whole        map[model.Owner]bool // those that were given everything
	fresh, stale []model.Owner
	turn         bool
}

// everything is what sidecars have that do not ask, and what it was made of.
type everything struct {
	common *feed.Common
	of     *model.Config
}

// sidecarStatus is how they stand, for /status.
type sidecarStatus struct {
	// Connected are those connected to this replica, Due those of them whose configuration is not of the newest state of the
	// cluster yet.
	Connected int `json:"connected"`
	Due       int `json:"due"`
	// Unsent are destinations that sidecars use, or ask for, and that are too large to be sent, at most 64.
	Unsent []feed.Unsent `json:"unsent,omitempty"`
}

// newSidecars returns nil if there are none to be fed.
func newSidecars(c *controlPlane) *sidecars {
	if !c.mesh.on {
		return nil
	}
	c.feeds.Destinations = true
	return &sidecars{
		feeds: c.feeds, log: c.log, roots: c.identities.authority.Bundle, woken: make(chan struct{}, 1), known: map[model.Owner]bool{}, whole: map[model.Owner]bool{},
		everything: map[string]everything{}, directing: c.wakeReleases,
	}
}

// know is called with what makes configurations, after each change.
func (s *sidecars) know(newest *control.Sidecars) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if newest == s.newest { // it was reported again
		return
	}
	same := s.newest != nil && newest.SameInbound(s.newest)
	s.newest = newest
	s.due(same)
}

// rerooted is called when the roots may have changed.
func (s *sidecars) rerooted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due(false)
}

// due has those that are connected get a configuration: all, or with same those that have everything. The caller has the lock.
func (s *sidecars) due(same bool) {
	for owner, due := range s.known {
		if !due && !(same && !s.whole[owner]) { // else what it has is what would be made
			s.known[owner] = true
			s.stale = append(s.stale, owner)
		}
	}
	s.wake()
}

// changed is called when a proxy of a pod may have come or gone.
func (s *sidecars) changed(owner model.Owner) {
	connected, has, whole := len(s.feeds.Running(owner)) > 0, s.feeds.Version(owner) != "", !s.feeds.Asks(owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.known[owner]:
	case !connected:
		delete(s.known, owner)
		delete(s.whole, owner)
	case !has || whole && !s.whole[owner]:
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

// step makes a configuration that is due, and reports whether there was one. Questions are answered by its state from then on.
func (s *sidecars) step() bool {
	owner, newest := s.next()
	if newest == nil {
		return false
	}
	if s.prepare(newest); owner == "" {
		return false
	}
	own, left := newest.Inbound(owner.Namespace(), owner.Name())
	if own == nil {
		s.forget(owner, len(s.feeds.Running(owner)) > 0) // a pod that is not known yet, or not any more, keeps what it has
		return true
	}
	common, whole := s.base, !s.feeds.Asks(owner)
	if whole {
		common = s.all(newest, owner.Namespace())
	}
	s.note(owner, whole)
	own = issued(own, newest.NamesOf(owner.Namespace(), owner.Name()), s.roots())
	connected, err := s.feeds.Set(owner, own, common)
	s.forget(owner, connected)
	s.tell(left, err, "workload", owner.Namespace()+"/"+owner.Name())
	return true
}

// issued is a pod's configuration with what the pod's certificate would be if it were signed now, so that the pod renews one
// that is another. The listener that takes what no other takes says it, since each pod has one of these.
func issued(own *model.Config, names []string, roots string) *model.Config {
	at := slices.IndexFunc(own.Listeners, func(l model.Listener) bool { return l.Port == 0 && l.TLS != nil && l.TLS.Identity() != "" })
	if at < 0 || roots == "" {
		return own
	}
	out := *own
	out.Listeners = slices.Clone(own.Listeners)
	tls := *own.Listeners[at].TLS
	is := workload.IssuedOf(names, []byte(roots))
	tls.Issued = &model.Issued{Names: is.Names, Roots: is.Roots}
	out.Listeners[at].TLS = &tls
	return &out
}

// prepare has questions answered by a state, unless they are. Until it is read, they are answered by the one before.
func (s *sidecars) prepare(newest *control.Sidecars) {
	if s.of == newest {
		return
	}
	base, err := feed.NewCommon(newest.Base(), s.base)
	if err == nil {
		base.Partial = true
		s.base = base
	}
	s.feeds.Direct(newest.To)
	s.of = newest
	s.mu.Lock()
	s.directed = newest
	s.mu.Unlock()
	if s.directing != nil {
		s.directing()
	}
	s.tell(nil, err, "workload", "all")
}

// all makes what the sidecars of a namespace have in common that do not ask, unless it did so before. Namespaces for which it is
// the same share it.
func (s *sidecars) all(newest *control.Sidecars, namespace string) *feed.Common {
	outbound, left := newest.Outbound(namespace)
	is := s.everything[namespace]
	if is.of == outbound {
		return is.common
	}
	for _, other := range s.everything {
		if other.of == outbound {
			s.everything[namespace] = other
			return other.common
		}
	}
	common, err := feed.NewCommon(outbound, is.common)
	if err == nil {
		is.common = common
	}
	is.of = outbound
	s.everything[namespace] = is
	s.tell(left, err, "workload", "all of namespace "+namespace)
	return is.common
}

// note notes whether an owner is given everything.
func (s *sidecars) note(owner model.Owner, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if whole {
		s.whole[owner] = true
	} else {
		delete(s.whole, owner)
	}
}

// lagging says which sidecar that is connected to this replica, or what, does not serve a state yet as far as some Services are
// concerned, "namespace/name"; empty if all do that are known to.
func (s *sidecars) lagging(newest *control.Sidecars, services map[string]bool) string {
	s.mu.Lock()
	current := s.directed == newest
	s.mu.Unlock()
	if !current {
		return "the configuration of sidecars is not made yet"
	}
	name := s.feeds.Lagging(func(c *model.Config) bool {
		for i := range c.Listeners {
			if ref := &c.Listeners[i].Ref; ref.Kind == model.KindService && services[ref.Namespace+"/"+ref.Name] {
				return true
			}
		}
		return slices.ContainsFunc(c.Services, func(s model.Service) bool {
			service, _, _ := strings.Cut(s.Name, ":")
			return services[service]
		})
	})
	if name != "" {
		return fmt.Sprintf("the sidecar of pod %s does not serve the configuration yet", name)
	}
	return ""
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

// next takes an owner that is due; "" if there is none, and no state either if questions are answered by the newest. Those that
// have nothing yet and the others have turns.
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
		if s.directed == s.newest {
			return "", nil
		}
		return "", s.newest
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
		delete(s.whole, owner)
	}
}

// connected is how many of some pods have a sidecar that is connected to this replica.
func (s *sidecars) connected(pods telemetry.TapSides) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for side := range pods {
		if side.Kind == model.KindPod {
			if _, ok := s.known[model.WorkloadOwner(side.Namespace, side.Name)]; ok {
				n++
			}
		}
	}
	return n
}

// status is how they stand; nil if none are fed.
func (s *sidecars) status() *sidecarStatus {
	if s == nil {
		return nil
	}
	connected, unsent := int(s.feeds.Stats().Workloads), s.feeds.Unsent()
	s.mu.Lock()
	defer s.mu.Unlock()
	due := 0
	for is := range maps.Values(s.known) {
		if is || s.directed != s.newest {
			due++
		}
	}
	return &sidecarStatus{connected, due, unsent[:min(len(unsent), 64)]}
}
