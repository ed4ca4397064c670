package proxy

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/mirror"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/upstream"
)

// Options are a server's limits and the parts that it reports to. The zero value is usable.
type Options struct {
	// Options are the options of exchanges. They include what both packages need: Logger, Metrics, AccessLog, Limits
	// and StreamTimeout.
	exchange.Options
	// Upstream are the limits of the connections to endpoints. If its Logger is nil, it uses the server's.
	Upstream upstream.Options
	Mirror   mirror.Options

	// HandshakeTimeout bounds a TLS handshake with a client; 0 means 10 s.
	HandshakeTimeout time.Duration
	// HeaderTimeout bounds the time from a request's first byte to the end of its head; 0 means 10 s.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a client's connection may stay without a request; 0 means 75 s.
	IdleTimeout time.Duration
	// MinBodyRate is the minimum average speed, in bytes a second, at which a client must send its request's body and
	// read its answer. 0 means 256, less than 0 no minimum. Time counts only while the proxy waits for the client and
	// bytes are due: see pace.
	MinBodyRate int
	// BodyGrace is how far behind MinBodyRate a client may fall, and so how long it may stall; 0 means 30 s.
	BodyGrace time.Duration
	// DrainTimeout bounds how long exchanges in flight may still take when the server ends or a port is removed; 0
	// means 30 s.
	DrainTimeout time.Duration
	// DrainGrace is how long idle connections are kept while draining; 0 means 1 s, less than 0 none. A request that is
	// already on its way is then still answered (with Connection: close). DrainGrace counts towards DrainTimeout.
	DrainGrace time.Duration

	// MaxConnections bounds the clients' connections. New connections beyond it are closed; in cleartext they get a 503
	// first. 0 means no bound.
	MaxConnections int
	// MaxHandshakes bounds the TLS handshakes that queue for a processor. New handshakes beyond it are closed at once.
	// 0 means 1024.
	MaxHandshakes int
	// MaxStreams bounds the concurrent streams of an HTTP/2 connection; 0 means 250.
	MaxStreams uint32
	// MaxBuffered bounds the memory, in bytes, for data that cannot be passed on yet; 0 means no bound. Such data are
	// incomplete heads, bodies over HTTP/2, bodies for retries, copies, and answers' heads; see docs/limits.md.
	MaxBuffered int64

	// Identities returns the identity of a name (model.IsIdentity) as it is now: what listeners present under the name,
	// and whom they believe. It is asked at each handshake, so that what was renewed counts at once; it returns nil if
	// there is none yet, and must not block. If Upstream.Identities is nil, the connections to endpoints ask it, too. nil
	// knows none.
	Identities func(name string) *spiffe.Identity

	// Listen opens the socket of a port: for connections with the network "tcp", for datagrams with "udp" (see
	// model.Protocol.Network). nil means socket.Open.
	Listen socket.Opener
	// Original returns the address that the client of a redirected connection meant; the connection is reset if it fails.
	// nil means Original.
	Original func(net.Conn) (netip.AddrPort, error)
	// Unknown, if set, is asked before a connection of the redirect outbound is served by a listener that is not for the very
	// address and port that the client meant, or by one that was given up (Server.Release). It returns when the configuration
	// has one, or has to have none; if it fails, the connection is reset. So it is for a request of a kept connection whose
	// listener is gone, which is answered 503 then. It is called in the connection's own goroutine, or a request's. It has to
	// return soon after ctx, which ends with the server.
	Unknown func(ctx context.Context, to netip.AddrPort) error
	// Pod are the addresses of the pod whose sidecar the server is, if it is one. Connections to endpoints there for which an
	// identity vouches come to the listeners of the redirect inbound, as those of other pods do.
	Pod []netip.Addr
	// PortsChanged is called when Server.Unbound has changed since the last Apply: a port was finally bound, or fails
	// for another reason. It may be nil.
	PortsChanged func()

	// DropsChanged is called when Server.MirrorDrops has changed since the last Apply. It may be nil.
	DropsChanged func()

	// quiet replaces quietTime in tests whose clients are not to be taken for silent on a busy machine.
	quiet time.Duration
}

func (o *Options) setDefaults() {
	o.Options.SetDefaults()
	if o.Upstream.Logger == nil {
		o.Upstream.Logger = o.Logger
	}
	if o.Upstream.Identities == nil {
		o.Upstream.Identities = o.Identities
	}
	if o.Listen == nil {
		o.Listen = socket.Open
	}
	if o.Original == nil {
		o.Original = Original
	}
	if o.PortsChanged == nil {
		o.PortsChanged = func() {}
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&o.HandshakeTimeout, 10 * time.Second},
		{&o.HeaderTimeout, 10 * time.Second},
		{&o.IdleTimeout, 75 * time.Second},
		{&o.BodyGrace, 30 * time.Second},
		{&o.DrainTimeout, 30 * time.Second},
		{&o.DrainGrace, time.Second},
		{&o.quiet, quietTime},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if o.Upstream.ReadBuffer == 0 {
		o.Upstream.ReadBuffer = 16 << 10 // most answers fit, head and body, and go out in one write
	}
	if o.MinBodyRate == 0 {
		o.MinBodyRate = 256
	}
	if o.MaxHandshakes == 0 {
		o.MaxHandshakes = 1024
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = 250
	}
}
