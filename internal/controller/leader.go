package controller

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/control"
	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// leader does the work of a single replica, for as long as it leads: it creates what Gateways need in the cluster,
// writes statuses and events, and protects GatewayClasses that are in use.
type leader struct {
	*controlPlane
	applier *infra.Applier
	fleet   infra.Fleet

	tell  *control.Teller
	told  *control.Report // the report whose findings were told last
	woken chan struct{}
	// planned and plannedCA are the inputs of the applier's plans: reports of proxies change neither.
	planned   *control.Report
	plannedCA string
	// written is the report whose statuses were given to the writer last.
	written *control.Report
	// statuses are those that were written last, for display.
	statuses atomic.Pointer[[]resource.Status]
}

// leaderPause is the least time between two runs, so that a burst of changes causes one.
const leaderPause = 20 * time.Millisecond

// leaderRetry is the pause where it could not be known how things stand.
const leaderRetry = 200 * time.Millisecond

// leading is the work of a replica while it leads.
func (c *controlPlane) leading(ctx context.Context) {
	l := &leader{controlPlane: c, tell: control.NewTeller(c.log, false), woken: make(chan struct{}, 1), fleet: infra.Fleet{ControllerName: dialect.ControllerName}}
	for {
		err := l.run(ctx)
		if err == nil {
			return
		}
		c.log.Error("the leader's work was interrupted, starting again", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

func (l *leader) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// run blocks until ctx ends, which is no error.
func (l *leader) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.planned, l.written = nil, nil
	if l.applier, err = infra.NewApplier(l.client.Config, l.namespaces, l.log, func(model.GatewayKey) { l.wake() }); err != nil {
		return err
	}
	l.lead.Store(l)
	defer l.lead.Store(nil)
	l.wake()
	var wg sync.WaitGroup
	wg.Go(func() { err = l.applier.Run(ctx); cancel() })
	wg.Go(func() { l.follow(ctx) })
	if l.conversion.on() {
		wg.Go(func() { l.bundles().Run(ctx, l.rebundled) })
	}
	wg.Wait()
	return err
}

// follow makes the cluster and the statuses match the newest report, over and over. Nothing is written before the
// present state is known.
func (l *leader) follow(ctx context.Context) {
	var writers sync.WaitGroup
	defer writers.Wait()
	writing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.woken:
		}
		wait := leaderPause
		if r := l.latest.Load(); r != nil {
			if err := l.step(ctx, r); err != nil {
				if ctx.Err() == nil {
					l.log.Debug("statuses are not known yet", "reason", err)
				}
				wait = leaderRetry
				l.wake()
			} else if !writing {
				writing = true
				writers.Go(func() { l.failed("statuses are not written", l.statusWriter.Run(ctx)) })
				writers.Go(func() { l.failed("events are not written", l.recorder.Run(ctx)) })
				writers.Go(func() { l.failed("GatewayClasses are not kept", l.classes.Run(ctx)) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (l *leader) failed(what string, err error) {
	if err != nil {
		l.log.Error(what, "error", err)
	}
}

func (l *leader) step(ctx context.Context, r *control.Report) error {
	if r != l.told {
		l.tell.Tell(r.Findings, nil)
		l.told = r
	}
	if ca := l.authority.Bundle(); ca != "" && r.Config != nil && (r != l.planned || ca != l.plannedCA) {
		options := infra.Options{
			Controller: l.feedTarget(), Image: l.proxyImage, ImagePullPolicy: l.imagePullPolicy(), CA: ca,
			LogLevel: l.proxyLog.level, LogFormat: l.proxyLog.format,
		}
		plans := options.Plans(r.Set, dialect.ControllerName, r.Config, r.Statuses)
		for i := range plans {
			if r.Invalid[plans[i].Gateway] != nil { // what its proxies serve is better than nothing
				plans[i].Keep, plans[i].Objects = true, nil
			}
		}
		l.applier.Set(plans)
		l.planned, l.plannedCA = r, ca
	}
	var unknown error
	statuses := l.fleet.Overlay(r.Set, r.Statuses, func(gateway model.GatewayKey) infra.State {
		s, err := l.state(ctx, gateway)
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

// state returns a Gateway's objects in the cluster, and what its proxies run, whichever replica they are connected to.
func (l *leader) state(ctx context.Context, gateway model.GatewayKey) (infra.State, error) {
	found, err := l.applier.Found(ctx, gateway)
	if err != nil {
		return infra.State{}, fmt.Errorf("what was made for Gateway %s: %w", gateway, err)
	}
	s := infra.State{Found: found, Version: l.feeds.Version(gateway)}
	if err := l.feeds.Unsent(gateway); err != nil {
		s.Unsent = err.Error()
	}
	for _, p := range replica.Newest(l.feeds.Running(gateway), l.board.Others(gateway)) {
		proxy := infra.Proxy{Name: p.Name, Version: p.Version, Err: p.Err}
		for _, u := range p.Unserved {
			proxy.Unserved = append(proxy.Unserved, infra.Unserved{Listener: u.Listener, Reason: u.Reason})
		}
		s.Proxies = append(s.Proxies, proxy)
	}
	return s, nil
}
