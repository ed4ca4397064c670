package proxy

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/socket"
)

// parking keeps the idle HTTP/1.1 connections of a server: in a poller of its own, without a goroutine, its stack and all that an exchange
// needs, which is several KiB a connection. One goroutine waits for them all, and for the end of their time.
type parking struct {
	poller *socket.Poller
	limit  time.Duration // how long a connection may be idle
	done   chan struct{}
	alarm  time.Time // when the goroutine wakes up by itself

	mu     sync.Mutex
	byFD   []*parked
	oldest *parked // of a list by age
	newest *parked
}

// parked is an idle connection. It is still one of its bind's.
type parked struct {
	bind         *bind
	nc           tcpSocket
	fd           int32
	shard        uint32
	since        time.Time           // when it became idle
	tls          *tlsSession         // nil in cleartext
	from         *exchange.Announced // by a PROXY header; nil: by none
	first        bool                // nothing was served yet
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

// run takes up connections when something comes, and closes those whose time is over, until close.
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

// park takes the connection over; it reports false if that cannot be, and the connection's goroutine has to wait.
func (c *conn) park() bool {
	p := c.srv.idle
	k := &parked{bind: c.bind, nc: c.sock.(tcpSocket), shard: c.shard, since: c.now, tls: c.tls, from: c.peer.Announced, first: c.first, fd: -1}
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
	p.insert(k)
	return true
}

// insert and remove want p.mu to be held.
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

// setAlarm wants p.mu to be held.
func (p *parking) setAlarm() {
	p.alarm = time.Time{}
	if p.oldest != nil {
		p.alarm = p.oldest.since.Add(p.limit)
	}
	p.poller.WakeAt(p.alarm)
}

// expire closes connections that were idle for too long; it reports whether there are more.
func (p *parking) expire() bool {
	var over [128]*parked // others wait no longer than these take
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

// close ends a connection, in an orderly way as far as that needs no waiting.
func (k *parked) close() {
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

// shed ends up to most connections that were idle for shedAfter looks, those first that were so for longest, and tells how many.
func (p *parking) shed(most int) (n int) {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for ; n < most && p.oldest != nil && now.Sub(p.oldest.since) >= shedAfter*shortageLook; n++ {
		p.resume(p.oldest, true) // a request may have come in this moment
	}
	return n
}

// resume serves the connection again; shed is a last time. It wants p.mu to be held.
func (p *parking) resume(k *parked, shed bool) {
	p.remove(k)
	c := newConn(k.bind, k.nc, k.shard, k.tls != nil)
	c.peer.Become(k.from)
	if c.first = k.first; !c.first {
		c.last = k.since
	}
	if k.tls != nil {
		c.tls, c.nc = k.tls, k.tls.conn
		c.peer.TLS = &k.tls.peer
		c.tls.sock.c, c.tls.sock.io = c, socket.NewStream(c.socket)
		c.resumed, c.now = true, k.since
	}
	// One that comes back soon will do so again, and is spared the way.
	c.frequent = !k.first && time.Since(k.since) < recheckAfter
	c.shed.Store(shed)
	k.bind.serve(c)
}

// close ends the goroutine; no connection is parked any more.
func (p *parking) close() {
	if p == nil {
		return
	}
	p.poller.Close()
	<-p.done
}
