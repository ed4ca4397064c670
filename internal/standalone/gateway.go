// Package standalone is a gateway without a cluster: a data plane and the control loop that feeds it from files, in one
// process. "weir run" and the demo run it.
package standalone

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dataplane"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Gateway is a data plane and the control loop that feeds it.
type Gateway struct {
	*dataplane.Plane
	// Source provides the objects to serve.
	Source resource.Source
	// Options of the translation.
	Options control.Options
	// Own, if set, returns the statuses of kinds that have their own, for /status.
	Own func() []resource.Status
	// Empty says why there may be no listener at first, if it is not for lack of Gateways.
	Empty string
	// Traffic answers at the admin endpoint what was measured; nil means one of this data plane alone.
	Traffic *Traffic
	// Reported, if set, is called after each report.
	Reported func(control.Report)
}

// Run serves until asked ends and everything is drained, or until an error occurs.
func (g *Gateway) Run(asked context.Context) error {
	tell := control.NewTeller(g.Log, false)
	g.OnReport = func(r dataplane.Report) {
		c := r.(report)
		tell.Tell(c.Findings, c.Events)
	}
	traffic := g.Traffic
	if traffic == nil {
		traffic = NewTraffic(g.Metrics, nil, g.Log)
	}
	g.Pages = append(g.Pages, traffic.Pages()...)
	reported := func(r control.Report) {
		if r.Err == nil {
			traffic.Known(r.Set)
		}
		g.Note(report{r, g.Own})
		if r.Changed && r.Generation == 1 {
			g.Began(cmp.Or(g.Empty, "the files hold no Gateway that could be served, and no TrafficSplit"))
		}
		if g.Reported != nil {
			g.Reported(r)
		}
	}
	loop := control.Loop{Source: g.Source, Options: g.Options, Publish: g.Publish, LeftOut: g.Server.LeftOut, Report: reported, Logger: g.Log}
	return g.Plane.Run(asked, func(ctx context.Context) error {
		var beside sync.WaitGroup
		defer beside.Wait()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		beside.Go(func() { _ = traffic.Run(ctx) }) // ends with ctx alone
		return loop.Run(ctx)
	})
}

// Relocate returns a function that moves listeners to another address and to other ports. It returns nil if both stay.
// A listener whose port would leave the valid range stays where it is. A *flags.Fault is a wrong address or offset.
func Relocate(address string, offset int) (func(*model.Config) *model.Config, error) {
	if address != "" && net.ParseIP(address) == nil {
		return nil, flags.Errorf("--address %q: want an IP address", address)
	}
	if offset < -65535 || offset > 65535 {
		return nil, flags.Errorf("--port-offset %s: want -65535 to 65535", strconv.Itoa(offset))
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
