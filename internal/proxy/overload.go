package proxy

import (
	"math"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// gate decides what the proxy takes on. What it refuses costs next to nothing: it is answered before anything is done for it.
type gate struct {
	max     int64 // exchanges in flight
	crowded int64 // from where on no service may have more than half of max

	pressure atomic.Uint32 // of 1<<16 exchanges so many are refused, because the proxy cannot keep up
	delay    atomic.Int64  // nanoseconds that what is ready waited of late

	refused     atomic.Uint64 // exchanges, for max
	shed        atomic.Uint64 // exchanges, for the pressure
	connections atomic.Uint64 // refused

	_        [64]byte
	inFlight atomic.Int64
	_        [56]byte
}

// Retry-After is drawn for each client's connection, so that not all come back at once; the same in milliseconds is for gRPC.
var (
	retryAfter    = [...]string{"1", "2", "3"}
	retryPushback = [...]string{"1000", "2000", "3000"}
)

var (
	failOverload   = &failure{status: 503, reason: telemetry.Overload, detail: "the proxy is at its limit of requests", later: true}
	failPressure   = &failure{status: 503, reason: telemetry.Overload, detail: "the proxy cannot keep up", later: true, hangUp: true}
	failBusy       = &failure{status: 503, reason: telemetry.BackendOverload, detail: "as many requests as allowed are under way to the backend", later: true}
	failConnecting = &failure{status: 503, reason: telemetry.BackendOverload, detail: "as many connections as allowed are being opened to the backend", later: true}
	failShortage   = &failure{status: 503, reason: telemetry.Overload, detail: "the proxy has no connection to spare", later: true}
)

// bound sets how many exchanges may be in flight; 0 is no bound.
func (g *gate) bound(max int) {
	if g.max = int64(max); max <= 0 {
		g.max = math.MaxInt64
	}
	g.crowded = g.max / 4 * 3
}

// enter claims a place for the exchange, which leave gives back, or says why there is none.
func (ex *exchange) enter() error {
	g := &ex.srv.gate
	n := g.inFlight.Add(1)
	ex.entered = true
	if n > g.max {
		ex.leave()
		g.refused.Add(1)
		return failOverload
	}
	ex.crowded = n > g.crowded
	if !g.strained() {
		return nil
	}
	if g.sheds() {
		ex.leave()
		g.shed.Add(1)
		return failPressure
	}
	if ex.client.gone() { // it has waited long enough
		ex.leave()
		return failClientClosed
	}
	return nil
}

// sheds draws whether something new is refused because the proxy cannot keep up.
func (g *gate) sheds() bool {
	p := g.pressure.Load()
	return p != 0 && rand.Uint32()>>16 < p
}

func (ex *exchange) leave() {
	if ex.entered {
		ex.entered = false
		ex.srv.gate.inFlight.Add(-1)
	}
}

// begin claims a place for the exchange at its service, for service.End to give back. A service that has got stuck shall not take all places
// from the others.
func (ex *exchange) begin(s *upstream.Service) error {
	if ex.crowded && len(ex.snap.upstream) > 1 && int64(s.InFlight()) > ex.srv.gate.max/2 || !s.Begin() {
		s.Rejected(upstream.LimitRequests)
		return failBusy
	}
	return nil
}

// nowhere is why there was no endpoint to choose.
func nowhere(s *upstream.Service) error {
	if len(s.Endpoints()) == 0 {
		return failNoEndpoint
	}
	s.Rejected(upstream.LimitEndpoints)
	return failBusy
}

// refusal is what a connection beyond the limit is told in cleartext.
const refusal = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 51\r\nRetry-After: 1\r\n" +
	"Connection: close\r\n\r\noverload: the proxy is at its limit of connections\n"

// Bounds of refusals.
const (
	// refusedHeld is how many refused connections are kept at most, and for how long, so that their clients can read what they are told.
	refusedHeld = 64
	refusedTime = time.Second
	// Of refusedBurst refusals without a pause the listener rests: what waits with the system costs less than what is refused.
	refusedBurst = 32
	refusedPause = 10 * time.Millisecond
)

// refusals are the connections that were told to go and have not been closed yet. No goroutine is theirs.
type refusals struct {
	mu     sync.Mutex
	closed bool
	held   [refusedHeld]net.Conn
	until  [refusedHeld]*time.Timer
	next   int
}

// hold closes the connection after a while, and earlier if others need its place.
func (r *refusals) hold(nc net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		nc.Close()
		return
	}
	i := r.next
	r.next = (i + 1) % refusedHeld
	r.drop(i)
	r.held[i] = nc
	r.until[i] = time.AfterFunc(refusedTime, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.held[i] == nc {
			r.drop(i)
		}
	})
}

// drop closes the connection at i, if any. r.mu is held. What the client has sent is read first: unread it would make the close a reset,
// which can cost the client the answer (RFC 9112 §9.6).
func (r *refusals) drop(i int) {
	if nc := r.held[i]; nc != nil {
		r.until[i].Stop()
		r.held[i] = nil
		discardReady(nc)
		nc.Close()
	}
}

func (r *refusals) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for i := range r.held {
		r.drop(i)
	}
}

// control calls f with the connection's socket, which is not waited for.
func control(nc net.Conn, f func(fd uintptr)) {
	if sc, ok := nc.(syscall.Conn); ok && socket.CanPoll {
		if raw, err := sc.SyscallConn(); err == nil {
			raw.Control(f)
		}
	}
}

// discardReady reads what is there, bounded, without waiting.
func discardReady(nc net.Conn) {
	control(nc, func(fd uintptr) {
		var b [4 << 10]byte
		for range 4 {
			if n, err := socket.Read(fd, b[:]); n <= 0 || err != nil {
				return
			}
		}
	})
}

// refuse tells a connection that there is no place for it, without waiting for the client. told says that the port is
// one for HTTP in cleartext: others cannot be told anything.
func (b *bind) refuse(nc net.Conn, shard uint32, told bool) {
	s := b.srv
	s.gate.connections.Add(1)
	s.opt.Metrics.Unrouted().Fail(shard, telemetry.Overload)
	if told {
		discardReady(nc)
		control(nc, func(fd uintptr) { socket.Write(fd, []byte(refusal)) })
		if tcp, ok := nc.(tcpSocket); ok {
			tcp.CloseWrite()
		}
		s.refusals.hold(nc)
	} else {
		nc.Close()
	}
}

// rest waits in the accept loop, unless the port drains.
func (b *bind) rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.quit:
	}
}

// The law by which the proxy sheds load. A probe goes through the poller as every socket does that has become ready, behind those before it: what
// it waits is what they wait. While the least wait of an interval is above Options.MaxQueueDelay there is a standing queue, and each interval more
// of the exchanges are refused and their connections closed, which leaves fewer to be served; below, half as many.
const (
	probeBusy     = 25 * time.Millisecond
	probeIdle     = 250 * time.Millisecond
	probeInterval = 100 * time.Millisecond
	strainedDelay = 100 * time.Millisecond
	probeCrowd    = 32 // exchanges in flight from which on it is looked often

	pressureStep = 1 << 16 / 20
	pressureMost = 1 << 16 * 9 / 10
	pressureNone = 1 << 16 / 100
)

// strained is true while what is ready waits so long that the times which are measured say little about others.
func (g *gate) strained() bool {
	return g.pressure.Load() != 0 || time.Duration(g.delay.Load()) > strainedDelay
}

// adjust draws the conclusion from the least delay of an interval.
func (g *gate) adjust(least, most time.Duration) {
	p := g.pressure.Load()
	switch {
	case least > most:
		p = min(p+pressureStep, pressureMost)
	case least > most/2: // as it should be
	default:
		if p -= p / 5; p < pressureNone {
			p = 0
		}
	}
	g.pressure.Store(p)
}

// watch measures the delay until quit is closed.
func (s *Server) watch(quit <-chan struct{}) {
	r, w, err := os.Pipe()
	if err != nil {
		s.log.Warn("load cannot be measured", "error", err)
		return
	}
	defer r.Close()
	arrived := make(chan struct{}, 1) // one byte at most is on its way
	var wg sync.WaitGroup
	wg.Go(func() {
		for b := make([]byte, 1); ; {
			if n, _ := r.Read(b); n == 0 {
				return
			}
			arrived <- struct{}{}
		}
	})
	defer wg.Wait()
	defer w.Close()
	g := &s.gate
	defer g.pressure.Store(0) // what comes while the proxy drains is served
	least, since := time.Duration(math.MaxInt64), time.Now()
	judge := func(now time.Time) {
		if now.Sub(since) < probeInterval {
			return
		}
		before := g.pressure.Load()
		g.adjust(least, s.opt.MaxQueueDelay)
		if after := g.pressure.Load(); (before == 0) != (after == 0) {
			s.log.Warn("overload", "shedding", after != 0, "delay", least)
		}
		least, since = math.MaxInt64, now
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-quit:
			return
		case <-timer.C:
		}
		sent := time.Now()
		if _, err := w.Write([]byte{0}); err != nil {
			return
		}
		for waiting := true; waiting; {
			timer.Reset(probeInterval)
			select {
			case <-quit:
				return
			case <-arrived:
				waiting = false
			case <-timer.C: // it is known already that the delay is at least this long
			}
			now := time.Now()
			d := now.Sub(sent)
			g.delay.Store(int64(d))
			if !waiting || d > s.opt.MaxQueueDelay {
				least = min(least, d)
				judge(now)
			}
		}
		pause := probeIdle
		if g.strained() || g.inFlight.Load() > probeCrowd {
			pause = probeBusy
		}
		timer.Reset(pause)
	}
}

// load is for the metrics.
func (s *Server) load() telemetry.Load {
	g := &s.gate
	return telemetry.Load{
		InFlight: g.inFlight.Load(), MaxInFlight: int64(max(s.opt.MaxInFlight, 0)),
		Connections: s.connections.Load(), MaxConnections: int64(max(s.opt.MaxConnections, 0)),
		RefusedRequests: g.refused.Load(), ShedRequests: g.shed.Load(), RefusedConnections: g.connections.Load(),
		QueueDelay: time.Duration(g.delay.Load()), Shedding: float64(g.pressure.Load()) / (1 << 16),
	}
}

// Services yields the services of the configuration being served, by name, with the health of their endpoints.
func (s *Server) Services(yield func(telemetry.ServiceState) bool) {
	snap := s.state.Load()
	if snap == nil {
		return
	}
	for _, sv := range snap.upstream {
		stats := sv.Stats()
		state := telemetry.ServiceState{Service: sv.Name, Full: stats.Full, Endpoints: []telemetry.EndpointState{}}
		for l := range upstream.Limits() {
			state.Rejected = append(state.Rejected, telemetry.LimitCount{Limit: l.String(), Count: stats.Rejected[l]})
		}
		for _, e := range sv.Endpoints() {
			st := e.Stats()
			state.Endpoints = append(state.Endpoints, telemetry.EndpointState{
				Address: e.Address, Healthy: st.Healthy, Ejected: st.Ejected, Failing: st.Failing, CheckError: st.CheckErr, InFlight: st.InFlight,
				Failures: st.Failures, Ejections: st.Ejections, EjectionsDenied: st.Denied, ChecksFailed: st.Checks[0], ChecksPassed: st.Checks[1],
			})
		}
		if !yield(state) {
			return
		}
	}
}
