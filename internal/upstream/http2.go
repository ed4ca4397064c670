package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
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
	active  int  // exchanges, response bodies included
	retired bool // ends with its last exchange
	gone    bool // closed below
}

// http2Dial is a dial that everybody who needs it waits for; err is set when done is closed.
type http2Dial struct {
	done chan struct{}
	err  error
}

// http2Wire tells the pool when the transport closes the connection.
type http2Wire struct {
	net.Conn
	closed func()
}

func (w *http2Wire) Close() error {
	err := w.Conn.Close()
	w.closed()
	return err
}

// wireKey is the context's key for the *http2Conn being dialled.
type wireKey struct{}

func newHTTP2Pool(e *Endpoint) *http2Pool {
	p := &http2Pool{endpoint: e, all: map[*http2Conn]struct{}{}}
	opt := e.set.opt
	p.transport = &http.Transport{
		Protocols:              new(http.Protocols),
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
	connect := func(ctx context.Context, config *tls.Config) (net.Conn, error) {
		h := ctx.Value(wireKey{}).(*http2Conn)
		nc, _, err := e.connect(ctx, config, func(wire net.Conn) net.Conn {
			return &http2Wire{wire, func() { p.lost(h) }}
		})
		return nc, err
	}
	if e.tls == nil {
		p.transport.Protocols.SetUnencryptedHTTP2(true)
		p.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return connect(ctx, nil) }
		return p
	}
	p.transport.Protocols.SetHTTP2(true)
	p.transport.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := connect(ctx, e.tls.http2)
		if err != nil {
			return nil, err
		}
		if nc.(*tls.Conn).ConnectionState().NegotiatedProtocol != "h2" {
			nc.Close()
			e.Failed()
			return nil, e.tls.failure(e.Address, TLSNoHTTP2, errors.New("the endpoint did not choose HTTP/2 (ALPN)"))
		}
		return nc, nil
	}
	return p
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
			return nil, context.Cause(ctx)
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
	scheme := "http"
	if e.tls != nil {
		scheme = "https"
	}
	h := &http2Conn{}
	cc, err := p.transport.NewClientConn(context.WithValue(ctx, wireKey{}, h), scheme, e.Address)
	if err != nil {
		var ce *ConnectError
		var te *TLSError
		if !errors.As(err, &ce) && !errors.As(err, &te) {
			err = connectFailure(e.Address, err)
			e.Failed()
		}
	}
	p.mu.Lock()
	closed := p.closed
	if err == nil && !closed && !h.gone {
		h.ClientConn = cc
		h.retired = p.drained
		p.conns = append(p.conns, h)
		p.all[h] = struct{}{}
	}
	gone := h.gone
	p.dialing = nil
	p.mu.Unlock()
	if err == nil && closed {
		cc.Close()
		err = closedError(e.Address)
	} else if err == nil && gone {
		e.Failed()
		err = &ConnectError{Address: e.Address, Reason: ConnectFailed, Err: errors.New("the endpoint closed the HTTP/2 connection at once")}
	}
	d.err = err
	close(d.done)
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
