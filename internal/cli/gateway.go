package cli

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dataplane"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// gateway is a data plane and the control loop that feeds it.
type gateway struct {
	*dataplane.Plane
	source resource.Source
	// options of the translation.
	options control.Options
	// reported, if set, is called after each report.
	reported func(control.Report)
}

// run serves until asked ends and everything is drained, or until something fails.
func (g *gateway) run(asked context.Context) error {
	tell := control.NewTeller(g.Log, false)
	g.Told = func(r dataplane.Report) {
		c := r.(controlReport)
		tell.Tell(c.Findings, c.Events)
	}
	reported := func(r control.Report) {
		g.Note(controlReport{r})
		if r.Changed && r.Generation == 1 {
			g.Began("the files hold no Gateway that could be served, and no TrafficSplit")
		}
		if g.reported != nil {
			g.reported(r)
		}
	}
	loop := control.Loop{Source: g.source, Options: g.options, Publish: g.Publish, LeftOut: g.Server.LeftOut, Report: reported, Logger: g.Log}
	return g.Plane.Run(asked, loop.Run)
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

// relocate returns a function that moves listeners to another address and to other ports; nil if there is nothing to
// move. Listeners that would leave the range of ports stay where they are.
func relocate(address string, offset int) (func(*model.Config) *model.Config, error) {
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
