package intercept

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/socket"
)

// patience is how long a connection waits for the listener of its port to take it. Meanwhile others wait in the
// system's queue.
const patience = time.Second

// Divider accepts connections at redirected sockets. Original is required, and set before Accept.
type Divider struct {
	// Original returns the address that a connection's client meant. A connection for which it fails is reset.
	Original func(net.Conn) (netip.AddrPort, error)
	// Other takes connections to addresses without a listener, and must not wait for them. Nil resets them.
	Other func(nc net.Conn, to netip.AddrPort)
	// Log gets what fails; nil is nobody.
	Log *slog.Logger

	mu      sync.Mutex
	ports   map[netip.AddrPort]*port
	sockets []net.Listener
	closed  bool
	done    sync.WaitGroup
}

// Accept begins to divide what comes to a socket, until Close, which closes it.
func (d *Divider) Accept(ln net.Listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		ln.Close()
		return
	}
	d.sockets = append(d.sockets, ln)
	d.done.Go(func() { d.accept(ln) })
}

func (d *Divider) accept(ln net.Listener) {
	var pause time.Duration
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			d.divide(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default: // too few descriptors, for example
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			d.log("redirected connections cannot be accepted", "address", ln.Addr().String(), "error", err, "pause", pause)
			time.Sleep(pause)
		}
	}
}

func (d *Divider) log(message string, args ...any) {
	if d.Log != nil {
		d.Log.Error(message, args...)
	}
}

// divide gives a connection to whom it is for.
func (d *Divider) divide(nc net.Conn) {
	to, err := d.Original(nc)
	if err != nil {
		if d.Log != nil {
			d.Log.Debug("a connection's destination is not known", "client", nc.RemoteAddr().String(), "error", err)
		}
		reset(nc)
		return
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	switch p := d.port(to); {
	case p != nil:
		p.give(nc)
	case d.Other != nil:
		d.Other(nc, to)
	default:
		reset(nc)
	}
}

// port is the listener for an address: the one of just this address, or the one of all addresses.
func (d *Divider) port(to netip.AddrPort) *port {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.ports[to]; p != nil {
		return p
	}
	return d.ports[netip.AddrPortFrom(netip.Addr{}, to.Port())]
}

// Listen is a socket.Opener: it opens a listener for connections to an address, or to a port of all addresses. There is no
// system's socket, so that it cannot be handed over.
func (d *Divider) Listen(network, address string) (socket.Bound, error) {
	if network != "tcp" {
		return socket.Bound{}, fmt.Errorf("connections of %q are not redirected", network)
	}
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return socket.Bound{}, err
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return socket.Bound{}, fmt.Errorf("%q is not a port", number)
	}
	var ip netip.Addr
	if host != "" {
		if ip, err = netip.ParseAddr(host); err != nil {
			return socket.Bound{}, err
		}
		if ip = ip.Unmap(); ip.IsUnspecified() {
			ip = netip.Addr{}
		}
	}
	p := &port{of: d, at: netip.AddrPortFrom(ip, uint16(n)), queue: make(chan net.Conn), over: make(chan struct{}), moved: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return socket.Bound{}, net.ErrClosed
	case d.ports[p.at] != nil:
		return socket.Bound{}, fmt.Errorf("there is a listener for %s already", address)
	}
	if d.ports == nil {
		d.ports = map[netip.AddrPort]*port{}
	}
	d.ports[p.at] = p
	return socket.Bound{Stream: p}, nil
}

// Close closes the sockets and waits until nothing is divided any more. The listeners stay, and get nothing.
func (d *Divider) Close() {
	d.mu.Lock()
	d.closed = true
	for _, ln := range d.sockets {
		ln.Close()
	}
	d.mu.Unlock()
	d.done.Wait()
}

// reset closes a connection so that the peer sees an abnormal end.
func reset(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	nc.Close()
}
