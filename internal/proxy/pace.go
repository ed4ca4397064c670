package proxy

import (
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/pace"
	"github.com/weirmesh/weir/internal/socket"
)

// outPace watches how fast a client reads an answer. The system buffers megabytes of the answer and reports free space
// only in large steps. Therefore only bytes that the client's system has acknowledged count.
type outPace struct {
	pace  pace.Pace
	since time.Time // the last check, or the beginning of the write
	acked uint64    // at the last check
}

// outGuard watches a client while bytes are spliced to it. A write deadline there would be final, because bytes in
// between would be lost. The splicing goroutine cannot move the deadline either.
type outGuard struct {
	c     *conn
	mu    sync.Mutex
	timer *time.Timer
	on    bool
	slow  bool // the client is too slow; the guard made its connection fail
}

// start begins to watch, until stop. It does nothing if there is no minimum rate.
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

// stop ends the watch.
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

// stillTaking checks how fast the client reads its answer. It returns the time until the next check, and 0 or less if
// the client is too slow.
func (c *conn) stillTaking() time.Duration {
	m, o := c.srv.minPace, &c.outPace
	now := time.Now()
	acked, queued := c.acknowledged()
	d := now.Sub(o.since)
	if !queued {
		d = 0 // the client has read everything there was
	}
	o.pace.Waited(m, d, int64(acked-o.acked))
	o.since, o.acked = now, acked
	return o.pace.Left(m, m.LookAfter())
}

// acknowledged is how many bytes the client's system has acknowledged since the connection began, and whether other
// bytes still wait for that.
func (c *conn) acknowledged() (n uint64, queued bool) { return socket.Acknowledged(c.socket) }
