package intercept

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// port is the listener for one address.
type port struct {
	of    *Divider
	at    netip.AddrPort // the address is not valid for all addresses
	queue chan net.Conn
	over  chan struct{} // closed by Close

	mu       sync.Mutex
	deadline time.Time
	moved    chan struct{} // closed when the deadline is replaced
	closed   bool
}

// give hands a connection to Accept, or resets it.
func (p *port) give(nc net.Conn) {
	select {
	case p.queue <- nc:
		return
	default:
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case p.queue <- nc:
	case <-p.over:
		reset(nc)
	case <-t.C:
		p.of.log("a redirected connection is not taken", "address", p.Addr().String(), "after", patience)
		reset(nc)
	}
}

// Accept implements net.Listener.
func (p *port) Accept() (net.Conn, error) {
	for {
		p.mu.Lock()
		deadline, moved, closed := p.deadline, p.moved, p.closed
		p.mu.Unlock()
		if closed {
			return nil, p.failed(net.ErrClosed)
		}
		var alarm <-chan time.Time
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return nil, p.failed(os.ErrDeadlineExceeded)
			}
			alarm = time.After(left)
		}
		select {
		case nc := <-p.queue:
			return nc, nil
		case <-moved:
		case <-alarm:
		case <-p.over:
		}
	}
}

func (p *port) failed(err error) error {
	return &net.OpError{Op: "accept", Net: "tcp", Addr: p.Addr(), Err: err}
}

// SetDeadline bounds Accept, as that of a net.TCPListener.
func (p *port) SetDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	close(p.moved)
	p.moved = make(chan struct{})
	return nil
}

// Close implements net.Listener. Connections to the address are from now on those of Divider.Other.
func (p *port) Close() error {
	p.of.mu.Lock()
	if p.of.ports[p.at] == p {
		delete(p.of.ports, p.at)
	}
	p.of.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	p.closed = true
	close(p.over)
	return nil
}

// Addr is the address that clients mean.
func (p *port) Addr() net.Addr { return net.TCPAddrFromAddrPort(p.at) }
