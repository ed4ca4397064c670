package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
)

// gateway is a data plane, the control loop that feeds it and, unless switched off, the admin endpoint.
type gateway struct {
	source resource.Source
	server *proxy.Server
	// metrics and log are the ones the server was made with.
	metrics *telemetry.Registry
	log     *slog.Logger
	// adminAddress is "off" for none.
	adminAddress string
	// adjust, if set, returns the configuration to serve in place of one that was translated.
	adjust func(*model.Config) *model.Config
	// options of the translation.
	options control.Options
	// drainDelay is how long a signal to end is only told of, at /readyz, before the drain begins.
	drainDelay time.Duration
	// handover may be nil: none.
	handover *handover
	// reported, if set, is called after each report.
	reported func(control.Report)

	latest atomic.Pointer[control.Report]
	admin  *admin
	serves chan struct{}             // closed when the first configuration is served
	told   map[resource.Finding]bool // findings in the log
	events map[resource.Event]bool   // told already
}

// run serves until asked ends and everything is drained, or until something fails.
func (g *gateway) run(asked context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked))
	defer cancel()
	g.serves = make(chan struct{})

	adminDone := make(chan error, 1)
	adminCtx, stopAdmin := context.WithCancel(context.Background()) // outlives the drain
	defer stopAdmin()
	if g.adminAddress != "off" {
		draining := func() bool { return asked.Err() != nil || ctx.Err() != nil }
		a, err := listenAdmin(g.handover.listen, g.adminAddress, g.metrics.Handler(), g.latest.Load, g.server.Services, draining)
		if err != nil {
			return err
		}
		g.admin = a
		go func() { adminDone <- a.run(adminCtx); cancel() }()
	} else {
		adminDone <- nil
	}

	loop := control.Loop{Source: g.source, Options: g.options, Publish: g.publish, Report: g.report, Logger: g.log}
	var wg sync.WaitGroup
	var loopErr, serverErr error
	wg.Go(func() { loopErr = loop.Run(ctx); cancel() })
	wg.Go(func() { serverErr = g.server.Run(ctx); cancel() })
	wg.Go(func() { g.awaitEnd(ctx, asked); cancel() })
	if g.handover != nil {
		wg.Go(func() { g.passOn(ctx, stopAdmin); cancel() })
	}
	wg.Wait()
	stopAdmin()
	return errors.Join(loopErr, serverErr, <-adminDone)
}

// awaitEnd returns when the drain is to begin: drainDelay after asked ends, in which everything is served as before, so that whoever sends
// connections here can learn from /readyz that it shall not.
func (g *gateway) awaitEnd(ctx, asked context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-asked.Done():
	}
	if g.drainDelay <= 0 {
		return
	}
	g.log.Info("not ready any more, draining soon", "delay", g.drainDelay)
	t := time.NewTimer(g.drainDelay)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// passOn offers the listening sockets to a process that comes to replace this one, once there is something to serve. It returns when one has begun
// to serve from them, and the drain is to begin, or ctx ends.
func (g *gateway) passOn(ctx context.Context, stopAdmin func()) {
	select {
	case <-ctx.Done():
		return
	case <-g.serves:
	}
	err := g.handover.offer(ctx, func(pass func(string, net.Listener) error) error {
		if g.admin != nil {
			if err := pass(g.adminAddress, g.admin.listener); err != nil {
				return err
			}
		}
		return g.server.Sockets(pass)
	})
	if err != nil {
		if ctx.Err() == nil {
			g.log.Error("no process can take over from this one", "reason", err)
		}
		<-ctx.Done()
		return
	}
	taken := g.handover.given
	g.log.Info("another process has taken over", "sockets", len(taken))
	g.server.Taken(taken)
	if slices.Contains(taken, g.adminAddress) {
		stopAdmin()
	}
}

func (g *gateway) publish(cfg *model.Config) error {
	if g.adjust != nil {
		cfg = g.adjust(cfg)
	}
	err := g.server.Apply(cfg)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; ports below 1024 need a privilege: try --port-offset 8000", err)
	}
	return err
}

func (g *gateway) report(r control.Report) {
	g.latest.Store(&r)
	switch {
	case r.Err != nil:
		g.metrics.ReloadFailed()
	case r.Changed:
		g.metrics.ReloadSucceeded(r.Generation)
	}
	g.logFindings(r.Findings)
	g.logEvents(r.Events)
	if r.Changed && r.Generation == 1 {
		if err := g.handover.serving(); err != nil {
			g.log.Error("no process can take over from this one", "reason", err)
		}
		g.logServing()
		close(g.serves)
	}
	if g.reported != nil {
		g.reported(r)
	}
}

// logEvents logs those that are new, as a cluster would show them on the object. A finding says the same with its place.
func (g *gateway) logEvents(events []resource.Event) {
	known := make(map[resource.Event]bool, len(events))
	for _, e := range events {
		if !g.events[e] && !known[e] {
			g.log.Info("event", "type", e.Type, "object", objectName(e.Ref), "reason", e.Reason, "message", e.Message)
		}
		known[e] = true
	}
	g.events = known
}

// logFindings logs those that are new.
func (g *gateway) logFindings(findings []resource.Finding) {
	told := make(map[resource.Finding]bool, len(findings))
	for _, f := range findings {
		told[f] = true
		if g.told[f] {
			continue
		}
		level := slog.LevelError
		switch f.Severity {
		case resource.Warning:
			level = slog.LevelWarn
		case resource.Info:
			level = slog.LevelInfo
		}
		attributes := []slog.Attr{slog.String("code", f.Code)}
		for _, a := range []slog.Attr{
			slog.String("origin", f.Origin.String()), slog.String("object", objectName(f.Ref)), slog.String("field", f.Ref.Field),
			slog.String("reason", f.Message), slog.String("fix", f.Fix),
		} {
			if a.Value.String() != "" {
				attributes = append(attributes, a)
			}
		}
		g.log.LogAttrs(context.Background(), level, "finding", attributes...)
	}
	g.told = told
}

// logServing says that traffic is taken.
func (g *gateway) logServing() {
	if len(g.server.Addrs()) == 0 {
		g.log.Warn("no listeners yet: the files hold no Gateway that could be served, and no TrafficSplit")
	}
	if g.admin != nil {
		g.log.Info("serving", "admin", g.admin.url())
	} else {
		g.log.Info("serving")
	}
}

// openSource watches the paths; the standard input, if among them, is read once. A receive from again makes it look at
// once.
func openSource(paths []string, stdin io.Reader, again <-chan struct{}, log *slog.Logger) (resource.Source, error) {
	for _, p := range paths {
		if p == "-" {
			continue
		}
		if _, err := os.Stat(p); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	}
	dir := resource.NewDir(paths, log)
	dir.Stdin, dir.Again = stdin, again
	return dir, nil
}

// relocate returns a function that moves listeners to another address and to other ports; nil when there is nothing
// to move. Listeners that would leave the range of ports stay where they are.
func relocate(address string, offset int) (func(*model.Config) *model.Config, error) {
	if address != "" && net.ParseIP(address) == nil {
		return nil, usageError("--address %q: want an IP address", address)
	}
	if offset < -65535 || offset > 65535 {
		return nil, usageError("--port-offset %s: want -65535 to 65535", strconv.Itoa(offset))
	}
	if address == "" && offset == 0 {
		return nil, nil
	}
	return func(cfg *model.Config) *model.Config {
		moved := *cfg
		moved.Listeners = slices.Clone(cfg.Listeners)
		for i := range moved.Listeners {
			l := &moved.Listeners[i]
			if address != "" {
				l.Address = address
			}
			if port := int(l.Port) + offset; port >= 1 && port <= 65535 {
				l.Port = int32(port)
			}
		}
		return &moved
	}, nil
}
