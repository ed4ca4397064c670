package proxy

import (
	"math"
	"sync"
	"time"
)

// minPace is the least speed at which a client has to send, or take, a body (Options.MinBodyRate, Options.BodyGrace).
type minPace struct {
	rate  int           // bytes a second; 0 for no rule
	grace time.Duration // how far behind it a client may fall
}

// lookAfter is how long a client that takes nothing is waited for before its pace is looked at.
func (m minPace) lookAfter() time.Duration { return m.grace / 4 }

// pace is how far behind the least speed a client is. Only the time counts in which the proxy waits for the client and something is due: the
// slowness of a backend, silence between events and the time a request is thought about do not. What came faster makes up for what was slow, but
// earns nothing for later, so that the average is one over the last few graces, however long the body is. The zero value has met the rule so far.
type pace struct{ behind time.Duration }

// waited notes a wait of d in which n bytes were sent or taken.
func (p *pace) waited(m minPace, d time.Duration, n int64) {
	if m.rate == 0 {
		return
	}
	due := float64(p.behind+d) - float64(n)/float64(m.rate)*float64(time.Second)
	p.behind = time.Duration(min(max(due, 0), math.MaxInt64/2))
}

// left is how long the client may still say nothing; no more than most. 0 or less: it is too slow.
func (p *pace) left(m minPace, most time.Duration) time.Duration {
	if m.rate == 0 {
		return most
	}
	return min(m.grace-p.behind, most)
}

// outPace watches how a client takes an answer. The system buffers megabytes of it, and tells of room in large steps only, so what counts is what
// the client's system has acknowledged.
type outPace struct {
	pace  pace
	since time.Time // the last look, or the beginning of the write
	acked uint64    // at the last look
}

// outGuard looks after a client while bytes are spliced to it: a deadline there is the end, since bytes in between would be lost, and the
// goroutine that splices cannot move it.
type outGuard struct {
	c     *conn
	mu    sync.Mutex
	timer *time.Timer
	on    bool
	slow  bool // the client is too slow, its connection was made to fail
}

// start begins to look, until stop. It does nothing if there is no rule.
func (g *outGuard) start(c *conn) {
	m := c.srv.minPace
	if !c.paced {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.c, g.on, g.slow = c, true, false
	c.outPace.since = time.Now()
	if g.timer == nil {
		g.timer = time.AfterFunc(m.lookAfter(), g.look)
	} else {
		g.timer.Reset(m.lookAfter())
	}
}

// stop ends it.
func (g *outGuard) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.on {
		g.on = false
		g.timer.Stop()
	}
}

// tripped is true if the client was too slow.
func (g *outGuard) tripped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.on && g.slow
}

func (g *outGuard) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.on {
		return
	}
	d := g.c.stillTaking()
	if g.slow = d <= 0; g.slow {
		g.c.sock.SetWriteDeadline(longAgo)
		return
	}
	g.timer.Reset(d)
}

// stillTaking looks how the client takes its answer: the time until the next look, 0 or less if it is too slow.
func (c *conn) stillTaking() time.Duration {
	m, o := c.srv.minPace, &c.outPace
	now := time.Now()
	acked, queued := c.acknowledged()
	d := now.Sub(o.since)
	if !queued {
		d = 0 // it has taken all there was
	}
	o.pace.waited(m, d, int64(acked-o.acked))
	o.since, o.acked = now, acked
	return o.pace.left(m, m.lookAfter())
}
