package dataplane

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

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/reach"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Plane is a server with its admin endpoint, unless switched off, and how both begin and end. Its user supplies the
// configurations.
type Plane struct {
	Server *proxy.Server
	// Metrics and Log are the ones the server was made with.
	Metrics *telemetry.Registry
	Log     *slog.Logger
	// AdminAddress is "off" for none.
	AdminAddress string
	// access is to all of the admin endpoint but metrics and health.
	access process.Access
	// Pages are added to those of the admin endpoint.
	Pages []process.Page
	// Guard judges where the server connects to.
	Guard *reach.Guard
	// Waits, if set, returns what the process still lacks besides a configuration; /readyz answers 503 with it, and 200 once
	// it is empty.
	Waits func() string
	// Adjust, if set, returns the configuration to serve instead of one that is published.
	Adjust func(*model.Config) *model.Config
	// drainDelay is how long /readyz announces the end before the drain begins.
	drainDelay time.Duration
	// mirror is the bounds of the server's mirrors; nil: dropped copies are not reported.
	mirror *mirrorFlags
	// handover may be nil: none.
	handover *process.Handover

	// OnReport, if set, is called with each report that differs from the previous one, one after the other.
	OnReport func(Report)

	mu     sync.Mutex             // for told and the next; taken before any of the server's
	noted  Report                 // nil before the first
	latest atomic.Pointer[Report] // the noted one, with the server's state of ports
	Admin  *process.Admin
	serves chan struct{} // closed when the first configuration is served
}

// Run serves until asked ends and everything is drained, or until something fails. configure publishes and reports configurations until its context
// ends.
func (d *Plane) Run(asked context.Context, configure func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked))
	defer cancel()
	d.serves = make(chan struct{})

	adminDone := make(chan error, 1)
	adminCtx, stopAdmin := context.WithCancel(context.Background()) // outlives the drain
	defer stopAdmin()
	if d.AdminAddress != "off" {
		p := planeAdmin{
			metrics: d.Metrics.Handler(), report: d.latest.Load, unserved: func() int { return len(d.Server.Unbound()) }, services: d.Server.Services, access: d.access, more: d.Pages,
			draining: func() bool { return asked.Err() != nil || ctx.Err() != nil }, waits: d.Waits,
		}
		a, err := process.ListenAdmin(d.listenAdmin, d.AdminAddress, p.handler())
		if err != nil {
			return err
		}
		d.Admin = a
		d.Guard.Protect(a.Socket())
		go func() { adminDone <- a.Run(adminCtx); cancel() }()
	} else {
		adminDone <- nil
	}

	var wg sync.WaitGroup
	var configureErr, serverErr error
	wg.Go(func() { configureErr = configure(ctx); cancel() })
	wg.Go(func() { serverErr = d.Server.Run(ctx); cancel() })
	wg.Go(func() { d.awaitEnd(ctx, asked); cancel() })
	if d.handover != nil {
		wg.Go(func() { d.passOn(ctx, stopAdmin); cancel() })
	}
	wg.Wait()
	stopAdmin()
	return errors.Join(configureErr, serverErr, <-adminDone)
}

// awaitEnd returns when the drain must begin: drainDelay after asked ends. Until then everything is served as before,
// and senders of connections can learn from /readyz that the process ends.
func (d *Plane) awaitEnd(ctx, asked context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-asked.Done():
	}
	if d.drainDelay <= 0 {
		return
	}
	d.Log.Info("not ready, draining soon", "delay", d.drainDelay)
	t := time.NewTimer(d.drainDelay)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// passOn offers the listening sockets to a process that comes to replace this one, once there is something to serve. It returns when one has begun
// to serve from them, and the drain is to begin, or ctx ends.
func (d *Plane) passOn(ctx context.Context, stopAdmin func()) {
	select {
	case <-ctx.Done():
		return
	case <-d.serves:
	}
	err := d.handover.Offer(ctx, func(pass func(socket.Name, socket.Bound) error) error {
		if d.Admin != nil {
			if err := pass(d.adminSocket(), socket.Bound{Stream: d.Admin.Listener}); err != nil {
				return err
			}
		}
		return d.Server.Sockets(pass)
	})
	if err != nil {
		if ctx.Err() == nil {
			d.Log.Error("no process can take over from this one", "reason", err)
		}
		<-ctx.Done()
		return
	}
	taken := d.handover.Taken()
	d.Log.Info("another process has taken over", "sockets", len(taken))
	d.Server.Taken(taken)
	if slices.Contains(taken, d.adminSocket()) {
		stopAdmin()
	}
}

// listenAdmin opens the admin endpoint's socket.
func (d *Plane) listenAdmin(network, address string) (net.Listener, error) {
	b, err := d.handover.Listen(socket.Open)(network, address)
	return b.Stream, err
}

// adminSocket is the socket that listenAdmin opens.
func (d *Plane) adminSocket() socket.Name {
	return socket.Name{Network: "tcp", Address: d.AdminAddress}
}

// Publish serves the configuration of the Gateway "", which is for all; see control.Loop. Of Gateways in it whose ports cannot be bound it says so.
func (d *Plane) Publish(configs map[model.Owner]*model.Config) map[model.Owner]error {
	if err := d.Apply(configs[""]); err != nil {
		return map[model.Owner]error{"": err}
	}
	return finding.ByOwner(d.Unserved())
}

// Apply serves a configuration, or fails and goes on with the old one.
func (d *Plane) Apply(cfg *model.Config) error {
	if d.Adjust != nil {
		cfg = d.Adjust(cfg)
	}
	err := d.Server.Apply(cfg)
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

// holder describes the process that has the port that could not be bound; empty if that is not the reason, or not
// known.
func holder(e *proxy.ListenError) string {
	if !errors.Is(e, syscall.EADDRINUSE) {
		return ""
	}
	by := process.PortHolder(e.Port)
	if by == "" {
		return ""
	}
	return fmt.Sprintf("port %d is in use by %s", e.Port, by)
}

const privilegeFix = "ports below 1024 need a privilege: try --port-offset 8000"

// Unserved are the listeners whose ports cannot be bound.
func (d *Plane) Unserved() (out []finding.Unserved) {
	for _, e := range d.Server.Unbound() {
		fix := "free the port, or change the listener"
		if errors.Is(e, fs.ErrPermission) {
			fix = privilegeFix
		}
		reason := cause(e.Err)
		if by := holder(e); by != "" {
			reason += ": " + by
		}
		for i, name := range e.Listeners {
			out = append(out, finding.Unserved{Listener: name, Ref: e.Refs[i], Port: e.Port, Reason: reason, Fix: fix})
		}
	}
	return out
}

// cause is the system's error about a socket, without the address, which is named elsewhere.
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

// Changed tells that other ports than before cannot be bound, or that copies are dropped for other bounds than before.
func (d *Plane) Changed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noted != nil {
		d.tell()
	}
}

// tell joins the report with the server's state of ports and of mirrors. d.mu is held.
func (d *Plane) tell() {
	var dropped []finding.Finding
	if d.mirror != nil {
		dropped = d.mirror.dropped(d.Server.MirrorDrops())
	}
	r := d.noted.With(d.Unserved(), dropped)
	d.latest.Store(&r)
	if d.OnReport != nil {
		d.OnReport(r)
	}
}

// Note shows the state after a publish at the admin endpoint and in the metrics.
func (d *Plane) Note(r Report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noted = r
	d.tell()
	switch s := r.Standing(); {
	case s.Err != nil:
		d.Metrics.ReloadFailed()
	case s.Changed:
		d.Metrics.ReloadSucceeded(s.Generation)
	}
}

// Began is called once, when the first configuration is served. none is why it may have no listener.
func (d *Plane) Began(none string) {
	if err := d.handover.Serving(); err != nil {
		d.Log.Error("no process can take over from this one", "reason", err)
	}
	if len(d.Server.Addrs()) == 0 {
		d.Log.Warn("no listeners yet: " + none)
	}
	if d.Admin != nil {
		d.Log.Info("serving", "admin", d.Admin.URL())
	} else {
		d.Log.Info("serving")
	}
	close(d.serves)
}
