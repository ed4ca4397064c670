package proxy

import (
	"errors"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/socket"
)

// parking keeps a server's idle HTTP/1.1 connections in a separate poller. A parked connection needs no goroutine, no
// stack and none of the memory of an exchange, which saves several KiB a connection. One goroutine waits for all of
// them and closes those whose time is up.
type parking struct {
	poller *socket.Poller
	limit  time.Duration // how long a connection may be idle
	done   chan struct{}
	alarm  time.Time // when the goroutine wakes up without an event

	mu     sync.Mutex
	byFD   []*parked
	oldest *parked // the ends of a list by age
	newest *parked
}

// parked is an idle connection. Its bind still counts it.
type parked struct {
	bind         *bind
	nc           tcpSocket
	fd           int32
	shard        uint32
	since        time.Time           // when it became idle
	tls          *tlsSession         // nil in cleartext
	from         *exchange.Announced // the client that a PROXY header announced; nil: none
	first        bool                // no request was served yet
	either       bool
	detects      detection
	to           netip.AddrPort
	own          *exchange.Own
	older, newer *parked
}

func newParking(limit time.Duration) (*parking, error) {
	poller, err := socket.NewPoller()
	if err != nil {
		return nil, err
	}
	p := &parking{poller: poller, limit: limit, done: make(chan struct{})}
	go p.run()
	return p, nil
}

// run takes up connections when bytes arrive, and closes connections whose time is up, until close.
func (p *parking) run() {
	defer close(p.done)
	for {
		if err := p.poller.Wait(p.ready); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		for p.expire() {
			p.poller.Look(p.ready)
		}
	}
}

// ready takes up a connection that has something to read.
func (p *parking) ready(fd int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.byFD[fd]; k != nil {
		p.resume(k, false)
	}
}

// park takes over the connection. It returns false if that is impossible; then the connection's goroutine must wait.
func (c *conn) park() bool {
	p := c.srv.idle
	k := &parked{bind: c.bind, nc: c.sock.(tcpSocket), shard: c.shard, since: c.now, tls: c.tls, from: c.peer.Announced, first: c.first, either: c.either, detects: c.detects, to: c.to, fd: -1}
	c.socket.Control(func(fd uintptr) { k.fd = int32(fd) })
	if k.fd < 0 {
		return false
	}
	k.nc.SetDeadline(time.Time{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.bind.phase.Load() == phaseClose {
		return false
	}
	if p.poller.Watch(k.fd) != nil {
		return false
	}
	if k.tls != nil {
		k.tls.sock.c, k.tls.sock.io = nil, nil
	}
	c.bind.forget(c)
	k.own = c.peer.TakeOwn()
	p.insert(k)
	return true
}

// insert and remove need p.mu to be held.
func (p *parking) insert(k *parked) {
	if n := int(k.fd) + 1; n > len(p.byFD) {
		p.byFD = append(p.byFD, make([]*parked, max(n-len(p.byFD), len(p.byFD)/2))...)
	}
	p.byFD[k.fd] = k
	if k.older = p.newest; k.older != nil {
		k.older.newer = k
	} else {
		p.oldest = k
	}
	p.newest = k
	if p.alarm.IsZero() {
		p.setAlarm()
	}
}

func (p *parking) remove(k *parked) {
	p.byFD[k.fd] = nil
	if k.older != nil {
		k.older.newer = k.newer
	} else {
		p.oldest = k.newer
	}
	if k.newer != nil {
		k.newer.older = k.older
	} else {
		p.newest = k.older
	}
	k.older, k.newer = nil, nil
}

// setAlarm needs p.mu to be held.
func (p *parking) setAlarm() {
	p.alarm = time.Time{}
	if p.oldest != nil {
		p.alarm = p.oldest.since.Add(p.limit)
	}
	p.poller.WakeAt(p.alarm)
}

// expire closes connections that were idle for too long. It reports whether there may be more.
func (p *parking) expire() bool {
	var over [128]*parked // a bounded batch, so that others do not wait for long
	n := 0
	p.mu.Lock()
	now := time.Now()
	for n < len(over) && p.oldest != nil && now.Sub(p.oldest.since) >= p.limit {
		over[n] = p.oldest
		p.remove(over[n])
		n++
	}
	if n < len(over) {
		p.setAlarm()
	}
	p.mu.Unlock()
	for _, k := range over[:n] {
		k.close()
		k.bind.ended(k.shard)
	}
	return n == len(over)
}

// close ends a connection. Over TLS it sends the closing alert if that needs no waiting.
func (k *parked) close() {
	k.own.End()
	if k.tls == nil {
		k.nc.Close()
		return
	}
	k.tls.sock.hasty = true
	k.tls.conn.Close()
}

// evict gives the connections of b, which closes, back to goroutines.
func (p *parking) evict(b *bind) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := p.oldest; k != nil; {
		next := k.newer
		if k.bind == b {
			p.resume(k, false)
		}
		k = next
	}
}

// shed ends up to most connections that were idle for shedAfter looks, longest idle first. It returns their number.
func (p *parking) shed(most int) (n int) {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for ; n < most && p.oldest != nil && now.Sub(p.oldest.since) >= shedAfter*shortageLook; n++ {
		p.resume(p.oldest, true) // a request may have just arrived
	}
	return n
}

// resume serves the connection again; with shed, for the last time. It needs p.mu to be held.
func (p *parking) resume(k *parked, shed bool) {
	p.remove(k)
	c := newConn(k.bind, k.nc, k.shard, k.to, k.tls != nil)
	c.peer.Become(k.from)
	c.peer.GiveOwn(k.own)
	c.either, c.detects = k.either, k.detects
	if c.first = k.first; !c.first {
		c.last = k.since
	}
	if k.tls != nil {
		c.tls, c.nc = k.tls, k.tls.conn
		c.peer.TLS = &k.tls.peer
		c.tls.sock.c = c
		c.stream()
		c.resumed, c.now = true, k.since
	}
	// A connection that comes back quickly will do so again. It is not parked between its requests.
	c.frequent = !k.first && time.Since(k.since) < recheckAfter
	c.shed.Store(shed)
	k.bind.serve(c)
}

// close ends the goroutine. No connection is parked any more then.
func (p *parking) close() {
	if p == nil {
		return
	}
	p.poller.Close()
	<-p.done
}
