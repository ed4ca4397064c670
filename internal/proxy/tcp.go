package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/clock"
	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

const (
	// relayPiece is how many bytes are copied before progress is noted and deadlines are renewed. A peer that takes
	// fewer bytes within the stream timeout counts as stuck.
	relayPiece = 256 << 10
)

// relay is a connection to a TCP listener: the bytes of an exchange.Connection, which decides where they go. Its own
// goroutine runs serve, which starts a second one for the other direction and waits for it.
type relay struct {
	exchange.Connection
	srv    *Server
	bind   *bind
	nc     net.Conn
	up     *upstream.Conn
	shard  uint32
	limit  time.Duration
	moved  atomic.Int64 // when a byte was last moved, either way
	header bool         // a PROXY header must come first
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
	r.Begin(b.srv.pipe, nc, shard)
	r.Peer.Port = b.port
	b.relays.add(r)
	defer b.relays.remove(r)
	if r.greeted() {
		r.serve()
		r.nc.Close()
		r.Finish()
	}
}

// caught turns a panic into the end of both directions; Finish counts it. It must be deferred.
func (r *relay) caught() {
	if p := recover(); p != nil {
		r.abort(&exchange.Failure{Reason: telemetry.Internal})
		r.srv.tellPanic(p)
	}
}

// greeted reads the PROXY header, if one must come. It returns false if it closed the connection because the header was
// missing.
func (r *relay) greeted() bool {
	defer func() {
		if p := recover(); p != nil {
			reset(r.nc)
			r.srv.recovered(p)
		}
	}()
	if !r.header {
		return true
	}
	r.nc.SetReadDeadline(time.Now().Add(r.srv.opt.HeaderTimeout))
	h, err := readProxyHeader(r.nc)
	if err != nil {
		if err != io.EOF && !r.Aborted() {
			r.bind.strange(r.nc, r.shard, err)
		}
		r.nc.Close()
		return false
	}
	r.nc.SetReadDeadline(time.Time{})
	r.Announce(h)
	return true
}

// serve connects to an endpoint and passes bytes both ways.
func (r *relay) serve() {
	defer r.caught()
	snap, port := r.bind.snapshot()
	if r.up = r.Connect(snap.Snapshot, port); r.up == nil {
		reset(r.nc)
		return
	}
	r.pass()
}

// abort resets both connections, from any goroutine.
func (r *relay) abort(why *exchange.Failure) {
	if r.Abort(why) {
		reset(r.nc)
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
	defer func() { <-done }()
	defer r.caught() // ends the other direction, too
	go func() {
		defer close(done)
		defer r.caught()
		r.copy(&r.In, endpoint, r.nc, r.up.CloseWrite, func(read, write time.Time) {
			r.nc.SetReadDeadline(read)
			r.up.WriteBy(write, 0)
		}, relayClient, relayEndpoint)
	}()
	r.copy(&r.Out, r.nc, endpoint, r.closeWrite, func(read, write time.Time) {
		r.up.ReadBy(read, 0)
		r.nc.SetWriteDeadline(write)
	}, relayEndpoint, relayClient)
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
		case upstream.IsTimeout(err) && time.Since(start) >= r.limit+window:
			// It was a write, whose bytes are lost. No write times out sooner. A read times out that late only if this
			// process did not run for the stream timeout.
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
