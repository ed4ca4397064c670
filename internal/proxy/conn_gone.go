package proxy

import (
	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
)

// failGone answers a request of a kept connection to an address that may be served again on another one.
var failGone = &exchange.Failure{Status: 503, Reason: telemetry.NoListener, Detail: "the proxy has lost the address of this connection; connect again", Later: true}

// refind is current for a connection that has no port any more. Of the redirect outbound it first asks Options.Unknown, as is
// done for a new connection; it fails with Options.Unknown.
func (c *conn) refind() (*snapshot, *routing.Port, error) {
	b := c.bind
	if b.asks(b.serving(c.to)) {
		if err := b.srv.opt.Unknown(b.srv.cut, c.to); err != nil {
			return nil, nil, err
		}
	}
	snap, port := c.current()
	return snap, port, nil
}

// renew takes the current configuration for the request that was read last. If that has no port any more for a connection of
// the redirect outbound, the connection is relayed from this request on (opaque), as a new one would be, or the request fails,
// so that the client connects again.
func (c *conn) renew() *exchange.Failure {
	if c.snap, c.port = c.current(); c.port != nil || c.bind.redirect != model.RedirectOutbound {
		return nil
	}
	snap, port, err := c.refind()
	if err != nil {
		return failGone
	}
	if c.snap, c.port = snap, port; port != nil {
		return nil
	}
	if _, other := c.bind.serving(c.to); c.tls != nil || other == nil || !other.Connections() {
		return failGone
	}
	c.w.req.Reset()
	c.w.r = c.begins
	c.opaque = true
	return nil
}

// renewStream is renew for a request over HTTP/2 whose connection has no port any more. The connection ends if that is so: its
// client is to connect again. Without a snapshot the request is not to be answered.
func (c *conn) renewStream() (*snapshot, *routing.Port) {
	snap, port, err := c.refind()
	if err == nil && port != nil {
		return snap, port
	}
	c.goAway()
	if c.bind.redirect != model.RedirectOutbound {
		return snap, nil
	}
	c.srv.opt.Metrics.Unrouted().Fail(c.shard, telemetry.NoListener)
	return nil, nil
}
