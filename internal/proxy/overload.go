package proxy

import (
	"cmp"
	"math"
	"math/rand/v2"
	"net"
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

	strain atomic.Int64 // the instant until which requests may be waiting too long for the proxy
	delay  atomic.Int64 // nanoseconds that the request looked at last had waited

	refused     atomic.Uint64 // exchanges, for max
	shed        atomic.Uint64 // exchanges, for their wait
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
	failOverdue    = &failure{status: 503, reason: telemetry.Overload, detail: "the request waited too long for the proxy", later: true}
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
	if err := ex.overdue(); err != nil {
		ex.leave()
		return err
	}
	return nil
}

// The law by which the proxy sheds load. What it cannot keep up with waits in sockets: those of connections not accepted yet, and those that nobody has
// looked at since something came. How long it waited is known to the system, which is asked about one request in lookSeldom, and about each
// while one has been found of late that waited for more than half of Options.MaxQueueDelay. Requests beyond that are refused, which costs
// little, until those are reached whose clients can still be expected to wait: so what is worked on is answered in time.
const (
	lookSeldom = 32 // a power of two
	lookLonger = time.Second
)

// overdue refuses a request that has waited too long for the proxy, or whose client has left meanwhile.
func (ex *exchange) overdue() error {
	g, most := &ex.srv.gate, ex.srv.opt.MaxQueueDelay
	if most <= 0 || rand.Uint32()%lookSeldom != 0 && !g.strained() {
		return nil
	}
	waited, left := ex.waited()
	g.delay.Store(int64(waited))
	if waited < most/2 {
		return nil
	}
	now := instant(time.Now())
	if g.strain.Swap(now+int64(lookLonger)) < now {
		ex.srv.log.Warn("overload: requests wait for the processor", "waited", waited, "refused_from", most)
	}
	switch {
	case left:
		return failClientClosed
	case waited > most:
		g.shed.Add(1)
		return failOverdue
	}
	return nil
}

// waited is how long the request was not looked at though it had come, as far as that is known, and whether its client has closed its side since.
func (ex *exchange) waited() (d time.Duration, left bool) {
	now := time.Now()
	var age time.Duration
	ok := false
	if raw := ex.conn.socket; raw != nil {
		age, left, ok = socket.DataAge(raw)
	}
	if ex.req.http2 {
		return max(age, now.Sub(ex.start)), ex.client.gone()
	}
	if !ok {
		return 0, false
	}
	if !ex.since.IsZero() {
		age = min(age, now.Sub(ex.since)) // it came while the one before it was served
	}
	return age, left
}

func (ex *exchange) leave() {
	if ex.entered {
		ex.entered = false
		ex.srv.gate.inFlight.Add(-1)
		ex.giveBack()
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

// strained is true while requests wait so long that the times which are measured say little about others.
func (g *gate) strained() bool {
	until := g.strain.Load()
	return until != 0 && instant(time.Now()) < until
}

// load is for the metrics.
func (s *Server) load() telemetry.Load {
	g := &s.gate
	return telemetry.Load{
		InFlight: g.inFlight.Load(), MaxInFlight: int64(max(s.opt.MaxInFlight, 0)),
		Connections: s.connections.Load(), MaxConnections: int64(max(s.opt.MaxConnections, 0)),
		RefusedRequests: g.refused.Load(), ShedRequests: g.shed.Load(), RefusedConnections: g.connections.Load(),
		QueueDelay: time.Duration(g.delay.Load()), Strained: g.strained(),
	}
}

// Services yields the services of the configuration being served, by name, with the health of their endpoints.
func (s *Server) Services(yield func(telemetry.ServiceState) bool) {
	snap := s.state.Load()
	if snap == nil {
		return
	}
	for all := snap.upstream; len(all) > 0; {
		n := 1 // with how many client certificates it is reached
		for n < len(all) && all[n].Name == all[0].Name {
			n++
		}
		if !yield(serviceState(all[:n])) {
			return
		}
		all = all[n:]
	}
}

// serviceState is that of a service, which differs only by client certificates: its endpoints are counted by address.
func serviceState(all []*upstream.Service) telemetry.ServiceState {
	stats := all[0].Stats()
	state := telemetry.ServiceState{Service: all[0].Name, Full: stats.Full, Endpoints: []telemetry.EndpointState{}}
	for l := range upstream.Limits() { // they share the counters
		state.Rejected = append(state.Rejected, telemetry.LimitCount{Limit: l.String(), Count: stats.Rejected[l]})
	}
	for i, sv := range all {
		state.Full = state.Full || sv.Stats().Full
		for j, e := range sv.Endpoints() {
			st := e.Stats()
			is := telemetry.EndpointState{
				Address: e.Address, Healthy: st.Healthy, Ejected: st.Ejected, Failing: st.Failing, CheckError: st.CheckErr, InFlight: st.InFlight,
				Failures: st.Failures, Ejections: st.Ejections, EjectionsDenied: st.Denied, ChecksFailed: st.Checks[0], ChecksPassed: st.Checks[1],
			}
			if i == 0 {
				state.Endpoints = append(state.Endpoints, is)
			} else { // the same addresses in the same order
				addEndpoint(&state.Endpoints[j], is)
			}
		}
	}
	return state
}

// addEndpoint adds what is known of an address with another client certificate.
func addEndpoint(to *telemetry.EndpointState, is telemetry.EndpointState) {
	to.Healthy, to.Ejected, to.Failing = to.Healthy && is.Healthy, to.Ejected || is.Ejected, to.Failing || is.Failing
	to.CheckError = cmp.Or(to.CheckError, is.CheckError)
	to.InFlight, to.Failures = to.InFlight+is.InFlight, to.Failures+is.Failures
	to.Ejections, to.EjectionsDenied = to.Ejections+is.Ejections, to.EjectionsDenied+is.EjectionsDenied
	to.ChecksFailed, to.ChecksPassed = to.ChecksFailed+is.ChecksFailed, to.ChecksPassed+is.ChecksPassed
}
