package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/reach"
	"github.com/weirmesh/weir/internal/telemetry"
)

// dataPlane is a server, the admin endpoint beside it unless switched off, and how both begin and end. Where its configurations come from is the
// business of whoever runs it.
type dataPlane struct {
	server *proxy.Server
	// metrics and log are the ones the server was made with.
	metrics *telemetry.Registry
	log     *slog.Logger
	// adminAddress is "off" for none.
	adminAddress string
	// access is to all of the admin endpoint but metrics and health.
	access adminAccess
	// guard judges where the server connects to.
	guard *reach.Guard
	// adjust, if set, returns the configuration to serve in place of one that is to be published.
	adjust func(*model.Config) *model.Config
	// drainDelay is how long a signal to end is only told of, at /readyz, before the drain begins.
	drainDelay time.Duration
	// handover may be nil: none.
	handover *handover

	// told, if set, is called with each report, in turn, that says something else than the one before.
	told func(control.Report)

	mu     sync.Mutex     // for told and the next; taken before any of the server's
	report control.Report // as it was noted
	noted  bool
	latest atomic.Pointer[control.Report] // report and what the server says of ports
	admin  *admin
	serves chan struct{} // closed when the first configuration is served
}

// run serves until asked ends and everything is drained, or until something fails. configure publishes and reports configurations until its context
// ends.
func (d *dataPlane) run(asked context.Context, configure func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked))
	defer cancel()
	d.serves = make(chan struct{})

	adminDone := make(chan error, 1)
	adminCtx, stopAdmin := context.WithCancel(context.Background()) // outlives the drain
	defer stopAdmin()
	if d.adminAddress != "off" {
		p := planeAdmin{
			metrics: d.metrics.Handler(), report: d.latest.Load, unserved: func() int { return len(d.server.Unbound()) }, services: d.server.Services, access: d.access,
			draining: func() bool { return asked.Err() != nil || ctx.Err() != nil },
		}
		a, err := listenAdmin(d.handover.listen, d.adminAddress, p.handler())
		if err != nil {
			return err
		}
		d.admin = a
		d.guard.Protect(a.socket())
		go func() { adminDone <- a.run(adminCtx); cancel() }()
	} else {
		adminDone <- nil
	}

	var wg sync.WaitGroup
	var configureErr, serverErr error
	wg.Go(func() { configureErr = configure(ctx); cancel() })
	wg.Go(func() { serverErr = d.server.Run(ctx); cancel() })
	wg.Go(func() { d.awaitEnd(ctx, asked); cancel() })
	if d.handover != nil {
		wg.Go(func() { d.passOn(ctx, stopAdmin); cancel() })
	}
	wg.Wait()
	stopAdmin()
	return errors.Join(configureErr, serverErr, <-adminDone)
}

// awaitEnd returns when the drain is to begin: drainDelay after asked ends, in which everything is served as before, so that whoever sends
// connections here can learn from /readyz that it shall not.
func (d *dataPlane) awaitEnd(ctx, asked context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-asked.Done():
	}
	if d.drainDelay <= 0 {
		return
	}
	d.log.Info("not ready any more, draining soon", "delay", d.drainDelay)
	t := time.NewTimer(d.drainDelay)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// passOn offers the listening sockets to a process that comes to replace this one, once there is something to serve. It returns when one has begun
// to serve from them, and the drain is to begin, or ctx ends.
func (d *dataPlane) passOn(ctx context.Context, stopAdmin func()) {
	select {
	case <-ctx.Done():
		return
	case <-d.serves:
	}
	err := d.handover.offer(ctx, func(pass func(string, net.Listener) error) error {
		if d.admin != nil {
			if err := pass(d.adminAddress, d.admin.listener); err != nil {
				return err
			}
		}
		return d.server.Sockets(pass)
	})
	if err != nil {
		if ctx.Err() == nil {
			d.log.Error("no process can take over from this one", "reason", err)
		}
		<-ctx.Done()
		return
	}
	taken := d.handover.given
	d.log.Info("another process has taken over", "sockets", len(taken))
	d.server.Taken(taken)
	if slices.Contains(taken, d.adminAddress) {
		stopAdmin()
	}
}

// publish serves a configuration, or fails and goes on with the old one.
func (d *dataPlane) publish(cfg *model.Config) error {
	if d.adjust != nil {
		cfg = d.adjust(cfg)
	}
	err := d.server.Apply(cfg)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; %s", err, privilegeFix)
	}
	var taken *proxy.ListenError
	if errors.As(err, &taken) {
		if by := holder(taken); by != "" {
			return fmt.Errorf("%w; %s", err, by)
		}
	}
	return err
}

// holder says who has the port that could not be bound; empty if that is not why, or not known.
func holder(e *proxy.ListenError) string {
	if !errors.Is(e, syscall.EADDRINUSE) {
		return ""
	}
	by := portHolder(e.Port)
	if by == "" {
		return ""
	}
	return fmt.Sprintf("port %d is in use by %s", e.Port, by)
}

const privilegeFix = "ports below 1024 need a privilege: try --port-offset 8000"

// unserved are the listeners whose ports cannot be bound.
func (d *dataPlane) unserved() (out []control.Unserved) {
	for _, e := range d.server.Unbound() {
		fix := "free the port, or change the listener"
		if errors.Is(e, fs.ErrPermission) {
			fix = privilegeFix
		}
		reason := cause(e.Err)
		if by := holder(e); by != "" {
			reason += ": " + by
		}
		for i, name := range e.Listeners {
			out = append(out, control.Unserved{Listener: name, Ref: e.Refs[i], Port: e.Port, Reason: reason, Fix: fix})
		}
	}
	return out
}

// cause is what the system says of a socket, without the address, which is named beside it.
func cause(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	return err.Error()
}

// portsChanged tells that other ports than before cannot be bound.
func (d *dataPlane) portsChanged() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noted {
		d.report.Changed = false
		d.tell()
	}
}

// tell brings the report and the ports together. d.mu is held.
func (d *dataPlane) tell() {
	r := d.report.WithUnserved(d.unserved())
	d.latest.Store(&r)
	if d.told != nil {
		d.told(r)
	}
}

// note says at the admin endpoint and in the metrics how things stand after a publish.
func (d *dataPlane) note(r control.Report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report, d.noted = r, true
	d.tell()
	switch {
	case r.Err != nil:
		d.metrics.ReloadFailed()
	case r.Changed:
		d.metrics.ReloadSucceeded(r.Generation)
	}
}

// began is called once, when the first configuration is served. none is why there may be no listener in it.
func (d *dataPlane) began(none string) {
	if err := d.handover.serving(); err != nil {
		d.log.Error("no process can take over from this one", "reason", err)
	}
	if len(d.server.Addrs()) == 0 {
		d.log.Warn("no listeners yet: " + none)
	}
	if d.admin != nil {
		d.log.Info("serving", "admin", d.admin.url())
	} else {
		d.log.Info("serving")
	}
	close(d.serves)
}
