package proxy

import (
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/pace"
	"github.com/weirmesh/weir/internal/socket"
)

// outPace watches how a client takes an answer. The system buffers megabytes of it, and tells of room in large steps only, so what counts is what
// the client's system has acknowledged.
type outPace struct {
	pace  pace.Pace
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
		g.timer = time.AfterFunc(m.LookAfter(), g.look)
	} else {
		g.timer.Reset(m.LookAfter())
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
		g.c.sock.SetWriteDeadline(socket.LongAgo)
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
	o.pace.Waited(m, d, int64(acked-o.acked))
	o.since, o.acked = now, acked
	return o.pace.Left(m, m.LookAfter())
}

// acknowledged is how many bytes the client's system has acknowledged since the connection began, and whether others wait for that.
func (c *conn) acknowledged() (n uint64, queued bool) { return socket.Acknowledged(c.socket) }
