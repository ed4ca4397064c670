package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/budget"
	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/mirror"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/pace"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/upstream"
)

// ErrEnded is what Apply returns once Run's context has ended.
var ErrEnded = errors.New("the proxy is shutting down")

// Server is a data plane. Apply configures it, any number of times, before or after Run has begun.
type Server struct {
	opt      Options
	minPace  pace.Rule
	shortage shortage
	room     struct {
		sync.Mutex
		made    time.Time // when makeRoom last acted
		refused uint64    // how many connections had been refused by then
	}
	log      *slog.Logger
	upstream *upstream.Set
	mirrors  *mirror.Set
	pipe     *exchange.Pipeline

	state       atomic.Pointer[snapshot]
	connections atomic.Int64     // open connections of clients
	shard       atomic.Uint32    // each connection draws one
	workers     *http2.Workers   // serve the streams of HTTP/2
	floods      loglimit.Limiter // limits log lines about connections closed for a flood
	strangers   loglimit.Limiter // limits log lines about connections without a PROXY header
	panics      loglimit.Limiter
	tickets     tickets
	handshakes  *handshakeGate
	refused     atomic.Uint64 // refused connections
	buffers     buffers
	refusals    refusals
	idle        *parking // nil if the system has none
	own         own

	mu      sync.Mutex     // serialises Apply with itself and with Run's beginning and end
	binds   []*bind        // of the current snapshot, by number, then address
	unbound []*ListenError // ports of the current snapshot that cannot be bound
	missing chan struct{}  // unbound has something new
	running bool
	ended   bool
	removed sync.WaitGroup // drains of removed ports
	cut     context.Context
	cutNow  context.CancelFunc // cuts those drains short
}

// New makes a server. Run must be called once, even after a failed Apply: it ends everything that the server started.
func New(opt Options) *Server {
	opt.setDefaults()
	s := &Server{opt: opt, log: opt.Logger, missing: make(chan struct{}, 1), minPace: pace.Rule{Rate: max(opt.MinBodyRate, 0), Grace: opt.BodyGrace}}
	s.workers = http2.NewWorkers(idleWorkers * runtime.GOMAXPROCS(0))
	s.floods.Every, s.strangers.Every, s.panics.Every = time.Second, time.Second, time.Second
	s.shortage.lines.Every, s.buffers.told.Every = shortageTold, time.Minute
	s.buffers.Budget = budget.New(opt.MaxBuffered)
	s.cut, s.cutNow = context.WithCancel(context.Background())
	opt.Upstream.Memory = endpointMemory{s, budget.Exchange}
	s.shortage.log, s.shortage.shed = opt.Logger, s.shedIdle
	opt.Upstream.Strained = func() bool { return s.pipe.Strained() }
	if len(opt.Pod) > 0 {
		opt.Upstream.Own = s.dialOwn
	}
	s.upstream = upstream.New(opt.Upstream)
	opt.Upstream.Memory = endpointMemory{s, budget.Mirror}
	s.mirrors = mirror.New(opt.Mirror, opt.Upstream, s.buffers.Budget, opt.Logger, opt.Metrics, opt.DropsChanged)
	s.pipe = exchange.NewPipeline(opt.Options, exchange.Around{
		Mirrors: s.mirrors, Mark: opt.Mirror.Mark(), Memory: s.buffers.Budget, Shortage: s.shortage.met, Cut: s.cut.Done(),
		Current:     func() *exchange.Snapshot { return s.state.Load().Snapshot },
		Connections: s.connections.Load, MaxConnections: int64(opt.MaxConnections),
	})
	s.minPace.Scarce = s.pipe.Scarce
	s.tickets.keys = &tls.Config{Time: opt.Now}
	s.handshakes = newHandshakeGate(runtime.GOMAXPROCS(0), opt.MaxHandshakes)
	opt.Metrics.WatchCertificates(s.expiries)
	opt.Metrics.WatchLoad(s.load, s.Services)
	opt.Metrics.WatchWeights(s.weights)
	opt.Metrics.WatchMemory(s.buffers.memory)
	return s
}

// Apply replaces the configuration in one step: routes, services, certificates and listeners. It binds new ports before
// the step and drains removed ports after it. Connections to ports that stay are not disturbed, and each exchange ends
// with the configuration that it began with. On a removed port, exchanges of the remaining connections use the last
// configuration that had the port. Relayed connections and tunnels that the new policies deny are cut before Apply returns.
//
// Parts that cannot be served are left out and logged; LeftOut returns them. A port that cannot be bound is left out
// too, and the server tries again every second: see Unbound. Everything else is served. On error the old configuration
// stays in use. Apply returns ErrNothingServed if the configuration has listeners but none of them can be bound; the
// error wraps a *ListenError for each. cfg must not be changed afterwards.
func (s *Server) Apply(cfg *model.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return ErrEnded
	}
	snap := s.compile(cfg, s.state.Load())
	binds, opened, unbound := s.bindPorts(snap)
	if len(binds) == 0 && len(unbound) > 0 && !s.inTheWay(unbound) {
		return nothingServed(unbound)
	}
	services, err := s.upstream.Apply(cfg)
	if err != nil {
		closeAll(opened)
		return err
	}
	s.attach(cfg, snap, services)
	prev, old := s.state.Load(), s.binds
	for _, b := range old {
		if snap.ports[b] == nil {
			b.last.Store(prev)
		}
	}
	if s.state.Store(snap); prev != nil {
		prev.Replace()
	}
	s.rejudge(snap, prev)
	s.tellLeftOut(snap, prev)
	s.binds = binds
	if s.miss(unbound); len(unbound) > 0 {
		s.tryAgain()
	}
	if s.running {
		for _, b := range opened {
			b.run()
		}
	}
	for _, b := range old {
		if snap.ports[b] == nil {
			s.log.Info("closing port", "address", b.socket.Addr().String())
			s.remove(b)
		}
	}
	return nil
}

// bindPorts fills in the snapshot's ports: the ports that are bound already, and the newly opened ones.
func (s *Server) bindPorts(snap *snapshot) (binds, opened []*bind, unbound []*ListenError) {
	current := make(map[socket.Name]*bind, len(s.binds))
	for _, b := range s.binds {
		current[b.name()] = b
	}
	for _, p := range snap.Table.Ports() {
		b := current[portName(p)]
		if b == nil {
			var err *ListenError
			if b, err = s.open(p); err != nil {
				unbound = append(unbound, err)
				continue
			}
			opened = append(opened, b)
		}
		binds = append(binds, b)
		snap.ports[b] = p
		snap.addRelay(b, p)
	}
	return binds, opened, unbound
}

// inTheWay reports whether the server's own ports may keep others from being bound: ports that are about to be removed
// and have the same number at another address.
func (s *Server) inTheWay(unbound []*ListenError) bool {
	return slices.ContainsFunc(s.binds, func(b *bind) bool {
		return slices.ContainsFunc(unbound, func(e *ListenError) bool { return e.Port == b.number })
	})
}

func closeAll(binds []*bind) {
	for _, b := range binds {
		b.socket.Close()
	}
}

// Addr is a bound port.
type Addr struct {
	// Address and Port are as the listeners give them.
	Address string
	Port    int32
	// Protocol is the protocol of the listeners.
	Protocol model.Protocol
	// Bound is the address that the system assigned.
	Bound net.Addr
	// Listeners are the names of the listeners that share the port.
	Listeners []string
}

// Addrs returns the ports that are bound, by number, then address.
func (s *Server) Addrs() []Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var addrs []Addr
	for _, b := range s.binds {
		p := s.state.Load().ports[b]
		a := Addr{Address: b.address, Port: b.number, Protocol: p.Protocol, Bound: b.socket.Addr()}
		for _, m := range p.All() {
			for _, l := range m.Listeners {
				a.Listeners = append(a.Listeners, l.Listener.Name)
			}
		}
		addrs = append(addrs, a)
	}
	return addrs
}

// MirrorDrops returns the bounds because of which copies were dropped in the last minute, by service, then cause.
func (s *Server) MirrorDrops() []mirror.Drop { return s.mirrors.Drops() }
