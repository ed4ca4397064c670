package exchange

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// Connection is one relayed connection, whose bytes nobody reads: route, access, pick, connect, record. Its owner
// accepts the client's socket, moves the bytes, closes the socket, and calls in this order:
//
//	Begin      when the socket is accepted
//	Announce   if a PROXY header came
//	Connect    once; without an endpoint the connection is over
//	Finish     once, after the last byte
//
// If the client has said nothing yet, the owner calls Await before Connect, and Keep once the connection turns out to be none
// of requests. If it turns out to be one, the owner calls Withdraw, and Discard instead of Finish: nobody is told of the
// connection.
//
// Abort may come from any goroutine at any time until Finish has returned, Rejudge also later.
type Connection struct {
	// Peer is who is at the other end. The owner sets Port, Meant, and TLS if there was a handshake.
	Peer Peer
	// In and Out are the bytes that came from the client, and those that went to it. The owner counts them.
	In, Out int64

	pipe      *Pipeline
	shard     uint32
	announced Announced
	record    telemetry.Record
	metrics   *telemetry.Exchange // what counts the connection
	service   *upstream.Service   // the service in which the connection holds a place
	share     *atomic.Int32       // the client's relayed connections, this one among them

	mu      sync.Mutex
	up      *upstream.Conn // set once the endpoint is connected
	aborted bool
	cause   *Failure // why the connection was aborted; the first reason wins
	judged  judged
	passed  bool // the access stage, and it is not over
	awaits  bool // the client has said nothing: what judged says is not counted yet
}

var failRelayShare = &Failure{Reason: telemetry.ClientOverload, Detail: "the client has its part of the proxy's connections, and few are left"}

// Begin sets who connected. shard is that of counters.
func (c *Connection) Begin(p *Pipeline, s Socket, shard uint32) {
	c.pipe, c.shard, c.metrics = p, shard, p.Metrics.Unrouted()
	c.record = telemetry.Record{Time: time.Now(), Client: s.RemoteAddr().String(), Protocol: "TCP"}
	c.Peer.meet(s, c.record.Client)
}

// Announce replaces the peer with the one that a PROXY header names, if it names one.
func (c *Connection) Announce(h clientaddr.Header) {
	if !h.Source.IsValid() {
		return
	}
	c.record.Client, c.record.Peer = h.Source.String(), c.record.Client
	c.announced = Announced{h, hostOf(c.record.Client), strconv.Itoa(int(h.Destination.Port()))}
	c.Peer.Become(&c.announced)
}

// Connect finds the backend and connects to one of its endpoints. It returns nil if there is none for the client, or if
// the connection was aborted meanwhile; the connection is aborted then. snap and port are the configuration that serves
// the client.
func (c *Connection) Connect(snap *Snapshot, port *routing.Port) *upstream.Conn {
	b, f := c.route(snap, port)
	if f == nil {
		f = c.connect(snap, b)
	}
	if f != nil {
		c.Abort(f)
		return nil
	}
	return c.up
}

// Await notes that the client has said nothing yet (see Snapshot.MayAwait).
func (c *Connection) Await() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaits = true
}

// Keep ends what Await began: the connection is one.
func (c *Connection) Keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awaits {
		c.awaits = false
		c.judged.count(c.shard)
	}
}

// Withdraw ends the endpoint's connection without an error, from any goroutine.
func (c *Connection) Withdraw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborted = true
	if c.up != nil {
		c.up.Abort()
	}
}

// Cause is why the connection was aborted; nil if it was not.
func (c *Connection) Cause() *Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// route finds the backend that the client gets.
func (c *Connection) route(snap *Snapshot, port *routing.Port) (*Backend, *Failure) {
	switch {
	case port == nil:
		return nil, failNoListener
	case !c.belongs(snap, port): // the configuration changed since the connection was accepted
		return nil, &Failure{Reason: telemetry.Draining}
	}
	listener := port.Listeners[0]
	c.record.Listener = listener.Listener.Name
	rule := port.Rule()
	if rule == nil {
		return nil, FailNoRoute
	}
	rs := &snap.Rules[rule.ID]
	c.record.Route, c.record.Rule = rs.Route, rs.Name
	c.metrics = rs.Metrics
	judged, _, f := snap.judge(&c.Peer, asked{at: time.Now(), listener: listener}, nil)
	if c.admit(judged, f == nil); f != nil {
		return nil, f
	}
	if rs.Fault != nil {
		return nil, &Failure{Reason: telemetry.FaultReason(rs.Fault.Reason)}
	}
	picked := rule.Pick()
	if picked == nil {
		return nil, FailNoBackend
	}
	b := &snap.Backends[picked.ID]
	if leaf := picked.ConnectionLeaf(); leaf != nil {
		b = &snap.Leaves[leaf.ID]
	}
	c.record.Backend = b.Name
	c.metrics = b.Metrics
	if fault := b.ConnectionFault(); fault != nil {
		return nil, &Failure{Reason: telemetry.FaultReason(fault.Reason)}
	}
	return b, nil
}

// belongs reports whether a connection that was accepted on the port belongs to its listener as it is now. A client that
// was accepted in cleartext, or under other demands on its certificate, must not reach a listener that has some.
func (c *Connection) belongs(snap *Snapshot, port *routing.Port) bool {
	return c.fits(port) && (c.Peer.TLS == nil || snap.Listeners[port.Listeners[0].ID].Auth == c.Peer.TLS.Auth)
}

// fits reports whether the port serves connections as the client brings them: with TLS, or without.
func (c *Connection) fits(port *routing.Port) bool {
	return port.Connections() && (c.Peer.TLS == nil && port.Plain || c.Peer.TLS != nil && port.Protocol.TLS())
}

// admit notes what the access stage found, and counts it unless the client is still silent.
func (c *Connection) admit(j judged, passed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.judged, c.passed = j, passed; !c.awaits {
		j.count(c.shard)
	}
}

// Rejudge judges the connection again, by a later configuration. It ends a connection that this does not allow as Abort
// does, and returns true if the owner must reset the client's socket. Connections that have not passed the access stage
// are left alone: the owner judges them by calling Rejudge after Connect if the configuration has changed meanwhile.
func (c *Connection) Rejudge(snap *Snapshot, port *routing.Port) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.passed || c.aborted {
		return false
	}
	var l *routing.Listener
	if port != nil && c.fits(port) {
		l = port.Listeners[0]
	}
	if c.awaits && l != nil && snap.MayAwait(&c.Peer, port) {
		c.judged, _, _ = snap.judge(&c.Peer, asked{at: time.Now(), listener: l}, nil)
		return false
	}
	if !c.awaits && snap.again(&c.judged, &c.Peer, c.shard, asked{at: time.Now(), listener: l}) {
		return false
	}
	c.abort(failDenied)
	return true
}

// connect connects to an endpoint of the backend. If one endpoint does not take the connection, it tries another, also one
// that is named by a later configuration than snap.
func (c *Connection) connect(snap *Snapshot, b *Backend) *Failure {
	if !c.claim() {
		return failRelayShare
	}
	if !b.Service.BeginRelay() {
		b.Service.Rejected(upstream.LimitRequests)
		return FailBusy
	}
	c.service = b.Service
	if b.Service.Meant() {
		return c.connectMeant(b)
	}
	search := Search{Wanted: c}
	e := b.Service.PickFor(c.Peer.Address, nil)
	if e == nil && len(b.Service.Endpoints()) == 0 {
		e = search.Next(c.pipe, snap, b.Service, nil, b.Service.ConnectTimeout())
	}
	if e == nil {
		return AsFailure(Nowhere(b.Service))
	}
	for {
		if c.record.Attempts++; c.record.Attempts > 1 {
			b.Metrics.Retry(c.shard)
		}
		c.record.Endpoint = e.Address
		up, err := c.dial(e)
		if err == nil {
			e.Succeeded()
			return c.adopt(up)
		}
		f := ConnectFailure(err)
		if socket.IsShortage(err) {
			c.pipe.around.Shortage(err)
			return f
		}
		c.pipe.Logger.Debug("connect failed", "endpoint", e.Address, "error", err)
		if f.final || c.Aborted() {
			return f
		}
		wait := time.Duration(0)
		if c.Peer.Meshed() { // a proxy in front waits itself
		} else if f.Refused() || f.unreached && e.Meshed() {
			wait = e.ConnectTimeout()
		}
		if e = search.Next(c.pipe, snap, b.Service, e, wait); e == nil || c.Aborted() {
			if f == failFull {
				b.Service.Rejected(upstream.LimitEndpoints)
			}
			return f
		}
	}
}

// connectMeant connects to the address that the client meant, of which there is no other.
func (c *Connection) connectMeant(b *Backend) *Failure {
	if !c.Peer.Meant.IsValid() {
		return AsFailure(Nowhere(b.Service))
	}
	e := b.Service.At(c.Peer.Meant.String())
	c.record.Attempts, c.record.Endpoint = 1, e.Address
	up, err := c.dial(e)
	if err == nil {
		return c.adopt(up)
	}
	if socket.IsShortage(err) {
		c.pipe.around.Shortage(err)
	}
	c.pipe.Logger.Debug("connect failed", "endpoint", e.Address, "error", err)
	return ConnectFailure(err)
}

// claim counts the connection among its client's. It returns false if few connections are left and the client would have
// more relayed ones than its part. A relayed connection may be silent for as long as it likes, so the part leaves room for
// one client that has none. Finish ends the claim.
func (c *Connection) claim() bool {
	p, from := c.pipe, c.Peer.Address
	limit := p.around.MaxConnections
	if limit <= 0 || !from.IsValid() {
		return true
	}
	c.share = p.relaying.Slot(from)
	n := int64(c.share.Add(1))
	return p.around.Connections() <= limit/4*3 || n <= max(limit/(p.relaying.Active(limit)+1), limit/ShareLeast, 1)
}

func (c *Connection) dial(e *upstream.Endpoint) (*upstream.Conn, error) {
	if e.Announces() {
		return e.DialRelay(c.Peer.Addresses())
	}
	return e.DialRelay(clientaddr.Pair{})
}

// adopt takes the endpoint's connection, unless the client's has been aborted already.
func (c *Connection) adopt(up *upstream.Conn) *Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.aborted {
		up.Close()
		return c.cause
	}
	c.up = up
	return nil
}

// Abort ends the connection and resets the endpoint's. It reports whether it was the first to do so: who was first must
// reset the client's socket. why may have no reason, if nobody is at fault.
func (c *Connection) Abort(why *Failure) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.aborted {
		return false
	}
	c.abort(why)
	return true
}

// abort is Abort for the first one to do so, who holds mu.
func (c *Connection) abort(why *Failure) {
	c.aborted, c.cause = true, why
	if c.up != nil {
		c.up.Reset()
	}
}

// Aborted reports whether Abort was called.
func (c *Connection) Aborted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.aborted
}

// Wanted is for Search.
func (c *Connection) Wanted() bool { return !c.Aborted() }

// Discard closes the endpoint's connection and returns the client's places.
func (c *Connection) Discard() {
	c.mu.Lock()
	up := c.up
	c.passed = false
	c.mu.Unlock()
	if up != nil {
		up.Close()
	}
	if c.service != nil {
		c.service.EndRelay()
	}
	if c.share != nil {
		c.share.Add(-1)
	}
}

// Finish is Discard, counts the connection and logs it.
func (c *Connection) Finish() {
	c.Discard()
	c.mu.Lock()
	cause, judged := c.cause, c.judged
	c.mu.Unlock()
	rec := &c.record
	judged.note(rec)
	if cause != nil {
		rec.Reason = cause.Reason
		if rec.Reason != "" && c.pipe.isCut() {
			rec.Reason = telemetry.Draining
		}
	}
	rec.BytesIn, rec.BytesOut, rec.Duration = c.In, c.Out, time.Since(rec.Time)
	c.metrics.Observe(c.shard, 0, rec.Duration, rec.BytesIn, rec.BytesOut)
	c.metrics.Fail(c.shard, rec.Reason)
	if c.pipe.AccessLog.Wants(0, rec.Reason, rec.Route, rec.Duration) {
		c.pipe.AccessLog.Log(rec)
	}
}
