package controller

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// serveFeed answers proxies.
func (c *controlPlane) serveFeed(ctx context.Context, s *socket) error {
	l, err := s.listen()
	if err != nil {
		return err
	}
	c.log.Info("feeding proxies", "address", l.Addr().String())
	c.feeding.Store(true)
	defer c.feeding.Store(false)
	err = c.feeds.Serve(ctx, l)
	if c.traffic != nil {
		c.traffic.taps.Wait()
	}
	return err
}

// feedReady says whether proxies may rely on this replica. Objects that are stored in other versions than they are read in can only be read when this
// replica's own webhook has endpoints: it does not wait for itself.
func (c *controlPlane) feedReady() (ok bool, why string) {
	if c.feeding.Load() {
		return true, ""
	}
	const unknown = "the cluster is not known yet"
	lost := c.source.Lost()
	if !c.conversion.on() || len(lost) == 0 {
		return false, unknown
	}
	for _, kind := range lost {
		if !c.kinds().Converted(kind.Group, kind.Kind) {
			return false, unknown
		}
	}
	return true, fmt.Sprintf("ready for conversions; %v cannot be read yet", lost)
}

// shareProxies tells other replicas what proxies run that are connected to this one, and reads what they tell.
func (c *controlPlane) shareProxies(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.board.Cache.Start(ctx) })
	group.Go(func() error { return c.board.Run(ctx) })
	return group.Wait()
}
