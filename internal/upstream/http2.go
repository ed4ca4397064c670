package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of the HTTP/2 connections.
const (
	http2PingAfter   = 15 * time.Second // without a frame from the endpoint
	http2PingTimeout = 10 * time.Second
	http2WriteStall  = 30 * time.Second // no byte could be written
	http2StreamSpace = 512 << 10        // unread bytes of one response
)

var errClosedAtOnce = errors.New("the endpoint does not speak HTTP/2 or closed the connection at once")

// http2Pool is an endpoint's HTTP/2 connections. The first is used until all its streams are taken, then the next is opened; when there
// are as many as allowed, exchanges wait for a stream of the least used.
type http2Pool struct {
	endpoint  *Endpoint
	transport *http.Transport

	mu      sync.Mutex
	conns   []*http2Conn            // those that may take streams, oldest first
	all     map[*http2Conn]struct{} // those too that end when their exchanges do
	dialing *http2Dial
	drained bool
	closed  bool
}

// http2Conn is a connection; http2Pool.mu guards what is not its own.
type http2Conn struct {
	*http.ClientConn
	wire    *http2Wire
	active  int  // exchanges, response bodies included
	retired bool // ends with its last exchange
	gone    bool // closed below
}

// http2Dial is a dial that everybody who needs it waits for; err is set when done is closed.
type http2Dial struct {
	done chan struct{}
	err  error
}

// wireKey is the context's key for the *http2Conn being dialled.
type wireKey struct{}

func newHTTP2Pool(e *Endpoint) *http2Pool {
	p := &http2Pool{endpoint: e, all: map[*http2Conn]struct{}{}}
	opt := e.set.opt
	p.transport = &http.Transport{
		// To the transport every connection is cleartext: TLS is done in dialWire, as for HTTP/1.1.
		Protocols:              new(http.Protocols),
		DialContext:            p.dialWire,
		DisableCompression:     true,
		IdleConnTimeout:        opt.IdleTimeout,
		MaxResponseHeaderBytes: int64(opt.MaxHeaderBytes),
		HTTP2: &http.HTTP2Config{
			StrictMaxConcurrentRequests: true,
			MaxReceiveBufferPerStream:   http2StreamSpace,
			SendPingTimeout:             http2PingAfter,
			PingTimeout:                 http2PingTimeout,
			WriteByteTimeout:            http2WriteStall,
		},
	}
	p.transport.Protocols.SetUnencryptedHTTP2(true)
	return p
}

// dialWire is the transport's dial.
func (p *http2Pool) dialWire(ctx context.Context, _, _ string) (net.Conn, error) {
	e := p.endpoint
	var config *tls.Config
	if e.tls != nil {
		config = e.tls.http2
	}
	nc, wire, err := e.connect(ctx, config)
	if err != nil {
		var te *TLSError
		if errors.As(err, &te) && te.Reason == TLSRefused && strings.Contains(te.Err.Error(), "no application protocol") {
			te.Reason = TLSNoHTTP2 // RFC 7301 §3.2; the library does not export its alerts
		}
		return nil, err
	}
	if tc, ok := nc.(*tls.Conn); ok && tc.ConnectionState().NegotiatedProtocol != "h2" {
		wire.Close()
		e.Failed()
		return nil, e.tls.failure(e.Address, TLSNoHTTP2, errors.New("the endpoint did not choose HTTP/2 (ALPN)"))
	}
	h := ctx.Value(wireKey{}).(*http2Conn)
	h.wire = &http2Wire{Conn: nc, wire: wire, settled: make(chan struct{}), done: make(chan struct{}), closed: func() { p.lost(h) }}
	return h.wire, nil
}

// acquire returns a connection with one exchange more; release it.
func (p *http2Pool) acquire(ctx context.Context) (*http2Conn, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, closedError(p.endpoint.Address)
		}
		p.conns = slices.DeleteFunc(p.conns, func(h *http2Conn) bool { return h.Err() != nil })
		for _, h := range p.conns {
			if h.Reserve() == nil {
				h.active++
				p.mu.Unlock()
				return h, nil
			}
		}
		d := p.dialing
		if d == nil && (len(p.conns) == 0 || len(p.all) < p.endpoint.set.opt.MaxHTTP2Connections) {
			d = &http2Dial{done: make(chan struct{})}
			p.dialing = d
			p.endpoint.set.wg.Go(func() { p.dial(d) })
		}
		if d == nil {
			h := p.leastUsed()
			p.mu.Unlock()
			return h, nil
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-d.done:
		}
		if d.err == nil {
			continue
		}
		p.mu.Lock()
		h := p.leastUsed()
		p.mu.Unlock()
		if h == nil {
			return nil, d.err
		}
		return h, nil
	}
}

// leastUsed takes the connection to wait on for a stream, nil if there is none; called with mu held.
func (p *http2Pool) leastUsed() *http2Conn {
	if len(p.conns) == 0 {
		return nil
	}
	h := slices.MinFunc(p.conns, func(a, b *http2Conn) int { return a.active - b.active })
	h.active++
	return h
}

// dial opens a connection for whoever waits for d.
func (p *http2Pool) dial(d *http2Dial) {
	e := p.endpoint
	ctx, cancel := context.WithTimeout(e.set.ctx, e.set.opt.ConnectTimeout)
	defer cancel()
	h := &http2Conn{}
	err := p.open(context.WithValue(ctx, wireKey{}, h), h)
	p.mu.Lock()
	p.dialing = nil
	if err == nil && p.closed {
		err = closedError(e.Address)
	}
	gone := h.gone
	if err == nil && !gone {
		h.retired = p.drained
		p.conns = append(p.conns, h)
		p.all[h] = struct{}{}
	}
	p.mu.Unlock()
	if err != nil && h.ClientConn != nil {
		h.Close()
	}
	if err == nil && gone {
		e.Failed()
		err = connectFailure(e.Address, errClosedAtOnce)
	}
	d.err = err
	close(d.done)
}

// open dials h and waits for the endpoint's settings: with them it is sure that the endpoint speaks HTTP/2, and how many streams it
// takes. A request that it would have to refuse could perhaps not be sent again.
func (p *http2Pool) open(ctx context.Context, h *http2Conn) (err error) {
	e := p.endpoint
	if h.ClientConn, err = p.transport.NewClientConn(ctx, "http", e.Address); err == nil {
		select {
		case <-h.wire.settled:
			return nil
		case <-h.wire.done:
			err = errClosedAtOnce
		case <-ctx.Done():
			if e.set.ctx.Err() != nil {
				return closedError(e.Address)
			}
			err = ctx.Err()
		}
	}
	var ce *ConnectError
	var te *TLSError
	if errors.As(err, &ce) || errors.As(err, &te) {
		return err // counted already
	}
	e.Failed()
	return connectFailure(e.Address, err)
}

// lost forgets a connection that is closed.
func (p *http2Pool) lost(h *http2Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.gone = true
	delete(p.all, h)
	p.conns = slices.DeleteFunc(p.conns, func(other *http2Conn) bool { return other == h })
}

// release ends an exchange; retire says that the connection takes no more streams.
func (p *http2Pool) release(h *http2Conn, retire bool) {
	p.mu.Lock()
	h.active--
	if retire {
		h.retired = true
		p.conns = slices.DeleteFunc(p.conns, func(other *http2Conn) bool { return other == h })
	}
	end := h.retired && h.active == 0
	p.mu.Unlock()
	if end {
		h.Close()
	}
}

// size is the number of connections.
func (p *http2Pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all)
}

// drain closes connections without exchanges, and the others with their last one.
func (p *http2Pool) drain() {
	p.mu.Lock()
	p.drained = true
	var idle []*http2Conn
	for h := range p.all {
		h.retired = true
		if h.active == 0 {
			idle = append(idle, h)
		}
	}
	p.mu.Unlock()
	for _, h := range idle {
		h.Close()
	}
}

func (p *http2Pool) isDrained() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drained
}

// close ends all connections and their exchanges.
func (p *http2Pool) close() {
	p.mu.Lock()
	p.closed = true
	all := slices.Collect(maps.Keys(p.all))
	p.mu.Unlock()
	for _, h := range all {
		h.Close()
	}
}

func (p *http2Pool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}
