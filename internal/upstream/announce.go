package upstream

import (
	"context"
	"maps"
	"net"
	"time"

	"github.com/weirmesh/weir/internal/clientaddr"
)

// Announces means that each connection to the endpoint begins with a PROXY header, which names one client. So a
// connection is never used for another client: use DialFor, and Waiting.From with Open. Connections without a client,
// such as those of health checks, say so (LOCAL).
func (e *Endpoint) Announces() bool { return e.header != 0 }

// announce writes the PROXY header, before TLS.
func (e *Endpoint) announce(ctx context.Context, wire net.Conn, from clientaddr.Pair) error {
	if !e.Announces() {
		return nil
	}
	if d, ok := ctx.Deadline(); ok {
		wire.SetWriteDeadline(d)
		defer wire.SetWriteDeadline(time.Time{})
	}
	_, err := wire.Write(clientaddr.AppendHeader(nil, e.header, from))
	return err
}

// soleUse is the additional state of an HTTP/2 pool for a single exchange; http2Pool.mu guards what changes.
type soleUse struct {
	from  clientaddr.Pair
	dials int // under way, or with their connection open
	gone  bool
}

// single makes a pool for one exchange: its connection names the client.
func (e *Endpoint) single(from clientaddr.Pair) (*http2Pool, error) {
	if !e.set.mayOpen() {
		return nil, &ConnectError{Address: e.Address, Reason: ConnectLocal, Err: errOpen}
	}
	p := newHTTP2Pool(e)
	p.sole = &soleUse{from: from}
	e.mu.Lock()
	closed, drained := e.closed, e.drained
	if !closed {
		if e.singles == nil {
			e.singles = map[*http2Pool]struct{}{}
		}
		e.singles[p] = struct{}{}
	}
	e.mu.Unlock()
	if closed || drained && !e.set.adopt(e) {
		p.forget()
		return nil, closedError(e.Address)
	}
	return p, nil
}

func (p *http2Pool) from() clientaddr.Pair {
	if p.sole == nil {
		return clientaddr.Pair{}
	}
	return p.sole.from
}

// spent ends the pool of an exchange that has ended, or could not begin; others stay.
func (p *http2Pool) spent() {
	if p.sole == nil {
		return
	}
	p.mu.Lock()
	p.closed = true
	p.list(nil)
	idle := p.sole.dials == 0
	all := maps.Clone(p.all)
	p.mu.Unlock()
	for c := range all {
		if c.ready {
			c.Shutdown() // tells the endpoint, and closes
		} else {
			c.Close()
		}
	}
	if idle {
		p.forget()
	}
}

// dialed is called when a dial has failed or its connection has ended.
func (p *http2Pool) dialed() {
	if p.sole == nil {
		return
	}
	p.mu.Lock()
	p.sole.dials--
	over := p.sole.dials == 0 && p.closed
	p.mu.Unlock()
	if over {
		p.forget()
	}
}

// forget takes the pool off the endpoint's list, once.
func (p *http2Pool) forget() {
	e := p.endpoint
	p.mu.Lock()
	gone := p.sole.gone
	p.sole.gone = true
	p.mu.Unlock()
	if gone {
		return
	}
	e.set.open.Add(-1)
	e.mu.Lock()
	delete(e.singles, p)
	e.mu.Unlock()
}

// singleSize is the number of HTTP/2 connections that are one exchange's.
func (e *Endpoint) singleSize() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for p := range e.singles {
		n += p.size()
	}
	return n
}
