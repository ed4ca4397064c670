package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/clock"
	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

const (
	// relayPiece is how many bytes are copied before progress is noted and deadlines are renewed. A peer that takes
	// fewer bytes within the stream timeout counts as stuck.
	relayPiece = 256 << 10
)

// relay is a connection to a TCP listener and the connection to the endpoint that serves it. Its own goroutine runs
// serve, which starts a second one for the other direction and waits for it.
type relay struct {
	srv    *Server
	bind   *bind
	nc     net.Conn
	shard  uint32
	limit  time.Duration
	moved  atomic.Int64 // when a byte was last moved, either way
	record telemetry.Record
	header bool            // a PROXY header must come first
	from   clientaddr.Pair // the client's address and the address it connected to

	service *upstream.Service // the service in which the relay holds a place
	share   *atomic.Int32     // the client's relays, this one among them

	mu     sync.Mutex
	up     *upstream.Conn // set once the endpoint is connected
	killed bool
	cause  *exchange.Failure // why the relay was aborted; the first reason wins
}

// relays are the relays of a bind.
type relays struct {
	mu  sync.Mutex
	all map[*relay]struct{}
}

func (rs *relays) add(r *relay) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.all == nil {
		rs.all = map[*relay]struct{}{}
	}
	rs.all[r] = struct{}{}
}

func (rs *relays) remove(r *relay) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.all, r)
}

// kill aborts all relays.
func (rs *relays) kill() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for r := range rs.all {
		r.abort(&exchange.Failure{Reason: telemetry.Draining})
	}
}

// relay serves a connection to a TCP listener to its end.
func (b *bind) relay(nc net.Conn, shard uint32, header bool) {
	r := &relay{srv: b.srv, bind: b, nc: nc, shard: shard, limit: b.srv.opt.StreamTimeout, header: header}
	r.record = telemetry.Record{Time: time.Now(), Client: nc.RemoteAddr().String(), Protocol: "TCP"}
	b.relays.add(r)
	defer b.relays.remove(r)
	defer func() {
		if p := recover(); p != nil {
			r.abort(&exchange.Failure{Reason: telemetry.Internal})
			b.srv.recovered(p)
		}
	}()
	if r.greeted() {
		r.serve()
	}
}

// greeted reads the PROXY header, if one must come. It returns false if it closed the connection because the header was
// missing.
func (r *relay) greeted() bool {
	if !r.header {
		return true
	}
	r.nc.SetReadDeadline(time.Now().Add(r.srv.opt.HeaderTimeout))
	h, err := readProxyHeader(r.nc)
	if err != nil {
		if err != io.EOF && !r.ended() {
			r.bind.strange(r.nc, r.shard, err)
		}
		r.nc.Close()
		return false
	}
	r.nc.SetReadDeadline(time.Time{})
	if h.Source.IsValid() {
		r.from = h.Pair
		r.record.Client, r.record.Peer = h.Source.String(), r.record.Client
	}
	return true
}

// addresses are the client's address and the address it connected to.
func (r *relay) addresses() clientaddr.Pair {
	if r.from.Source.IsValid() {
		return r.from
	}
	return clientaddr.PairOf(r.nc)
}

// serve picks the backend, connects to it and passes bytes both ways. Then it counts the connection.
func (r *relay) serve() {
	metrics := r.srv.opt.Metrics.Unrouted()
	f := func() *exchange.Failure {
		snap, port := r.bind.snapshot()
		if port.Protocol.Requests() { // the configuration changed since the connection was accepted
			return &exchange.Failure{Reason: telemetry.Draining}
		}
		r.record.Listener = port.Listeners[0].Listener.Name
		rule := port.Rule()
		if rule == nil {
			return exchange.FailNoRoute
		}
		rs := &snap.Rules[rule.ID]
		r.record.Route, r.record.Rule = rs.Route, rs.Name
		metrics = rs.Metrics
		if rs.Fault != nil {
			return &exchange.Failure{Reason: telemetry.FaultReason(rs.Fault.Reason)}
		}
		picked := rule.Pick()
		if picked == nil {
			return exchange.FailNoBackend
		}
		b := &snap.Backends[picked.ID]
		if leaf := picked.ConnectionLeaf(); leaf != nil {
			b = &snap.Leaves[leaf.ID]
		}
		r.record.Backend = b.Name
		metrics = b.Metrics
		if fault := b.ConnectionFault(); fault != nil {
			return &exchange.Failure{Reason: telemetry.FaultReason(fault.Reason)}
		}
		if f := r.connect(snap.Snapshot, b); f != nil {
			return f
		}
		r.pass()
		return nil
	}()
	if f != nil {
		r.abort(f)
	}
	r.finish(metrics)
}

// connect connects to an endpoint of the backend. If one endpoint does not take the connection, it tries another, also one
// that is named by a later configuration than snap.
func (r *relay) connect(snap *exchange.Snapshot, b *exchange.Backend) *exchange.Failure {
	if !r.claim() {
		return failRelayShare
	}
	if !b.Service.BeginRelay() {
		b.Service.Rejected(upstream.LimitRequests)
		return exchange.FailBusy
	}
	r.service = b.Service
	var search exchange.Search
	e := b.Service.Pick(nil)
	if e == nil {
		return exchange.AsFailure(exchange.Nowhere(b.Service))
	}
	for {
		if r.record.Attempts++; r.record.Attempts > 1 {
			b.Metrics.Retry(r.shard)
		}
		r.record.Endpoint = e.Address
		up, err := r.dial(e)
		if err == nil {
			e.Succeeded()
			return r.adopt(up)
		}
		f := exchange.ConnectFailure(err)
		if socket.IsShortage(err) {
			r.srv.shortage.met(err)
			return f
		}
		r.srv.log.Debug("connect failed", "endpoint", e.Address, "error", err)
		if r.ended() {
			return f
		}
		wait := time.Duration(0)
		if f.Refused() {
			wait = e.ConnectTimeout()
		}
		if e = search.Next(r.srv.pipe, snap, b.Service, e, wait); e == nil || r.ended() {
			return f
		}
	}
}

var failRelayShare = &exchange.Failure{Reason: telemetry.ClientOverload, Detail: "the client has its part of the proxy's connections, and few are left"}

// claim counts the relay among its client's. It returns false if few connections are left and the client would have more
// relays than its part. A relay may be silent for as long as it likes, so the part leaves room for one client that has
// none. finish ends the claim.
func (r *relay) claim() bool {
	s := r.srv
	limit, from := int64(s.opt.MaxConnections), r.addresses().Source.Addr()
	if limit <= 0 || !from.IsValid() {
		return true
	}
	r.share = s.relayShares.Slot(from)
	n := int64(r.share.Add(1))
	return s.connections.Load() <= limit/4*3 || n <= max(limit/(s.relayShares.Active()+1), limit/exchange.ShareLeast, 1)
}

func (r *relay) dial(e *upstream.Endpoint) (*upstream.Conn, error) {
	if e.Announces() {
		return e.DialFor(time.Time{}, r.addresses())
	}
	return e.Dial(time.Time{})
}

// adopt takes the endpoint's connection, unless the relay has been aborted already.
func (r *relay) adopt(up *upstream.Conn) *exchange.Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed {
		up.Close()
		return r.cause
	}
	r.up = up
	return nil
}

func (r *relay) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed
}

// abort resets both connections, from any goroutine.
func (r *relay) abort(why *exchange.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed {
		return
	}
	r.killed, r.cause = true, why
	reset(r.nc)
	if r.up != nil {
		if tcp := r.up.TCP(); tcp != nil {
			tcp.SetLinger(0)
		}
		r.up.Abort()
	}
}

// reset closes a connection so that the peer sees an abnormal end.
func reset(nc net.Conn) {
	if tcp, ok := nc.(interface{ SetLinger(int) error }); ok {
		tcp.SetLinger(0)
	}
	nc.Close()
}

// pass moves bytes both ways until both directions have ended or the relay is aborted.
func (r *relay) pass() {
	r.moved.Store(clock.Instant(time.Now()))
	var endpoint io.ReadWriter = r.up
	if tcp := r.up.TCP(); tcp != nil {
		endpoint = tcp // can be spliced
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.copy(&r.record.BytesIn, endpoint, r.nc, r.up.CloseWrite, func(read, write time.Time) {
			r.nc.SetReadDeadline(read)
			r.up.WriteBy(write, 0)
		}, relayClient, relayEndpoint)
	}()
	r.copy(&r.record.BytesOut, r.nc, endpoint, r.closeWrite, func(read, write time.Time) {
		r.up.ReadBy(read, 0)
		r.nc.SetWriteDeadline(write)
	}, relayEndpoint, relayClient)
	<-done
}

func (r *relay) closeWrite() error {
	if h, ok := r.nc.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

// relaySide names the faults of one side.
type relaySide struct{ lost, stuck telemetry.Reason }

var (
	relayClient   = relaySide{telemetry.ClientClosed, telemetry.ClientTimeout}
	relayEndpoint = relaySide{telemetry.BackendReset, telemetry.BackendTimeout}
)

// errIdle aborts a relay that moved no byte for the stream timeout. Neither side is at fault.
var errIdle = &exchange.Failure{Detail: "idle"}

// copy moves bytes one way until src ends or either side fails. The end of src closes the sending side towards dst. A
// failure aborts both connections. copy checks four times in the timeout, because the deadlines of a copy in the kernel
// cannot be moved.
func (r *relay) copy(total *int64, dst io.Writer, src io.Reader, end func() error, deadlines func(read, write time.Time), from, to relaySide) {
	window := r.limit / 4
	for {
		start := time.Now()
		deadlines(start.Add(window), start.Add(r.limit+window))
		piece := &io.LimitedReader{R: src, N: relayPiece}
		n, err := io.Copy(dst, piece)
		if n > 0 {
			*total += n
			r.moved.Store(clock.Instant(time.Now()))
		}
		switch {
		case err == nil && n == relayPiece:
		case err == nil:
			if end() != nil {
				r.abort(&exchange.Failure{Reason: to.lost})
			}
			return
		case upstream.IsTimeout(err) && time.Since(start) >= r.limit:
			// Only a write lasts that long, unless this process did not run meanwhile. The bytes it had read are lost.
			r.abort(&exchange.Failure{Reason: to.stuck})
			return
		case upstream.IsTimeout(err):
			if clock.Since(r.moved.Load()) >= r.limit {
				r.abort(errIdle)
				return
			}
		case errors.Is(err, syscall.EPIPE):
			r.abort(&exchange.Failure{Reason: to.lost})
			return
		default:
			r.abort(&exchange.Failure{Reason: from.lost})
			return
		}
	}
}

// finish closes what is open, counts the connection and logs it.
func (r *relay) finish(metrics *telemetry.Exchange) {
	r.nc.Close()
	r.mu.Lock()
	up, cause := r.up, r.cause
	r.mu.Unlock()
	if up != nil {
		up.Close()
	}
	if r.service != nil {
		r.service.EndRelay()
	}
	if r.share != nil {
		r.share.Add(-1)
	}
	rec := &r.record
	if cause != nil {
		rec.Reason = cause.Reason
		if rec.Reason != "" && r.srv.cut.Err() != nil {
			rec.Reason = telemetry.Draining
		}
	}
	rec.Duration = time.Since(rec.Time)
	metrics.Observe(r.shard, 0, rec.Duration, rec.BytesIn, rec.BytesOut)
	metrics.Fail(r.shard, rec.Reason)
	if r.srv.opt.AccessLog.Wants(0, rec.Reason, rec.Route, rec.Duration) {
		r.srv.opt.AccessLog.Log(rec)
	}
}
