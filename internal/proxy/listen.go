package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

// ListenError says that a listener's port cannot be bound.
type ListenError struct {
	// Listeners are the names of the listeners that share the port.
	Listeners []string
	// Refs are the places where the listeners were written.
	Refs    []model.Ref
	Address string
	Port    int32
	Err     error

	port *routing.Port
}

func (e *ListenError) Error() string {
	address := e.Address
	if address == "" {
		address = "all addresses"
	}
	return fmt.Sprintf("listener %s: port %d on %s cannot be bound: %v; free the port or change the listener",
		strings.Join(e.Listeners, ", "), e.Port, address, e.Err)
}

func (e *ListenError) Unwrap() error { return e.Err }

// Phases of a bind.
const (
	phaseServe int32 = iota
	// phaseDrain: answers announce the connection's end.
	phaseDrain
	// phaseClose: idle connections end.
	phaseClose
)

// bind is a bound port and its connections. It outlives configurations as long as they have its address and number.
type bind struct {
	srv     *Server
	address string
	number  int32
	port    string // number as text
	// redirect is not empty for the socket of a redirect, whose connections are for the ports that their clients meant.
	redirect string
	socket   socket.Bound
	ln       net.Listener  // the socket's listener
	queue    *socket.Queue // the queue of ln while connections are accepted from it; nil where ln must accept
	config   *tls.Config
	metrics  *telemetry.Listener
	phase    atomic.Int32
	last     atomic.Pointer[snapshot] // the last snapshot with the port, once the current one no longer has it
	shared   atomic.Bool              // another process accepts from the same socket: connections waiting in its queue are not lost

	accepting chan struct{} // closed when the accept loop has ended
	quit      chan struct{} // closed to end the accept loop

	mu    sync.Mutex
	conns map[*conn]struct{} // the connections that have a goroutine
	wg    sync.WaitGroup     // one for each connection

	relays  lasting[*relay]
	tunnels lasting[*tunnel]
}

// redirectKey names the socket of a redirect in place of an address.
func redirectKey(redirect string) string { return "redirect/" + redirect }

func portKey(address string, number int32) string {
	return net.JoinHostPort(address, strconv.Itoa(int(number)))
}

// portName is the name of a port's socket.
func portName(p *routing.Port) socket.Name {
	if p.Redirect != "" {
		return socket.Name{Network: p.Protocol.Network(), Address: redirectKey(p.Redirect)}
	}
	return socket.Name{Network: p.Protocol.Network(), Address: portKey(p.Address, p.Number)}
}

// name is the name of the bind's socket.
func (b *bind) name() socket.Name {
	if b.redirect != "" {
		return socket.Name{Network: b.socket.Network(), Address: redirectKey(b.redirect)}
	}
	return socket.Name{Network: b.socket.Network(), Address: portKey(b.address, b.number)}
}

// open binds a port.
func (s *Server) open(p *routing.Port) (*bind, *ListenError) {
	name := portName(p)
	bound, err := s.opt.Listen(name.Network, name.Address)
	if err != nil {
		e := &ListenError{Address: p.Address, Port: p.Number, Err: err, port: p}
		for _, m := range p.All() {
			for _, l := range m.Listeners {
				e.Listeners, e.Refs = append(e.Listeners, l.Listener.Name), append(e.Refs, l.Listener.Ref)
			}
		}
		return nil, e
	}
	b := &bind{
		srv: s, address: p.Address, number: p.Number, port: strconv.Itoa(int(p.Number)), redirect: p.Redirect, socket: bound, ln: bound.Stream,
		metrics:   s.opt.Metrics.Listener(name.Address),
		accepting: make(chan struct{}), quit: make(chan struct{}),
		conns: map[*conn]struct{}{},
	}
	b.config = s.portTLS(b)
	return b, nil
}

// snapshot is the configuration for connections to the port, and the port in it. This is the current configuration. For
// the remaining connections of a removed port it is the last configuration that had the port.
func (b *bind) snapshot() (*snapshot, *routing.Port) {
	snap := b.srv.state.Load()
	p := snap.ports[b]
	if p == nil {
		// last was set before the current configuration.
		snap = b.last.Load()
		p = snap.ports[b]
	}
	return snap, p
}

// serving is the configuration for a connection to the port that the client meant, and that port in it. The port is nil if
// the configuration has it no more; that happens to connections of redirects alone.
func (b *bind) serving(to netip.AddrPort) (*snapshot, *routing.Port) {
	snap, port := b.snapshot()
	return snap, port.Meant(to)
}

// run starts the accept loop; drain ends it.
func (b *bind) run() {
	b.srv.log.Info("listening", "address", b.ln.Addr().String())
	b.queue = socket.OpenQueue(b.ln)
	go b.accept()
}

// accept accepts connections until the bind drains.
func (b *bind) accept() {
	defer close(b.accepting)
	defer b.ln.Close()
	defer b.queue.Close()
	var pause time.Duration
	for {
		for b.srv.shortage.now.Load() && b.phase.Load() == phaseServe {
			b.pause(shortageLook)
		}
		err := b.take()
		if err == nil {
			pause = 0
			continue
		}
		if b.phase.Load() != phaseServe {
			if !b.shared.Load() {
				socket.AcceptLast(b.ln, b.start)
			}
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		if socket.IsShortage(err) {
			b.srv.shortage.met(err)
			continue
		}
		b.srv.log.Error("accept failed", "address", b.ln.Addr().String(), "error", err, "pause", pause)
		b.pause(pause)
	}
}

// take waits for connections and starts them. It returns at the latest when the accept loop has something else to do.
func (b *bind) take() error {
	if b.queue != nil && b.plain() {
		return b.queue.Take(func() bool { return b.srv.shortage.now.Load() || !b.plain() }, b.start)
	}
	nc, err := b.ln.Accept()
	if err == nil {
		b.start(nc)
	}
	return err
}

// plain is portKind.plain of the port.
func (b *bind) plain() bool {
	snap, port := b.snapshot()
	return port.Redirect == "" && snap.kindOf(port).plain
}

// pause waits for d, but no longer than the bind lives.
func (b *bind) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.quit:
	}
}

// start begins to serve a new connection.
func (b *bind) start(nc net.Conn) {
	s := b.srv
	n := s.connections.Add(1)
	shard := s.shard.Add(1)
	var to netip.AddrPort
	if b.redirect != "" {
		var err error
		if to, err = s.meant(nc); err != nil {
			s.connections.Add(-1)
			b.lost(nc, shard, err)
			return
		}
	}
	snap, port := b.serving(to)
	if limit := int64(s.opt.MaxConnections); b.asks(snap, port) && (limit <= 0 || n <= limit) {
		b.find(nc, shard, to, n)
		return
	}
	b.admit(nc, shard, to, n, snap, port)
}

// admit serves a new connection, the nth that is open, to a port of a snapshot, or refuses it.
func (b *bind) admit(nc net.Conn, shard uint32, to netip.AddrPort, n int64, snap *snapshot, port *routing.Port) {
	s := b.srv
	if port == nil {
		s.connections.Add(-1)
		b.lost(nc, shard, errNobodyMeant)
		return
	}
	kind := snap.kindOf(port)
	f := snap.Listeners[port.Listeners[0].ID].Front // all listeners of a port agree about the PROXY protocol
	if !b.mayKnock(f, nc, shard) {
		s.connections.Add(-1)
		return
	}
	if limit := int64(s.opt.MaxConnections); limit > 0 && n > limit {
		s.connections.Add(-1)
		b.refuse(nc, shard, kind.plain)
		s.makeRoom()
		if s.refused.Load()%refusedBurst == 0 {
			b.rest(refusedPause)
		}
		return
	}
	b.metrics.Opened(shard)
	kind.begin(b, accepted{nc, shard, to, f != nil && f.Header})
}

// serve serves a connection in a new goroutine.
func (b *bind) serve(c *conn) {
	b.list(c)
	go func() {
		if c.serve(); !c.is(stateParked) {
			b.forget(c)
			b.ended(c.shard)
		}
	}()
}

// list puts a connection on the list of connections that have a goroutine.
func (b *bind) list(c *conn) {
	b.mu.Lock()
	b.conns[c] = struct{}{}
	b.mu.Unlock()
}

// forget takes a connection off the list of connections that have a goroutine.
func (b *bind) forget(c *conn) {
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
}

// ended counts a connection's end.
func (b *bind) ended(shard uint32) {
	b.metrics.Closed(shard)
	b.srv.connections.Add(-1)
	b.wg.Done()
}
