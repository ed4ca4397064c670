package upstream

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/model"
)

// Endpoint is one address with its state and the connections to it. The same Endpoint serves every service and snapshot
// that names its address with the same protocol, TLS identity and PROXY header.
//
// In flight are the connections handed out by Get and Dial (from the call until Put or Close, so that slow connects weigh too)
// and the exchanges of Open (until Stream.Close).
type Endpoint struct {
	// Address is "ip:port" or "host:port".
	Address string

	protocol model.Protocol
	set      *Set
	tls      *endpointTLS // nil for cleartext
	h2       *http2Pool
	header   int // version of the PROXY header that connections begin with; 0 for none
	keeps    int // how many idle connections of HTTP/1.1
	spot     uint64
	health   health
	away     away

	services      []*Service // it is in; guarded by Set.healthMu
	maxInFlight   atomic.Int64
	maxConnecting atomic.Int64
	connecting    atomic.Int64

	_        [64]byte // inFlight changes with every exchange, the fields above seldom
	inFlight atomic.Int64
	_        [56]byte

	dials     atomic.Uint64
	dialFails atomic.Uint64
	forbidden atomic.Bool // the refusal was logged
	unshared  atomic.Bool // it chose no HTTP/2, though it is Meshed

	mu      sync.Mutex
	idle    []*Conn // a stack; stamps never decrease from bottom to top
	open    map[*Conn]struct{}
	singles map[*http2Pool]struct{} // HTTP/2 connections of one exchange each; nil: none yet
	reuses  uint64
	drained bool
	closed  bool
}

func newEndpoint(s *Set, address string, protocol model.Protocol, identity *tlsIdentity) *Endpoint {
	e := &Endpoint{Address: address, protocol: protocol, set: s, keeps: s.opt.MaxIdlePerEndpoint, spot: spotAt(address), open: map[*Conn]struct{}{}}
	if identity != nil {
		e.tls = identity.forEndpoint()
	}
	e.h2 = newHTTP2Pool(e)
	e.health.spared.Every = ejectForget
	e.limit(nil)
	e.healthPolicy(nil)
	return e
}

// restedOf is among how many idle connections, of those put last, one that has rested is looked for.
const restedOf = 8

// rested takes an idle connection: of those put last the one that has rested longest and was put in this tick or the one
// before, otherwise the one put last. What an endpoint's system held back behind an answer needs a round trip to arrive
// after Put has acknowledged the answer, and a busy endpoint's last connection was put only just now. An older connection
// would be more likely to be closed by the endpoint in this moment. e.mu is held, and some are idle.
func (e *Endpoint) rested(now uint32) *Conn {
	last := len(e.idle) - 1
	i := max(last-restedOf+1, 0)
	for i < last && now-e.idle[i].stamp > 1 {
		i++
	}
	c := e.idle[i]
	copy(e.idle[i:], e.idle[i+1:])
	e.idle[last] = nil
	e.idle = e.idle[:last]
	return c
}

// Get returns an idle connection if there is any, one that was used recently, else a new one, within the earlier of deadline (zero: none) and
// Options.ConnectTimeout. A connection that was idle for more than a second or two was checked with Alive; of others the first Write does that. A
// reused connection may still be closed by the other side in this moment: a request that may be repeated is then repeated on a connection from
// Dial. The connection carries its predecessor's deadlines: call ReadBy and WriteBy, with zero for none. Errors are *ConnectError or *TLSError
// and have been counted by the health check.
func (e *Endpoint) Get(deadline time.Time) (c *Conn, reused bool, err error) {
	return e.get(deadline, false)
}

// get is Get; briefly, a new one is given up after slowConnect.
func (e *Endpoint) get(deadline time.Time, briefly bool) (c *Conn, reused bool, err error) {
	for {
		if err := e.enter(); err != nil {
			return nil, false, err
		}
		e.mu.Lock()
		if len(e.idle) == 0 {
			e.mu.Unlock()
			break
		}
		c := e.rested(e.set.epoch.Load())
		e.reuses++
		c.state.Store(connUsed)
		e.mu.Unlock()
		if c.ended() {
			c.Close()
			continue
		}
		check := e.set.epoch.Load()-c.stamp > 1
		if c.unchecked = !check; check && !c.Alive() {
			c.Close()
			continue
		}
		return c, true, nil
	}
	if briefly {
		if by := time.Now().Add(slowConnect); deadline.IsZero() || by.Before(deadline) {
			deadline = by
		}
	}
	c, err = e.dialIn(deadline, e.http1(), clientaddr.Pair{})
	return c, false, err
}

// Put returns a connection whose exchange ended well, for further use, and acknowledges what it received, unless a proxy of the mesh sent it. It is closed instead if bytes remain in its
// buffer or in TLS (the other side sent more than it should), if it was aborted, if the endpoint is drained, or if
// enough connections are idle. c must not be used afterwards.
func (e *Endpoint) Put(c *Conn) {
	if c.r != c.w || c.state.Load() != connUsed || e.Announces() || c.ended() || !c.settled() {
		c.Close()
		return
	}
	c.shrink()
	if !e.Meshed() { // a proxy of the mesh sends nothing behind an answer, whatever its application does
		c.acknowledge()
	}
	e.mu.Lock()
	if e.drained || e.closed || len(e.idle) >= e.keeps || !c.state.CompareAndSwap(connUsed, connIdle) {
		e.mu.Unlock()
		c.closeGently()
		return
	}
	c.stamp = e.set.epoch.Load()
	e.idle = append(e.idle, c)
	e.mu.Unlock()
	e.leave()
}

// ConnectTimeout is that of Options.
func (e *Endpoint) ConnectTimeout() time.Duration { return e.set.opt.ConnectTimeout }

// InFlight is the number of exchanges and connects under way.
func (e *Endpoint) InFlight() int { return int(e.inFlight.Load()) }

// Stats are an endpoint's counters since it came into being, and gauges.
type Stats struct {
	InFlight  int    // exchanges and connects under way
	Idle      int    // idle HTTP/1.1 connections
	Open      int    // HTTP/1.1 connections, idle or used
	HTTP2     int    // HTTP/2 connections
	Dials     uint64 // connections attempted, of both protocols
	DialFails uint64 // of these failed
	Reuses    uint64 // idle HTTP/1.1 connections taken up again
	Failures  uint64 // failures noted by the health check, failed dials included
	Ejections uint64
	Denied    uint64 // ejections that did not take place, since too many were ejected
	Healthy   bool
	Ejected   bool
	Failing   bool      // its active check
	Checks    [2]uint64 // active checks that failed, that went well
	CheckErr  string    // why the last active check failed
	Drained   bool      // in no service any more
}

// Stats reads the counters; not one moment's, but each by itself.
func (e *Endpoint) Stats() Stats {
	e.mu.Lock()
	st := Stats{Idle: len(e.idle), Open: len(e.open), Reuses: e.reuses, Drained: e.drained}
	e.mu.Unlock()
	st.InFlight = e.InFlight()
	st.HTTP2 = e.h2.size() + e.singleSize()
	st.Dials = e.dials.Load()
	st.DialFails = e.dialFails.Load()
	st.Failures = e.health.failed.Load()
	st.Ejections = e.health.ejections.Load()
	st.Denied = e.health.denied.Load()
	st.Healthy = e.Healthy()
	st.Ejected = e.health.until.Load() != 0
	st.Failing = e.health.failing.Load()
	for i := range st.Checks {
		st.Checks[i] = e.health.checked[i].Load()
	}
	if text := e.health.checkErr.Load(); text != nil {
		st.CheckErr = *text
	}
	return st
}

// expire closes connections that were idle for at least keep ticks, and takes the read buffers of those idle for more
// than one tick: a busy connection keeps its buffer, an idle one costs little.
func (e *Endpoint) expire(now, keep uint32) {
	var expired []*Conn
	e.mu.Lock()
	n := 0
	for n < len(e.idle) && now-e.idle[n].stamp > keep {
		n++
	}
	if n > 0 {
		expired = append(expired, e.idle[:n]...)
		kept := copy(e.idle, e.idle[n:])
		clear(e.idle[kept:])
		e.idle = e.idle[:kept]
	}
	for _, c := range e.idle {
		if now-c.stamp <= 1 {
			break
		}
		c.release()
	}
	e.mu.Unlock()
	for _, c := range expired {
		c.closeGently()
	}
}

// drain closes idle connections, and lets none become idle any more.
func (e *Endpoint) drain() {
	e.mu.Lock()
	e.drained = true
	idle := e.idle
	e.idle = nil
	e.mu.Unlock()
	for _, c := range idle {
		c.closeGently()
	}
	e.h2.drain()
}

// Leave ends what is kept of an endpoint that Service.Own returned: idle connections now, others when their requests end.
func (e *Endpoint) Leave() { e.drain() }

// finished is true when Close has nothing left to end at a drained endpoint.
func (e *Endpoint) finished() bool {
	if e.inFlight.Load() != 0 || e.h2.size() != 0 {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.open) == 0 && len(e.singles) == 0
}

// close ends all connections, used ones too.
func (e *Endpoint) close() {
	e.mu.Lock()
	e.closed = true
	idle := e.idle
	e.idle = nil
	used := make([]*Conn, 0, len(e.open))
	for c := range e.open {
		if c.state.Load() != connIdle {
			used = append(used, c)
		}
	}
	singles := slices.Collect(maps.Keys(e.singles))
	e.mu.Unlock()
	for _, p := range singles {
		p.close()
	}
	for _, c := range idle {
		c.closeGently()
	}
	for _, c := range used {
		c.Abort()
	}
	e.h2.close()
}
