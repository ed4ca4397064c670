package controller

import (
	"context"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/task"
)

// tasks are all that a replica does, in the order in which /status has them. What comes new is a package that does it and an entry here: with a Lease if
// one replica alone may do it, with Ready if others rely on every replica for it. asked ends when the process is to end.
func (c *controlPlane) tasks(asked context.Context, s *sockets) []task.Task {
	loop := control.Loop{
		Source: c.source, Options: c.translation(), Publish: c.publish, Report: c.report, Logger: c.log,
		Settle: c.settle, MaxSettle: c.settleAtMost,
	}
	type needs = []func() <-chan struct{}
	published := func() <-chan struct{} { return c.synced }
	webhook := c.conversion.on()
	traffic := c.traffic
	return []task.Task{
		{Name: "admin", Vital: true, Off: s.admin == nil, Run: s.admin.Run},
		{Name: "configuration", Vital: true, Run: loop.Run},
		{Name: "authority", Run: c.authority.Run},
		{Name: "authority of identities", Off: c.identities == nil, Run: func(ctx context.Context) error { return c.identities.authority.Run(ctx) }},
		{Name: "replicas", Vital: true, Run: c.shareProxies},
		{Name: "lease", Vital: true, Run: func(ctx context.Context) error { return c.stand(ctx, asked) }},

		// The webhook is asked first whether it is ready: what the feed waits for may wait for it.
		{Name: "conversion webhook", Off: !webhook, After: needs{c.authority.Ready}, Ready: c.conversionsReady,
			Run: func(ctx context.Context) error { return c.serveConversions(ctx, asked, s.conversions) }},
		{Name: "admission objects", Off: c.known == nil, Run: func(ctx context.Context) error { return c.known.Run(ctx) }},
		{Name: "feed", After: needs{published, c.authority.Ready}, Ready: c.feedReady,
			Run: func(ctx context.Context) error { return c.serveFeed(ctx, s.feed) }},
		{Name: "sidecars", Off: c.sidecars == nil, Run: func(ctx context.Context) error { return c.sidecars.run(ctx) }},

		{Name: "traffic objects", Off: traffic == nil, Run: func(ctx context.Context) error { return traffic.know(ctx) }},
		{Name: "traffic API", Off: traffic == nil, Ready: func() (bool, string) { return traffic.ready() }, Run: func(ctx context.Context) error { return traffic.api.Run(ctx) }},
		{Name: "traffic", Off: traffic == nil || traffic.embedded == nil, Run: func(ctx context.Context) error { return traffic.read(ctx) }},

		{Name: "infrastructure", Lease: true, Run: c.leader.infrastructure},
		{Name: "reconciliation", Lease: true, Run: c.leader.reconcile},
		{Name: "statuses", Lease: true, After: needs{c.leader.known.Opened}, Run: c.statusWriter.Run},
		{Name: "events", Lease: true, After: needs{c.leader.known.Opened}, Run: c.recorder.Run},
		{Name: "gateway classes", Lease: true, After: needs{c.leader.known.Opened}, Run: c.classes.Run},
		{Name: "rollouts", Lease: true, Off: c.releases == nil, After: needs{published}, Run: c.carryOut},
		{Name: "trust of sidecars", Lease: true, Off: c.pods == nil, After: needs{published, c.authority.Ready}, Run: c.keepTrust},
		{Name: "webhooks of TLSConfigs", Lease: true, Off: !c.injects(), After: needs{published, c.authority.Ready}, Run: c.keepSelected},
		{Name: "conversion bundles", Lease: true, Off: !webhook, Run: c.keepBundles},
	}
}

// stand stands for election until asked ends, and leads for as long as this replica is elected; without elections always.
func (c *controlPlane) stand(ctx, asked context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(asked, cancel)()
	if c.elect {
		if err := c.lease.Run(ctx, c.group.Lead); asked.Err() == nil {
			return err
		}
		return nil
	}
	c.group.Lead(ctx)
	return nil
}
