package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/http2"
)

// Limits of the HTTP/2 connections.
const (
	http2PingAfter   = 15 * time.Second // without a frame from the endpoint
	http2PingTimeout = 10 * time.Second
	// A client that is slow to take its answer holds http2StreamSpace of the connection's http2ConnSpace: so many can without slowing others.
	http2StreamSpace = 256 << 10
	http2ConnSpace   = 32 << 20
	// A connection to a proxy of the mesh carries the requests of many clients: none of the DefaultMaxStreams is slowed by others.
	sharedStreamSpace = http2ConnSpace / 256
	// maxShared bounds the connections to such a proxy: requests over HTTP/1.1 would have one each.
	maxShared = 64
	// http2MaxWaiting bounds the exchanges that wait for a stream of one endpoint.
	http2MaxWaiting = 1024
	// http2Look is how often one that waits is asked whether it is still wanted.
	http2Look = time.Second
)

var (
	errClosedAtOnce = errors.New("the endpoint does not speak HTTP/2 or closed the connection at once")
	errNoSettings   = errors.New("the endpoint did not send its HTTP/2 settings in time")
	errNoStream     = errors.New("all streams that the endpoint allows are taken")
	errTooMany      = errors.New("too many exchanges wait for a stream of the endpoint")
)

// http2Pool is an endpoint's HTTP/2 connections. The first is used until all its streams are taken, then the next is opened; when there
// are as many as allowed, exchanges wait in line.
type http2Pool struct {
	endpoint *Endpoint
	conns    atomic.Pointer[[]*http2Conn] // connections that may take streams, oldest first; replaced with mu held
	drained  atomic.Bool
	inLine   atomic.Int32 // len(waiting), or more while an exchange is about to wait

	mu      sync.Mutex // taken before a connection's
	all     map[*http2Conn]struct{}
	waiting []*http2Waiter // in order
	dialing bool
	closed  bool
	sole    *soleUse // nil unless the pool belongs to one exchange
}

// http2Conn is a connection; http2Pool.mu guards the fields that belong to the pool.
type http2Conn struct {
	*http2.Conn
	pool     *http2Pool
	ready    bool        // the endpoint's settings came
	settings *time.Timer // closes it unless they come in time
	slow     bool        // settings did
	broke    atomic.Bool // counted against the endpoint
	until    time.Time   // when a certificate ends that it was made with; zero for never
}

// http2Waiter is an exchange in line: it is told nil when it may try again, or why it need not.
type http2Waiter struct{ told chan error }

func newHTTP2Pool(e *Endpoint) *http2Pool {
	p := &http2Pool{endpoint: e, all: map[*http2Conn]struct{}{}}
	p.conns.Store(new([]*http2Conn))
	return p
}

// open begins a stream on one of the connections.
func (p *http2Pool) open(h *http2.Head, body []byte, end bool, wait *Waiting) (s Stream, sent int, err error) {
	if p.inLine.Load() == 0 {
		if s, sent, err = p.try(h, body, end, wait); err != http2.ErrUnavailable {
			return s, sent, err
		}
	}
	until := time.Now().Add(p.endpoint.set.opt.ConnectTimeout)
	if !wait.Until.IsZero() && wait.Until.Before(until) {
		until = wait.Until
	}
	if by := time.Now().Add(slowConnect); wait.Briefly && len(*p.conns.Load()) == 0 && by.Before(until) {
		until = by
	}
	wait.Waited = true
	w := &http2Waiter{told: make(chan error, 1)}
	for first := true; ; first = false {
		if err = p.wait(w, first, until, wait); err != nil {
			return Stream{}, 0, err
		}
		s, sent, err = p.try(h, body, end, wait)
		if err != http2.ErrUnavailable {
			p.wake() // there may be more than one stream
			return s, sent, err
		}
	}
}

// try is open without waiting: ErrUnavailable if no stream is free.
func (p *http2Pool) try(h *http2.Head, body []byte, end bool, wait *Waiting) (Stream, int, error) {
	for _, c := range *p.conns.Load() {
		s, sent, err := c.Begin(h, body, end, wait.Until)
		switch {
		case err == nil:
			return Stream{Stream: s, conn: c}, sent, nil
		case err == http2.ErrTimeout:
			return Stream{}, 0, p.timeout()
		}
		// Nothing was sent.
	}
	return Stream{}, 0, http2.ErrUnavailable
}

func (p *http2Pool) timeout() error {
	return &ConnectError{Address: p.endpoint.Address, Reason: ConnectTimedOut, Timeout: true, Err: errNoStream}
}

// wait takes a place in line, the first if it had one before, and waits until it may be worth trying.
func (p *http2Pool) wait(w *http2Waiter, first bool, until time.Time, wait *Waiting) error {
	e := p.endpoint
	if p.drained.Load() && !e.set.adopt(e) {
		return closedError(e.Address)
	}
	p.mu.Lock()
	p.inLine.Add(1) // before looking: an exchange that returns a stream looks afterwards
	switch {
	case p.closed:
		p.inLine.Add(-1)
		p.mu.Unlock()
		return closedError(e.Address)
	case p.available() && (!first || len(p.waiting) == 0):
		p.inLine.Add(-1)
		p.mu.Unlock()
		return nil
	case len(p.waiting) >= http2MaxWaiting:
		p.inLine.Add(-1)
		p.mu.Unlock()
		return &ConnectError{Address: e.Address, Reason: ConnectBusy, Err: errTooMany}
	case first:
		p.waiting = append(p.waiting, w)
	default:
		p.waiting = slices.Insert(p.waiting, 0, w)
	}
	p.proceed()
	p.mu.Unlock()

	t := time.NewTimer(min(http2Look, time.Until(until)))
	defer t.Stop()
	for {
		select {
		case err := <-w.told:
			return err
		case <-t.C:
		}
		left := time.Until(until)
		var err error
		switch {
		case left <= 0:
			err = p.timeout()
		case wait.Wanted != nil && !wait.Wanted.Wanted():
			err = errUnwanted
		default:
			t.Reset(min(http2Look, left))
			continue
		}
		if !p.leave(w) {
			p.wake() // it was told in this moment: another may have its turn
			<-w.told
		}
		return err
	}
}

// errUnwanted is returned by Open when Waiting.Wanted returned false.
var errUnwanted = errors.New("the exchange was given up")

// leave takes w out of the line; false if it was told already.
func (p *http2Pool) leave(w *http2Waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i < 0 {
		return false
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	p.inLine.Add(-1)
	return true
}

// wake lets the first in line try, if it may succeed.
func (p *http2Pool) wake() {
	if p.inLine.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proceed()
}

// proceed lets the first in line try again. If it cannot succeed, it opens a connection instead; mu is held.
func (p *http2Pool) proceed() {
	if p.available() {
		p.tellFirst(nil)
	} else {
		p.dialIfNeeded()
	}
}

// tellFirst takes the first from the line; mu is held.
func (p *http2Pool) tellFirst(err error) {
	if len(p.waiting) == 0 {
		return
	}
	p.waiting[0].told <- err
	p.waiting = slices.Delete(p.waiting, 0, 1)
	p.inLine.Add(-1)
}

// tellAll ends all waiting with err; mu is held.
func (p *http2Pool) tellAll(err error) {
	for len(p.waiting) > 0 {
		p.tellFirst(err)
	}
}

// available is true if a connection takes a stream; mu is held.
func (p *http2Pool) available() bool {
	return slices.ContainsFunc(*p.conns.Load(), func(c *http2Conn) bool { return c.Available() > 0 })
}

// dialIfNeeded opens a connection if an exchange cannot get a stream otherwise and another connection is allowed; mu is
// held.
func (p *http2Pool) dialIfNeeded() {
	if len(p.waiting) == 0 || p.dialing || p.closed ||
		len(*p.conns.Load()) > 0 && len(p.all) >= p.most() {
		return
	}
	p.dialing = true
	if p.sole != nil {
		p.sole.dials++
	}
	p.endpoint.set.wg.Go(p.dial)
}

// most is how many connections are allowed.
func (p *http2Pool) most() int {
	n := p.endpoint.set.opt.MaxHTTP2Connections
	if p.endpoint.Meshed() {
		n = max(n, maxShared)
	}
	return n
}

// dial opens a connection and reads from it until it ends.
func (p *http2Pool) dial() {
	e := p.endpoint
	defer p.dialed()
	deadline := time.Now().Add(e.set.opt.ConnectTimeout)
	nc, until, err := p.connect(deadline)
	if err != nil {
		p.mu.Lock()
		p.dialFailed(err)
		p.mu.Unlock()
		return
	}
	opt := &e.set.opt
	c := &http2Conn{pool: p, until: until}
	space := http2StreamSpace
	if e.Meshed() {
		space = sharedStreamSpace
	}
	c.Conn = http2.NewClient(nc, http2.Config{
		MaxHeader: opt.MaxHeaderBytes, StreamWindow: space, ConnWindow: http2ConnSpace,
		IdleTimeout: opt.IdleTimeout, StallTimeout: opt.StallTimeout, PingAfter: http2PingAfter, PingTimeout: http2PingTimeout,
		Changed: c.changed, Memory: opt.Memory,
	})
	p.mu.Lock()
	p.all[c] = struct{}{}
	closed := p.closed
	c.settings = time.AfterFunc(time.Until(deadline), c.settingsMissed)
	p.mu.Unlock()
	if closed {
		c.Close()
	}
	err = c.Run(nil, false)
	c.settings.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, c)
	p.unlist(c)
	if c.ready {
		p.proceed()
		return
	}
	switch {
	case p.closed:
		err = closedError(e.Address)
	case c.slow:
		e.unreached(false)
		e.Failed()
		err = &ConnectError{Address: e.Address, Reason: ConnectTimedOut, Timeout: true, Err: errNoSettings}
	default:
		e.unreached(false)
		e.Failed()
		err = connectFailure(e.Address, errors.Join(errClosedAtOnce, err))
	}
	p.dialFailed(err)
}

// connect opens the connection below, with TLS if need be.
func (p *http2Pool) connect(deadline time.Time) (nc net.Conn, until time.Time, err error) {
	e := p.endpoint
	ctx, cancel := context.WithDeadline(e.set.ctx, deadline)
	defer cancel()
	if e.tls == nil {
		nc, _, until, err = e.connect(ctx, nil, p.from())
		return nc, until, err
	}
	nc, wire, until, err := e.connect(ctx, e.tls.http2, p.from())
	if err != nil {
		var te *TLSError
		if errors.As(err, &te) && te.Reason == TLSRefused && strings.Contains(te.Err.Error(), "no application protocol") {
			te.Reason = TLSNoHTTP2 // RFC 7301 §3.2; the library does not export its alerts
			e.unshared.Store(e.Meshed())
		}
		return nil, until, err
	}
	tc := nc.(*tls.Conn)
	if tc.ConnectionState().NegotiatedProtocol != "h2" {
		wire.Close()
		if e.Meshed() {
			e.unshared.Store(true) // it can be reached by HTTP/1.1, and may pass on what it does not understand
		} else {
			e.Failed()
		}
		return nil, until, e.tls.failure(e.Address, TLSNoHTTP2, errors.New("the endpoint did not choose HTTP/2 (ALPN)"))
	}
	return &http2Wire{Conn: tc, wire: wire}, until, nil
}

// dialFailed tells the exchanges that need a connection; mu is held.
func (p *http2Pool) dialFailed(err error) {
	p.dialing = false
	if len(*p.conns.Load()) == 0 {
		p.tellAll(err)
	}
}

// settingsMissed ends a connection whose settings did not come in time.
func (c *http2Conn) settingsMissed() {
	c.pool.mu.Lock()
	c.slow = !c.ready
	slow := c.slow
	c.pool.mu.Unlock()
	if slow {
		c.Close()
	}
}

// changed is called by the connection when settings arrived, or when it takes no more streams. Only with the first
// settings is it known that the endpoint speaks HTTP/2, and how many streams it takes. If requests were sent earlier
// and refused, some could not be sent again.
func (c *http2Conn) changed() {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Err() != nil {
		p.unlist(c)
	} else if !c.ready && !c.slow {
		c.ready = true
		c.settings.Stop()
		p.dialing = false
		p.list(append(slices.Clone(*p.conns.Load()), c))
	}
	p.proceed()
}

func (p *http2Pool) list(conns []*http2Conn) { p.conns.Store(&conns) }

// unlist lets c take no more streams; mu is held.
func (p *http2Pool) unlist(c *http2Conn) {
	if now := *p.conns.Load(); slices.Contains(now, c) {
		p.list(slices.DeleteFunc(slices.Clone(now), func(other *http2Conn) bool { return other == c }))
	}
}

// released is called when a stream of c was closed.
func (p *http2Pool) released(c *http2Conn) {
	if p.sole != nil {
		p.spent()
		return
	}
	if p.drained.Load() {
		p.mu.Lock()
		p.unlist(c)
		p.mu.Unlock()
		c.Shutdown()
	}
	p.wake()
}

// size is the number of connections.
func (p *http2Pool) size() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.all {
		if c.ready {
			n++
		}
	}
	return n
}

// drain closes connections without exchanges, and the others with their last one.
func (p *http2Pool) drain() {
	p.drained.Store(true)
	p.mu.Lock()
	conns := *p.conns.Load()
	p.list(nil)
	p.mu.Unlock()
	for _, c := range conns {
		c.Shutdown()
	}
}

// close ends all connections and their exchanges.
func (p *http2Pool) close() {
	p.mu.Lock()
	p.closed = true
	p.list(nil)
	all := slices.Collect(maps.Keys(p.all))
	p.tellAll(closedError(p.endpoint.Address))
	p.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}

func (p *http2Pool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}
