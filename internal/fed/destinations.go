package fed

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/weirmesh/weir/internal/feed"
)

// forgetEvery is how often a sidecar looks for destinations that its pod uses no more.
const forgetEvery = 30 * time.Second

// unknown is proxy.Options.Unknown: it asks the controller what is at an address that the pod connects to. While nobody
// answers, a strict pod's connections are refused, since they may have to be mutual TLS, and others pass untouched.
func (o *Sidecar) unknown(d *feed.Destinations) func(context.Context, netip.AddrPort) error {
	return func(ctx context.Context, to netip.AddrPort) error {
		err := d.Find(ctx, to)
		if o.permissive && errors.Is(err, feed.ErrUnanswered) {
			return nil
		}
		return err
	}
}

// forget gives up what the pod uses no more, until ctx ends.
func forget(ctx context.Context, d *feed.Destinations, used func() map[netip.AddrPort]bool, release func(netip.AddrPort) bool) error {
	t := time.NewTicker(forgetEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			d.Forget(used(), release)
		}
	}
}
