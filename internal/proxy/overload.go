package proxy

import (
	"cmp"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// refusal is the answer to a cleartext connection beyond the limit.
const refusal = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 51\r\nRetry-After: 1\r\n" +
	"Connection: close\r\n\r\noverload: the proxy is at its limit of connections\n"

// Bounds of refusals.
const (
	// refusedHeld is how many refused connections stay open at most, and refusedTime for how long, so that their
	// clients can read the refusal.
	refusedHeld = 64
	refusedTime = time.Second
	// refusedBurst is how many refusals are sent before the listener pauses for refusedPause. Connections that wait in
	// the system's queue cost less than refused ones.
	refusedBurst = 32
	refusedPause = 10 * time.Millisecond
)

// refusals are the refused connections that are not closed yet. They have no goroutine.
type refusals struct {
	mu     sync.Mutex
	closed bool
	held   [refusedHeld]net.Conn
	until  [refusedHeld]*time.Timer
	next   int
}

// hold closes the connection after a while, or earlier if others need its place.
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

// drop closes the connection at i, if any. The caller holds r.mu. drop first reads what the client has sent: closing a
// connection with unread bytes resets it, which can cost the client the answer (RFC 9112 §9.6).
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

// control calls f with the connection's socket, without waiting for the socket.
func control(nc net.Conn, f func(fd uintptr)) {
	if sc, ok := nc.(syscall.Conn); ok && socket.CanPoll {
		if raw, err := sc.SyscallConn(); err == nil {
			raw.Control(f)
		}
	}
}

// discardReady reads the available bytes, up to a bound, without waiting.
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

// refuse turns a connection away for lack of room, without waiting for the client. told says that the port serves HTTP
// in cleartext: on other ports the connection is closed without an answer.
func (b *bind) refuse(nc net.Conn, shard uint32, told bool) {
	s := b.srv
	s.refused.Add(1)
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

// rest pauses the accept loop, unless the port drains.
func (b *bind) rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.quit:
	}
}

// load returns the figures for the metrics.
func (s *Server) load() telemetry.Load {
	l := telemetry.Load{
		Connections: s.connections.Load(), MaxConnections: int64(max(s.opt.MaxConnections, 0)), RefusedConnections: s.refused.Load(),
	}
	s.pipe.Load(&l)
	return l
}

// Services yields the services of the served configuration, by name, with the health of their endpoints.
func (s *Server) Services(yield func(telemetry.ServiceState) bool) {
	snap := s.state.Load()
	if snap == nil {
		return
	}
	for all := snap.Upstream; len(all) > 0; {
		n := 1 // number of client certificates that the service is used with
		for n < len(all) && all[n].Name == all[0].Name {
			n++
		}
		if !yield(serviceState(all[:n])) {
			return
		}
		all = all[n:]
	}
}

// weights yields where the served configuration sends the requests of each rule.
func (s *Server) weights(yield func(telemetry.ExchangeLabels, float64)) {
	if snap := s.state.Load(); snap != nil {
		snap.Weights(yield)
	}
}

// serviceState is the state of one service. all holds its variants, which differ only by client certificate. Endpoints
// are counted by address.
func serviceState(all []*upstream.Service) telemetry.ServiceState {
	stats := all[0].Stats()
	state := telemetry.ServiceState{Service: all[0].Name, Full: stats.Full, Endpoints: []telemetry.EndpointState{}}
	for l := range upstream.Limits() { // the variants share the counters
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

// addEndpoint adds the state of the same address with another client certificate.
func addEndpoint(to *telemetry.EndpointState, is telemetry.EndpointState) {
	to.Healthy, to.Ejected, to.Failing = to.Healthy && is.Healthy, to.Ejected || is.Ejected, to.Failing || is.Failing
	to.CheckError = cmp.Or(to.CheckError, is.CheckError)
	to.InFlight, to.Failures = to.InFlight+is.InFlight, to.Failures+is.Failures
	to.Ejections, to.EjectionsDenied = to.Ejections+is.Ejections, to.EjectionsDenied+is.EjectionsDenied
	to.ChecksFailed, to.ChecksPassed = to.ChecksFailed+is.ChecksFailed, to.ChecksPassed+is.ChecksPassed
}
