package proxy

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

const (
	readSize = 8 << 10  // size of a connection's read buffer, unless a head needs more
	keepSize = 64 << 10 // larger buffers are not kept for the next exchange
)

// conn is a client's connection and the HTTP/1.1 side of its exchanges; it implements exchange.Client. Its only
// goroutine runs serve. An idle conn holds no buffer.
type conn struct {
	srv     *Server
	bind    *bind
	sock    net.Conn
	nc      net.Conn       // the stream to read and write: sock, or TLS over it; only the connection's own goroutines touch it
	tcp     tcpSocket      // sock in cleartext: bytes written to it go out unchanged
	fresh   unpolledSocket // sock, if it may be unpolled; nil otherwise
	socket  syscall.RawConn
	tls     *tlsSession // nil in cleartext
	peer    exchange.Peer
	shard   uint32
	to      netip.AddrPort // what the client meant, if a redirect brought the connection
	either  bool           // in cleartext so far; the client may begin TLS
	detects detection      // what the connection may turn out to carry
	opaque  bool           // it is to be relayed: see relayOn
	contest *contest       // with the endpoint, which may speak first; nil: it is not connected

	h2 atomic.Pointer[http2.Conn] // set once the client speaks HTTP/2
	life
	shed atomic.Bool // another connection needs the descriptor: this one ends when it waits for a request

	now             time.Time // a recent time
	last            time.Time // the end of the previous exchange; zero: there was none
	readBy, writeBy time.Time // the deadlines that are set
	watch           clientWatch

	snap *snapshot // of the last exchange, as is port
	port *routing.Port
	// begins is where the request in w.rbuf begins that was read last.
	begins int

	idling
	in bodyReader
	answerWriter
	holding holding
	w       *work
}

// clientWatch checks whether the client is still there.
type clientWatch struct {
	peek   func(fd uintptr)
	peeked atomic.Bool
}

// tcpSocket is the part of *net.TCPConn that is used.
type tcpSocket interface {
	net.Conn
	io.ReaderFrom
	CloseWrite() error
}

// unpolledSocket is a socket that the runtime's poller may not know yet.
type unpolledSocket interface {
	Unpolled() bool
	Attempt(f func(fd uintptr) bool) (done bool, err error)
}

// tlsSession is a TLS connection and the facts about the client from its handshake.
type tlsSession struct {
	conn *tls.Conn // once the handshake is over
	sock *handshakeConn
	peer exchange.TLSPeer
}

// newConn is a connection to a port of the bind; to is what its client meant, if a redirect brought it.
func newConn(b *bind, nc net.Conn, shard uint32, to netip.AddrPort, secure bool) *conn {
	c := &conn{srv: b.srv, bind: b, sock: nc, nc: nc, shard: shard, to: to, idling: idling{first: true}}
	c.peer.Come(nc, "http", b.portOf(to))
	c.peer.Meant = to
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.socket = raw
			c.watch.peek = func(fd uintptr) { c.watch.peeked.Store(socket.Closed(fd)) }
		}
	}
	c.paced = socket.CanAcknowledge && c.socket != nil && b.srv.minPace.Rate > 0
	tcp, _ := nc.(tcpSocket)
	poll := socket.CanPoll && tcp != nil && c.socket != nil
	c.canPark = poll && b.srv.idle != nil
	if secure {
		c.peer.Scheme = "https"
		c.tls = &tlsSession{}
		c.peer.TLS = &c.tls.peer
		return c
	}
	c.tcp = tcp
	if poll {
		c.wait, c.push = c.readable, c.writable
		c.fresh, _ = nc.(unpolledSocket)
	}
	return c
}

// serve runs the connection to its end.
func (c *conn) serve() {
	defer c.close()
	if c.is(stateHeader) && !c.awaitHeader() {
		return
	}
	if c.tls != nil && c.tls.conn == nil && !c.begunTLS() {
		return
	}
	if !c.resumed {
		c.now = time.Now()
	}
	for {
		for c.nextRequest() && c.serveRequest() {
		}
		if c.opaque {
			c.relayOn()
			return
		}
		if c.turnsToTLS() {
			if !c.begunTLS() {
				return
			}
			c.now = time.Now()
			continue
		}
		if !c.is(stateParking) {
			break
		}
		if c.park() {
			c.become(stateParked)
			return
		}
		c.canPark = false
	}
	if c.is(stateLingering) {
		c.linger()
	}
}

// begunTLS sets up TLS, and serves the connection to its end over HTTP/2 if the client wants that. It returns false when
// the connection must be closed.
func (c *conn) begunTLS() bool {
	if !c.handshake() {
		return false
	}
	if c.tls.sock.raw {
		c.relayOn()
		return false
	}
	if c.tls.conn.ConnectionState().NegotiatedProtocol != "h2" {
		return true
	}
	c.now = time.Now()
	c.serveHTTP2(nil, false)
	return false
}

// close ends the connection.
func (c *conn) close() {
	if c.is(stateParked) {
		return
	}
	if p := recover(); p != nil {
		if c.w != nil {
			c.w.ex.Dispose()
			c.w = nil
		}
		c.srv.recovered(p)
	}
	if c.w != nil {
		c.w.req.Reset() // the head may be incomplete
		putWork(c.w)
		c.w = nil
	}
	c.giveBack()
	c.peer.TakeOwn().End()
	if !c.is(stateHandedOn) {
		c.become(stateOver)
		c.nc.Close()
	}
}

// kill ends the connection from another goroutine.
func (c *conn) kill() { c.sock.Close() }

// wakeIdle makes a connection that waits for a request check the phase of its port.
func (c *conn) wakeIdle() {
	if c.state().waits() {
		c.sock.SetReadDeadline(socket.LongAgo)
	}
}

// serveRequest runs the exchange of the request in w.req. It reports whether the connection can serve another one.
func (c *conn) serveRequest() bool {
	w := c.w
	var gone *exchange.Failure
	if c.srv.state.Load() != c.snap {
		if gone = c.renew(); c.opaque {
			return false
		}
	}
	c.prepare()
	c.first, c.served = false, true
	c.become(stateServing)
	if gone == nil {
		w.ex.Serve()
	} else {
		w.ex.Refuse(gone)
	}
	c.now = w.ex.Finished()
	c.last = c.now
	if c.broken {
		c.become(stateOver)
		return false
	}
	if c.in.interrupted.Load() || c.in.continued.Load() {
		c.readBy = socket.LongAgo // interrupt or inform may have set it
	}
	if !c.in.finished() {
		// The rest of an unread body: a small one that is already here is dropped, any other costs the connection.
		c.closing = c.closing || !c.in.skip(w)
		if c.closing {
			c.become(stateLingering)
		}
	}
	if c.in.own != nil {
		c.reclaim()
	}
	if c.closing && !c.is(stateLingering) {
		c.become(stateOver)
	}
	return !c.closing
}

// belongs reports whether the port serves requests as the connection brings them: with TLS, or without. Ports change.
func (c *conn) belongs(port *routing.Port) bool {
	return port != nil && port.Protocol.Requests() && (c.tls == nil && port.Plain || c.tls != nil && port.Protocol.TLS())
}

// current is the bind's snapshot and its port. The port is nil if the connection no longer belongs to it.
func (c *conn) current() (*snapshot, *routing.Port) {
	snap, port := c.bind.serving(c.to)
	if !c.belongs(port) {
		port = nil
	}
	return snap, port
}

// prepare fills in the exchange.
func (c *conn) prepare() *exchange.Request {
	w := c.w
	r, ex := &w.req, &w.ex
	s := c.srv
	c.now = time.Now()
	q := ex.Begin(s.pipe, &exchange.Origin{
		Client: c, Peer: &c.peer, Shard: c.shard, Snapshot: c.snap.Snapshot, Port: c.port, Start: c.now, Since: c.last,
	})
	q.Proto, q.Minor = "HTTP/1.1", r.Minor
	if r.Minor == 0 {
		q.Proto = "HTTP/1.0"
	}
	q.Method, q.Target, q.Path, q.Query, q.HasQuery, q.Form = r.Method, r.Target, r.Path, r.Query, r.HasQuery, r.Form
	q.Unescaped = r.Unescaped
	q.Authority, q.Fields, q.NamedHops, q.Body = r.Authority, r.Fields, r.NamedHops, r.Body
	q.Upgrade, q.Expect100 = r.Upgrade, r.Expect100
	if q.Upgrade != "" && (q.Body.Kind != http1.BodyNone || http1.HasToken(q.Upgrade, "h2c")) {
		q.Upgrade = "" // a server may ignore it (RFC 9110 §7.8)
	}
	q.GRPC = false
	q.HTTP2 = false
	if q.Body.Kind != http1.BodyNone {
		ct, _ := http1.GetID(q.Fields, http1.FieldContentType)
		q.GRPC = exchange.IsGRPC(ct)
	}

	c.in.reset(r.Body)
	c.in.stream = q.GRPC
	c.closing = !r.KeepAlive || c.port == nil // a new connection may have a port again
	c.sent, c.broken = false, false
	c.answering.Store(false)
	w.out = w.out[:0]
	return q
}

// refuse answers a request that could not be read, and counts it.
func (c *conn) refuse(f *exchange.Failure) {
	w := c.w
	w.req.Reset()
	if bytes.HasPrefix(w.rbuf[w.r:w.n], []byte("HEAD ")) {
		w.req.Method = http.MethodHead // no content here either
	}
	c.dropHead()
	if c.srv.state.Load() != c.snap {
		c.snap, c.port = c.current()
	}
	c.prepare().Proto = ""
	c.closing = true
	c.become(stateServing)
	if w.ex.Refuse(f); c.broken {
		c.become(stateOver)
	} else {
		c.become(stateLingering)
	}
}

// Bounds of linger.
const (
	lingerBytes = 64 << 20 // more than socket buffers hold
	lingerTime  = 5 * time.Second
)

// linger closes the sending side and reads, within bounds, what the client still sends. Closing a connection with
// unread bytes resets it, which can cost the client the answer (RFC 9112 §9.6).
func (c *conn) linger() {
	if t, ok := c.nc.(*tls.Conn); ok {
		t.CloseWrite()
	} else if c.tcp != nil {
		c.tcp.CloseWrite()
	}
	if c.toldToEnd() {
		c.become(stateHandedOn) // others need its memory and its place
		c.srv.refusals.hold(c.sock)
		return
	}
	c.nc.SetReadDeadline(time.Now().Add(lingerTime))
	c.readBy = socket.LongAgo
	if c.bind.phase.Load() == phaseClose {
		return
	}
	for left := lingerBytes; left > 0; {
		n, err := c.nc.Read(c.w.rbuf)
		if left -= n; err != nil {
			return
		}
	}
}

// readUntil sets the read deadline to t, or up to slack later; see upstream.Conn.ReadBy.
func (c *conn) readUntil(t time.Time, slack time.Duration) {
	if d := c.readBy.Sub(t); d >= 0 && d <= slack {
		return
	}
	c.readBy = t.Add(slack)
	c.sock.SetReadDeadline(c.readBy)
}

func (c *conn) writeUntil(t time.Time, slack time.Duration) {
	if d := c.writeBy.Sub(t); d >= 0 && d <= slack {
		return
	}
	c.writeBy = t.Add(slack)
	c.sock.SetWriteDeadline(c.writeBy)
}

// Gone implements exchange.Client. It is true if the client closed its side or the connection broke.
func (c *conn) Gone() bool {
	if c.socket == nil {
		return false
	}
	c.watch.peeked.Store(false)
	return c.socket.Control(c.watch.peek) != nil || c.watch.peeked.Load()
}

// recovered reports a panic, which is a bug in the proxy. The panic ends only its connection.
func (s *Server) recovered(p any) {
	if p == http.ErrAbortHandler {
		return
	}
	s.opt.Metrics.Unrouted().Fail(0, telemetry.Internal)
	s.tellPanic(p)
}

func (s *Server) tellPanic(p any) {
	if suppressed, ok := s.panics.Allow(""); ok {
		s.log.Error("panic in an exchange", loglimit.Args(suppressed, "panic", p, "stack", string(debug.Stack()))...)
	}
}
