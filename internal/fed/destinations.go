package fed

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/model"
)

// forgetEvery is how often a sidecar looks for destinations that its pod uses no more.
const forgetEvery = 30 * time.Second

// unknown is proxy.Options.Unknown: it asks the controller what is at an address that the pod connects to. While nobody
// answers, connections of a pod that requires mutual TLS are refused, since they may have to be mutual TLS, too, and others pass
// untouched.
func (o *Sidecar) unknown(d *feed.Destinations) func(context.Context, netip.AddrPort) error {
	return func(ctx context.Context, to netip.AddrPort) error {
		err := d.Find(ctx, to)
		if errors.Is(err, feed.ErrUnanswered) && o.permissive && !o.secured.Load() {
			return nil
		}
		return err
	}
}

// requiresTLS reports whether a pod's configuration refuses plain text at some of its ports: the annotation of the pod or a
// TLSConfig says so.
func requiresTLS(c *model.Config) bool {
	return slices.ContainsFunc(c.Listeners, func(l model.Listener) bool {
		return l.Redirect == model.RedirectInbound && l.TLS != nil && !l.TLS.Plain
	})
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
