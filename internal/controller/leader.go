package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/control"
	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/task"
)

// leader is what one replica alone may do about Gateways, for as long as it leads: make what they need in the cluster, and bring statuses together with
// what proxies run. Its methods are tasks; what writes statuses and events is set by them.
type leader struct {
	*controlPlane
	woken chan struct{}
	// applier is the one that runs; nil is none.
	applier atomic.Pointer[infra.Applier]
	// known is open while it is known how things stand: before, nothing is written.
	known task.Gate
	// statuses are those that were written last, for people to see; nil while nothing is known.
	statuses atomic.Pointer[[]resource.Status]
}

func newLeader(c *controlPlane) *leader {
	return &leader{controlPlane: c, woken: make(chan struct{}, 1)}
}

// leaderPause is the least time between two looks at how things stand, so that a burst is one.
const leaderPause = 20 * time.Millisecond

// leaderRetry is the pause where it could not be known how things stand.
const leaderRetry = 200 * time.Millisecond

// wake has the leader look at how things stand.
func (l *leader) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// infrastructure makes what Gateways need in the cluster.
func (l *leader) infrastructure(ctx context.Context) error {
	a, err := infra.NewApplier(l.client.Config, l.namespaces, l.log, func(model.Owner) { l.wake() })
	if err != nil {
		return err
	}
	l.applier.Store(a)
	defer l.applier.Store(nil)
	l.wake()
	return a.Run(ctx)
}

// reconciler is what a reconciliation knows, from its beginning to its end.
type reconciler struct {
	*leader
	fleet infra.Fleet
	tell  *control.Teller
	told  *control.Report // the report whose findings were told last
	// planned, plannedCA and plannedBy are what plans were made of and who has them: what proxies say changes none of them.
	planned   *control.Report
	plannedCA string
	plannedBy *infra.Applier
	// written is the report whose statuses were given to the writer last.
	written *control.Report
}

// reconcile brings the cluster and the statuses to what the newest report says, over and over.
func (l *leader) reconcile(ctx context.Context) error {
	defer l.statuses.Store(nil)
	defer l.known.Shut()
	s := &reconciler{leader: l, fleet: infra.Fleet{ControllerName: dialect.ControllerName}, tell: control.NewTeller(l.log, false)}
	l.wake()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.woken:
		}
		wait := leaderPause
		if r, a := l.latest.Load(), l.applier.Load(); r != nil {
			s.tellFindings(r)
			switch err := s.step(ctx, r, a); {
			case err == nil:
				l.known.Open()
			case a != nil: // else one is on its way, and wakes
				if ctx.Err() == nil {
					l.log.Debug("statuses are not known yet", "reason", err)
				}
				wait = leaderRetry
				l.wake()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// tellFindings tells those of a report, for all replicas.
func (l *reconciler) tellFindings(r *control.Report) {
	if r != l.told {
		l.tell.Tell(r.Findings, nil)
		l.told = r
	}
}

var errNoApplier = errors.New("the task \"infrastructure\" does not run")

// step looks at how things stand and says what is to be made and written.
func (l *reconciler) step(ctx context.Context, r *control.Report, applier *infra.Applier) error {
	if applier == nil {
		return errNoApplier
	}
	if ca := l.authority.Bundle(); ca != "" && r.Config != nil && (r != l.planned || ca != l.plannedCA || applier != l.plannedBy) {
		options := infra.Options{
			Controller: l.feedTarget(), Image: l.proxyImage, ImagePullPolicy: l.imagePullPolicy(), CA: ca,
			LogLevel: l.proxyLog.level, LogFormat: l.proxyLog.format,
		}
		if l.mesh.on && l.trustDomain != spiffe.DefaultTrustDomain {
			options.TrustDomain = l.trustDomain
		}
		plans := options.Plans(r.Set, dialect.ControllerName, r.Config, r.Statuses)
		for i := range plans {
			if r.Invalid[plans[i].Gateway] != nil { // what its proxies serve is better than nothing
				plans[i].Keep, plans[i].Objects = true, nil
			}
		}
		applier.Set(plans)
		l.planned, l.plannedCA, l.plannedBy = r, ca, applier
	}
	var unknown error
	statuses := l.fleet.Overlay(r.Set, r.Statuses, func(gateway model.Owner) infra.State {
		s, err := l.state(ctx, applier, gateway)
		if err != nil {
			unknown = err
		}
		return s
	})
	if unknown != nil {
		return unknown
	}
	if before := l.statuses.Load(); r == l.written && sameOverlay(*before, statuses) {
		return nil
	}
	l.statuses.Store(&statuses)
	l.statusWriter.Set(statuses)
	l.recorder.Set(r.Events)
	if r != l.written {
		l.classes.Set(r.Set)
	}
	l.written = r
	return nil
}

// sameOverlay compares the statuses of one report after two readings of the fleet, which only corrects statuses of
// these kinds.
func sameOverlay(a, b []resource.Status) bool {
	return slices.EqualFunc(a, b, func(a, b resource.Status) bool {
		switch a.Ref.Kind {
		case "GatewayClass", "Gateway", "ListenerSet":
			return reflect.DeepEqual(a, b)
		}
		return true
	})
}

// state is what there is of a Gateway, and what its proxies run, whichever replica they are connected to.
func (l *leader) state(ctx context.Context, applier *infra.Applier, gateway model.Owner) (infra.State, error) {
	found, err := applier.Found(ctx, gateway)
	if err != nil {
		return infra.State{}, fmt.Errorf("what was made for Gateway %s: %w", gateway, err)
	}
	s := infra.State{Found: found, Version: l.feeds.Version(gateway)}
	for _, p := range replica.Newest(l.feeds.Running(gateway), l.board.Others(gateway)) {
		proxy := infra.Proxy{Name: p.Name, Version: p.Version, Err: p.Err}
		for _, u := range p.Unserved {
			proxy.Unserved = append(proxy.Unserved, infra.Unserved{Listener: u.Listener, Reason: u.Reason})
		}
		s.Proxies = append(s.Proxies, proxy)
	}
	return s, nil
}
