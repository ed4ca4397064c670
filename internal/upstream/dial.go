package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/socket"
)

// Dial is Get, but always opens a new connection. A host name is resolved now, and its addresses are tried as in RFC
// 8305.
func (e *Endpoint) Dial(deadline time.Time) (*Conn, error) {
	return e.DialFor(deadline, clientaddr.Pair{})
}

// DialFor is Dial for a client, whom an endpoint that Announces is told. The connection belongs to this client: Put
// closes it.
func (e *Endpoint) DialFor(deadline time.Time, from clientaddr.Pair) (*Conn, error) {
	return e.dialBy(deadline, e.http1(), from)
}

// http1 is the TLS configuration of connections over HTTP/1.1, nil for cleartext.
func (e *Endpoint) http1() *tls.Config {
	if e.tls == nil {
		return nil
	}
	return e.tls.http1
}

// DialRelay is DialFor for a connection of which nothing is known: over TLS no application protocol is offered, other than
// the mesh's to endpoints that are known by identity, and the endpoint may choose what it speaks. An endpoint that does not Announce needs no client.
func (e *Endpoint) DialRelay(from clientaddr.Pair) (*Conn, error) {
	if e.tls == nil {
		return e.dialBy(time.Time{}, nil, from)
	}
	return e.dialBy(time.Time{}, e.tls.relay, from)
}

// dialBy opens a connection, over TLS if config is not nil.
func (e *Endpoint) dialBy(deadline time.Time, config *tls.Config, from clientaddr.Pair) (*Conn, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	return e.dialIn(deadline, config, from)
}

// dialIn is dialBy for what has entered; if it fails, that has left.
func (e *Endpoint) dialIn(deadline time.Time, config *tls.Config, from clientaddr.Pair) (*Conn, error) {
	c, err := e.openConn(deadline, config, from)
	if err != nil {
		e.leave()
		return nil, err
	}
	return c, nil
}

func (e *Endpoint) openConn(deadline time.Time, config *tls.Config, from clientaddr.Pair) (*Conn, error) {
	limit := time.Now().Add(e.set.opt.ConnectTimeout)
	if !deadline.IsZero() && deadline.Before(limit) {
		limit = deadline
	}
	ctx, cancel := context.WithDeadline(e.set.ctx, limit)
	defer cancel()
	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		return nil, &ConnectError{Address: e.Address, Reason: ConnectTimedOut, Timeout: true, Err: err} // not the endpoint's fault
	}
	if !e.set.mayOpen() {
		return nil, &ConnectError{Address: e.Address, Reason: ConnectLocal, Err: errOpen}
	}
	nc, wire, until, err := e.connect(ctx, config, from)
	if err != nil {
		e.set.open.Add(-1)
		return nil, err
	}
	c := newConn(e, nc, wire)
	c.until = until
	e.mu.Lock()
	closed, drained := e.closed, e.drained
	if !closed {
		e.open[c] = struct{}{}
	}
	e.mu.Unlock()
	if closed || drained && !e.set.adopt(e) {
		e.mu.Lock()
		delete(e.open, c)
		e.mu.Unlock()
		e.set.open.Add(-1)
		wire.Close()
		return nil, closedError(e.Address)
	}
	return c, nil
}

// connect opens a connection, over TLS if config is not nil, counts it and reports a failure to the health check. wire is the
// connection below TLS, and until is when a certificate ends that proved an identity (zero for never).
func (e *Endpoint) connect(ctx context.Context, config *tls.Config, from clientaddr.Pair) (nc, wire net.Conn, until time.Time, err error) {
	defer e.connecting.Add(-1)
	if e.connecting.Add(1) > e.maxConnecting.Load() {
		return nil, nil, until, &ConnectError{Address: e.Address, Reason: ConnectBusy, Err: errConnecting}
	}
	e.dials.Add(1)
	var counted atomic.Bool
	slow := time.AfterFunc(slowConnect, func() {
		if !e.set.opt.Strained() && !counted.Swap(true) {
			e.Failed()
		}
	})
	nc, wire, until, err = e.handshake(ctx, config, from)
	slow.Stop()
	if err == nil {
		e.reached(config != nil && config == e.tls.relay)
		return nc, wire, until, nil
	}
	e.dialFails.Add(1)
	e.tellForbidden(err)
	if e.set.ctx.Err() != nil {
		return nil, nil, until, closedError(e.Address)
	}
	var ce *ConnectError
	var te *TLSError
	ourFault := errors.As(err, &ce) && (ce.Reason == ConnectLocal || ce.Reason == ConnectDenied || ce.Timeout && e.set.opt.Strained()) ||
		errors.As(err, &te) && te.Reason == TLSConfig
	if !ourFault {
		e.unreached(errors.Is(err, errAway))
	}
	if !counted.Swap(true) && !ourFault {
		e.Failed()
	}
	return nil, nil, until, err
}

func (e *Endpoint) handshake(ctx context.Context, config *tls.Config, from clientaddr.Pair) (nc, wire net.Conn, until time.Time, err error) {
	own, ends := config, (*time.Time)(nil)
	if e.tls != nil {
		if err = e.tls.err; err == nil {
			own, ends, err = e.tls.configure(config)
		}
		if err != nil {
			return nil, nil, until, e.tls.failure(e.Address, TLSConfig, err)
		}
	}
	if wire, err = e.dial(ctx); err != nil {
		return nil, nil, until, connectFailure(e.Address, err)
	}
	if err = e.announce(ctx, wire, from); err != nil {
		wire.Close()
		return nil, nil, until, connectFailure(e.Address, err)
	}
	if config == nil {
		return wire, wire, until, nil
	}
	below := wire
	var counted *records
	if config == e.tls.http1 {
		counted = newRecords(wire)
		below = counted
	}
	if config == e.tls.relay {
		below = steady{wire}
	}
	tc := tls.Client(below, own)
	if err := tc.HandshakeContext(ctx); err != nil {
		wire.Close()
		return nil, nil, until, e.tls.failure(e.Address, tlsReason(err), err)
	}
	if counted != nil {
		state := tc.ConnectionState()
		counted.begin(&state)
	}
	if config == e.tls.relay {
		if err := e.hearWord(ctx, tc); err != nil {
			wire.Close()
			return nil, nil, until, err
		}
	}
	if ends != nil {
		until = *ends
	}
	return tc, wire, until, nil
}

var (
	errAway   = errors.New("the endpoint's proxy does not reach its application")
	errDenied = errors.New("the endpoint's proxy refuses the connection")
)

// hearWord waits until a proxy of the mesh says whether the connection has come about, if it does that (model.MeshWord).
func (e *Endpoint) hearWord(ctx context.Context, tc *tls.Conn) error {
	if tc.ConnectionState().NegotiatedProtocol != model.MeshWord {
		return nil
	}
	inTime := context.AfterFunc(ctx, func() { tc.SetReadDeadline(socket.LongAgo) })
	var word [1]byte
	_, err := tc.Read(word[:])
	if !inTime() {
		err = context.Cause(ctx)
	}
	switch {
	case err != nil:
		return e.tls.failure(e.Address, tlsReason(err), err)
	case word[0] == model.WordThere:
		return nil
	case word[0] == model.WordAway:
		return &ConnectError{Address: e.Address, Reason: ConnectRefused, Err: errAway}
	}
	return &ConnectError{Address: e.Address, Reason: ConnectDenied, Err: errDenied}
}

// dial connects to the endpoint.
func (e *Endpoint) dial(ctx context.Context) (net.Conn, error) {
	if own := e.set.opt.Own; own != nil && e.Meshed() {
		if to, err := netip.ParseAddrPort(e.Address); err == nil {
			if nc, err := own(ctx, to); nc != nil || err != nil {
				return nc, err
			}
		}
	}
	return e.set.opt.dial(ctx, "tcp", e.Address)
}

// steady is the connection below TLS of a relayed one, whose writes have the deadline that WriteBy sets alone. The library
// allows a close_notify five seconds, in which the endpoint need not take what came before.
type steady struct{ net.Conn }

func (steady) SetWriteDeadline(time.Time) error { return nil }

// connectFailure names why a connection did not come about.
func connectFailure(address string, err error) error {
	ce := &ConnectError{Address: address, Reason: ConnectFailed, Err: err}
	var ne net.Error
	ce.Timeout = errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
	var dns *net.DNSError
	var forbidden *forbiddenError
	switch {
	case errors.As(err, &forbidden):
		ce.Reason = ConnectForbidden
	case errors.As(err, &dns):
		ce.Reason = ConnectUnresolved
	case ce.Timeout:
		ce.Reason = ConnectTimedOut
	case isErrno(err, syscall.ECONNREFUSED, syscall.ECONNRESET):
		ce.Reason = ConnectRefused
	case isErrno(err, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN):
		ce.Reason = ConnectUnreachable
	case isErrno(err, syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM):
		ce.Reason = ConnectLocal
	}
	return ce
}

func isErrno(err error, errnos ...syscall.Errno) bool {
	for _, errno := range errnos {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
