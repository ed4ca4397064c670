package proxy

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/clock"
	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

const (
	// relayPiece is how many bytes are copied before progress is noted and deadlines are renewed. A peer that takes
	// fewer bytes within the stream timeout counts as stuck.
	relayPiece = 256 << 10
	// relayBuffer is the size of a buffer for bytes that pass through the process: that of a TLS record (RFC 8446 §5.1).
	// Each direction has one for as long as it lasts.
	relayBuffer = 16 << 10
)

var relayBuffers = sync.Pool{New: func() any { return new([relayBuffer]byte) }}

// relay is a connection to a TCP or TLS listener: the bytes of an exchange.Connection, which decides where they go. Its
// own goroutine runs serve, which starts a second one for the other direction and waits for it.
type relay struct {
	exchange.Connection
	srv    *Server
	bind   *bind
	sock   net.Conn
	nc     net.Conn // the stream to read and write: sock, or TLS over it; only the relay's own goroutines touch it
	up     *upstream.Conn
	shard  uint32
	to     netip.AddrPort // what the client meant, if a redirect brought it
	limit  time.Duration
	moved  atomic.Int64 // when a byte was last moved, either way
	header bool         // a PROXY header must come first
	word   bool         // the client waits for one (model.MeshWord)
	copies bool         // bytes pass through the process: one side is TLS
	early  []byte       // what came of the client before it was known that nobody understands it
	// contest is set if the endpoint is connected before the client has spoken.
	contest *contest
}

// relay serves a connection to a TCP listener to its end; to a TLS listener if secure is true.
func (b *bind) relay(a accepted, secure bool) {
	r := &relay{srv: b.srv, bind: b, sock: a.Conn, nc: a.Conn, shard: a.shard, to: a.to, limit: b.srv.opt.StreamTimeout, header: a.header}
	r.Begin(b.srv.pipe, a.Conn, a.shard)
	r.Peer.Port, r.Peer.Meant = b.portOf(a.to), a.to
	b.relays.add(r)
	defer r.unlist()
	if r.greeted() {
		if !secure || r.secured() {
			r.serve()
		}
		r.nc.Close()
		r.Finish()
	}
}

// unlist takes the relay off the list of the bind's.
func (r *relay) unlist() { r.bind.relays.remove(r) }

// secured sets up TLS. It returns false if that failed and the relay is aborted. For the time of the handshake the client
// is one of the bind's connections, which may lose their memory to others.
func (r *relay) secured() bool {
	defer r.caught()
	c := newConn(r.bind, r.sock, r.shard, r.to, true)
	defer c.giveBack()
	r.bind.list(c)
	defer r.bind.forget(c)
	if reason, err := c.secure(); err != nil {
		r.srv.log.Debug("TLS handshake failed", "client", r.Peer.Name(), "error", err)
		r.Abort(&exchange.Failure{Reason: reason, Detail: err.Error()}) // not reset: the client may still read an alert
		return false
	}
	c.become(stateHandedOn)
	r.nc = c.nc
	r.within(c.tls)
	return true
}

// within notes the client's TLS.
func (r *relay) within(t *tlsSession) {
	t.sock.relayed = true
	r.copies, r.Peer.TLS = true, &t.peer
	r.word = t.conn.ConnectionState().NegotiatedProtocol == model.MeshWord
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
			reset(r.sock)
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
	if r.connect(r.bind.serving(r.to)) && r.say(model.WordThere) {
		r.pass()
	}
}

// say says a word to a client that waits for one. It returns false if that failed and the relay is aborted.
func (r *relay) say(word byte) bool {
	if !r.word {
		return true
	}
	r.sock.SetWriteDeadline(time.Now().Add(r.srv.opt.HandshakeTimeout))
	if _, err := r.nc.Write([]byte{word}); err != nil {
		r.abort(&exchange.Failure{Reason: telemetry.ClientClosed})
		return false
	}
	return true
}

// refuse ends a client's connection for which there is none to an endpoint.
func (r *relay) refuse() {
	if f := r.Cause(); !r.word || f == nil {
		r.cut()
	} else if f.Absent() || f.Reason == telemetry.Draining {
		r.say(model.WordAway)
	} else {
		r.say(model.WordDenied)
	}
}

// connect connects to an endpoint. It returns false if the relay is over.
func (r *relay) connect(snap *snapshot, port *routing.Port) bool {
	if r.up = r.Connect(snap.Snapshot, port); r.up == nil {
		r.refuse()
		return false
	}
	r.copies = r.copies || r.up.TCP() == nil
	if now, port := r.bind.serving(r.to); now != snap {
		r.rejudge(now, port) // Apply may have come too early to see that the relay was let in
	}
	return !r.Aborted()
}

// rejudge judges the relay by a configuration that has come into force, from any goroutine.
func (r *relay) rejudge(snap *snapshot, port *routing.Port) {
	if r.Rejudge(snap.Snapshot, port) {
		r.cut()
	}
}

// abort resets both connections, from any goroutine.
func (r *relay) abort(why *exchange.Failure) {
	if r.Abort(why) {
		r.cut()
	}
}

// cut resets the client's connection, unless it may yet be one of requests.
func (r *relay) cut() {
	if r.contest == nil || r.contest.outcome() == contestRelay {
		reset(r.sock)
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
	done := make(chan struct{})
	defer func() { <-done }()
	defer r.caught() // ends the other direction, too
	go func() {
		defer close(done)
		r.forward()
	}()
	r.out(nil)
}

// endpoint is the stream to read and write on the endpoint's side.
func (r *relay) endpoint() io.ReadWriter {
	if tcp := r.up.TCP(); tcp != nil {
		return tcp // can be spliced
	}
	return r.up
}

// forward moves the client's bytes to the endpoint.
func (r *relay) forward() {
	defer r.caught()
	deadlines := func(read, write time.Time) {
		r.sock.SetReadDeadline(read)
		r.up.WriteBy(write, 0)
	}
	if len(r.early) > 0 && !r.give(&r.In, r.up, r.early, deadlines, relayEndpoint) {
		return
	}
	r.early = nil
	r.copy(&r.In, r.endpoint(), r.nc, r.up.CloseWrite, deadlines, relayClient, relayEndpoint)
}

// out moves the endpoint's bytes to the client, behind those that it has said already.
func (r *relay) out(said []byte) {
	deadlines := func(read, write time.Time) {
		r.up.ReadBy(read, 0)
		r.sock.SetWriteDeadline(write)
	}
	if len(said) > 0 && !r.give(&r.Out, r.nc, said, deadlines, relayClient) {
		return
	}
	r.copy(&r.Out, r.nc, r.endpoint(), r.closeWrite, deadlines, relayEndpoint, relayClient)
}

// hear reads what the endpoint says first, while no byte was moved for less than the stream timeout.
func (r *relay) hear(p []byte) (n int, err error) {
	for {
		r.up.ReadBy(time.Now().Add(r.limit/4), 0)
		n, err = r.up.Read(p)
		if n > 0 || !upstream.IsTimeout(err) || clock.Since(r.moved.Load()) >= r.limit {
			return n, err
		}
	}
}

// give moves bytes that were read before. It returns false if that failed and the relay is aborted.
func (r *relay) give(total *int64, dst io.Writer, p []byte, deadlines func(read, write time.Time), to relaySide) bool {
	now := time.Now()
	deadlines(now.Add(r.limit/4), now.Add(r.limit+r.limit/4))
	n, err := dst.Write(p)
	*total += int64(n)
	r.moved.Store(clock.Instant(time.Now()))
	switch {
	case err == nil:
		return true
	case upstream.IsTimeout(err):
		r.abort(&exchange.Failure{Reason: to.stuck})
	default:
		r.abort(&exchange.Failure{Reason: to.lost})
	}
	return false
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

// writer hides that a connection could read from another one by itself, for which it would make a buffer.
type writer struct{ io.Writer }

// errIdle aborts a relay that moved no byte for the stream timeout. Neither side is at fault.
var errIdle = &exchange.Failure{Detail: "idle"}

// copy moves bytes one way until src ends or either side fails. The end of src closes the sending side towards dst. A
// failure aborts both connections. copy checks four times in the timeout, because the deadlines of a copy in the kernel
// cannot be moved. If one side is TLS, the bytes pass through one buffer for each direction.
func (r *relay) copy(total *int64, dst io.Writer, src io.Reader, end func() error, deadlines func(read, write time.Time), from, to relaySide) {
	window := r.limit / 4
	var buf []byte
	if r.copies {
		b := relayBuffers.Get().(*[relayBuffer]byte)
		defer relayBuffers.Put(b)
		buf, dst = b[:], writer{dst}
	}
	for {
		start := time.Now()
		deadlines(start.Add(window), start.Add(r.limit+window))
		piece := &io.LimitedReader{R: src, N: relayPiece}
		n, err := io.CopyBuffer(dst, piece, buf)
		if n > 0 {
			*total += n
			r.moved.Store(clock.Instant(time.Now()))
		}
		switch {
		case err == nil && n == relayPiece:
		case err == nil:
			switch err := end(); {
			case err == nil:
			case upstream.IsTimeout(err): // over TLS the end is a message behind all others
				r.abort(&exchange.Failure{Reason: to.stuck})
			default:
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
