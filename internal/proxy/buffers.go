package proxy

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/budget"
	"github.com/weirmesh/weir/internal/clock"
	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

// buffers are the memory in which the proxy keeps what it cannot pass on yet, beyond what each connection and each exchange has anyway: the
// one budget that all of it is drawn from, and the law by which room is made when there is none left. See docs/limits.md, which has the sums.
//
// Whoever keeps bytes draws them, and gives them back: a connection for its head and handshake (holding), HTTP/2 for streams and output (memory), an exchange
// for the body it could send again, connections to endpoints for heads of answers, mirrors for copies.
type buffers struct {
	*budget.Budget
	ended  atomic.Uint64 // connections that were ended to make room
	ending atomic.Int64  // bytes of those that have not given them back yet

	waiting atomic.Int64 // connections of HTTP/2 that wait for room, with what they have read

	mu   sync.Mutex // held by who makes room
	told loglimit.Limiter
}

// Bounds of making room.
const (
	// roomPart of the budget is made at once, so that not each newcomer has to look for room.
	roomPart = 16
	// roomPause is how long one who waits for room sleeps at first, and at most.
	roomPause, roomPauseMost = time.Millisecond, 64 * time.Millisecond
	// roomWait is how long an exchange waits for room.
	roomWait = time.Second
	// roomWaiting is how many connections of HTTP/2 wait at the same time.
	roomWaiting = 64
	// headAge is how old an unfinished head must be to give its connection's place to another client.
	headAge = time.Second
)

// holding is what a client's connection has drawn, and whether it may be ended for that. An ordinary request comes near it only to see that bytes is 0.
type holding struct {
	mu    sync.Mutex
	bytes int64 // over HTTP/1.1 and in handshakes written by the connection's goroutine alone
	// head is the instant since when it has an unfinished head, or handshake; 0: it has none.
	head int64
	// streams is the instant since when it has drawn for HTTP/2; 0: it has not.
	streams int64
	ended   bool // it was told to end, to make room
}

var (
	failHeadRoom = &exchange.Failure{Status: 503, Reason: telemetry.Overload, Detail: "the proxy has no memory left for the request's head", Later: true}
)

// headBegun notes that a head, or a handshake, is not complete with what has come.
func (c *conn) headBegun(now time.Time) {
	h := &c.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.head == 0 {
		h.head = clock.Instant(now)
	}
}

// headCame notes that it is; false if the connection was told to end.
func (c *conn) headCame() bool {
	h := &c.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	h.head = 0
	return !h.ended
}

// toldToEnd is true once others need the connection's memory.
func (c *conn) toldToEnd() bool {
	h := &c.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// hold notes that c has drawn n bytes more, or given back -n.
func (c *conn) hold(n int64) {
	h := &c.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bytes += n; h.ended {
		c.srv.buffers.ending.Add(n)
	}
}

// claim draws n bytes for a head that is not complete. When none are left, those who hold an unfinished head make room: the larger it is and the longer it
// has been unfinished the sooner; c may be one of them. It waits for that until the time given, and reads nothing from the client meanwhile.
func (c *conn) claim(n int64, until time.Time) bool {
	if c.srv.buffers.Draw(budget.Head, n) || c.await(budget.Head, n, until) {
		c.hold(n)
		return true
	}
	return false
}

// await waits for room for n bytes that c needs.
func (c *conn) await(u budget.Use, n int64, until time.Time) bool {
	b := &c.srv.buffers
	for pause := roomPause; ; pause = min(2*pause, roomPauseMost) {
		if c.toldToEnd() || !c.srv.relieve(u, n) || !time.Now().Before(until) {
			b.Refuse(u)
			return false
		}
		time.Sleep(pause/2 + rand.N(pause/2))
		if b.Draw(u, n) {
			return true
		}
	}
}

// force counts n bytes that c holds for a request under way.
func (c *conn) force(n int64) {
	c.srv.buffers.Force(n)
	c.hold(n)
}

// giveBack gives back all that c has drawn, over HTTP/1.1.
func (c *conn) giveBack() {
	if n := c.holding.bytes; n != 0 {
		c.give(n)
	}
}

func (c *conn) give(n int64) {
	c.hold(-n)
	c.srv.buffers.Give(n)
}

// growHead makes the read buffer able to take more of an unfinished head; false if there is no memory for it.
func (c *conn) growHead() bool {
	w := c.w
	if !c.claim(int64(2*len(w.rbuf)-grown(w.rbuf)), c.readBy) {
		return false
	}
	larger := headBuffer(2 * len(w.rbuf))
	copy(larger, w.rbuf[:w.n])
	freeHead(w.rbuf)
	w.rbuf = larger
	return true
}

// headDone is called when a head that did not come whole is complete. False if the connection was told to end meanwhile.
func (c *conn) headDone() bool {
	if !c.headCame() {
		return false
	}
	if n := grown(c.w.rbuf); n > 0 {
		c.force(int64(n)) // it is about to be written to the endpoint
	}
	return true
}

// dropHead lets go of a head that is not served.
func (c *conn) dropHead() {
	w := c.w
	if grown(w.rbuf) > 0 {
		small := headBuffer(readSize)
		w.n = copy(small, w.rbuf[w.r:w.n])
		w.r = 0
		freeHead(w.rbuf)
		w.rbuf = small
	}
	c.giveBack()
}

// grown is how much of the budget a read buffer takes.
func grown(rbuf []byte) int {
	if len(rbuf) <= readSize {
		return 0
	}
	return len(rbuf)
}

// headPools have buffers of twice, four and eight times readSize.
var headPools [3]sync.Pool

func headPool(size int) *sync.Pool {
	for i := range headPools {
		if size == readSize<<(i+1) {
			return &headPools[i]
		}
	}
	return nil
}

func headBuffer(size int) []byte {
	if p := headPool(size); p != nil {
		if b, ok := p.Get().(*[]byte); ok {
			return *b
		}
	}
	return make([]byte, size)
}

// freeHead takes a buffer that nothing refers to any more.
func freeHead(b []byte) {
	if p := headPool(len(b)); p != nil {
		p.Put(&b)
	}
}

// A handshake draws for what the client sends beyond helloFree; the library keeps it in buffers that double.
const helloFree, helloStep = 8 << 10, 16 << 10

// hello is told of n bytes of a handshake; false if there is no memory for it.
func (h *handshakeConn) hello(n int) bool {
	h.came += n
	for h.came > helloFree+h.drawn {
		if !h.c.claim(2*helloStep, h.until) {
			return false
		}
		h.drawn += helloStep
	}
	return true
}

// relieve ends connections to make room for n bytes, or has them ended already; false if there are none to end. For heads others' unfinished heads make
// room, for exchanges connections of HTTP/2 too, if there is no unfinished head.
func (s *Server) relieve(u budget.Use, n int64) bool {
	b := &s.buffers
	if !b.mu.TryLock() {
		return true // somebody does
	}
	defer b.mu.Unlock()
	want := max(n, b.Limit()/roomPart)
	if b.ending.Load() >= want {
		return true
	}
	now := time.Now()
	at := clock.Instant(now)
	ended := s.endConns(want, func(h *holding) float64 {
		if h.head == 0 {
			return 0
		}
		return float64(h.bytes) * float64(at-h.head+1)
	})
	if ended == 0 && u == budget.Exchange {
		ended = s.endConns(want, func(h *holding) float64 {
			if h.streams == 0 || h.head != 0 {
				return 0
			}
			return float64(h.bytes) * float64(at-h.streams+1)
		})
	}
	b.told.Log(s.log, slog.LevelWarn, "", "memory limit for buffered data reached: closing connections with unfinished heads or much unread data, dropping copies; "+
		"raise --max-buffered or the memory limit if the clients are legitimate", "limit", b.Limit(), "drawn", b.Drawn(),
		"connections_ended", b.ended.Load())
	return ended > 0 || b.ending.Load() > 0
}

// ranked are the connections that have a score and are not ended yet, the highest first.
func (s *Server) ranked(score func(*holding) float64) []*conn {
	type scored struct {
		c     *conn
		score float64
	}
	var all []scored
	for b := range s.state.Load().ports {
		b.each(func(c *conn) {
			h := &c.holding
			h.mu.Lock()
			defer h.mu.Unlock()
			if v := score(h); v > 0 && !h.ended {
				all = append(all, scored{c, v})
			}
		})
	}
	slices.SortFunc(all, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	conns := make([]*conn, len(all))
	for i, v := range all {
		conns[i] = v.c
	}
	return conns
}

// endConns ends the connections that score highest, until they hold want bytes together; it tells how many. Those without a score stay.
func (s *Server) endConns(want int64, score func(*holding) float64) (n int) {
	for _, c := range s.ranked(score) {
		if want <= 0 {
			break
		}
		if held, ok := c.endForRoom(); ok {
			want -= max(held, 1)
			n++
		}
	}
	return n
}

// endForRoom has the connection end, from another goroutine: an unfinished request is answered 503, an unfinished handshake is broken off, HTTP/2 is told
// to calm down. It tells how many bytes will be given back; false if it was too late.
func (c *conn) endForRoom() (held int64, ok bool) {
	h := &c.holding
	h.mu.Lock()
	if held = h.bytes; h.ended || h.head == 0 && h.streams == 0 {
		h.mu.Unlock()
		return 0, false
	}
	h.ended = true
	c.srv.buffers.ending.Add(held)
	h.mu.Unlock()
	c.srv.buffers.ended.Add(1)
	if h2 := c.h2.Load(); h2 != nil {
		h2.Evict("the memory for what is not read is used up")
	} else {
		c.sock.SetReadDeadline(socket.LongAgo)
	}
	return held, true
}

// endHeads ends up to most connections whose head has been unfinished for headAge, the oldest first: their places are wanted.
func (s *Server) endHeads(most int) {
	if most <= 0 {
		return
	}
	s.buffers.mu.Lock()
	defer s.buffers.mu.Unlock()
	latest := clock.Instant(time.Now().Add(-headAge))
	oldest := s.ranked(func(h *holding) float64 {
		if h.head == 0 || h.head > latest {
			return 0
		}
		return float64(latest - h.head + 1)
	})
	for _, c := range oldest[:min(most, len(oldest))] {
		c.endForRoom()
	}
}

// clientMemory is what a client's HTTP/2 connection draws from; it implements http2.Memory.
type clientMemory struct{ c *conn }

func (m clientMemory) Draw(n int, wait bool) bool {
	c := m.c
	b := &c.srv.buffers
	if !b.Draw(budget.Exchange, int64(n)) && !(wait && m.await(int64(n))) {
		return false
	}
	c.hold(int64(n))
	h := &c.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams == 0 {
		h.streams = clock.Instant(time.Now())
	}
	return true
}

// await waits for room, unless many do: they hold what they have read.
func (m clientMemory) await(n int64) bool {
	b := &m.c.srv.buffers
	defer b.waiting.Add(-1)
	if b.waiting.Add(1) > roomWaiting {
		b.Refuse(budget.Exchange)
		m.c.srv.relieve(budget.Exchange, n)
		return false
	}
	return m.c.await(budget.Exchange, n, time.Now().Add(roomWait))
}

func (m clientMemory) Give(n int) {
	m.c.give(int64(n))
	h := &m.c.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bytes == 0 {
		h.streams = 0
	}
}

func (m clientMemory) Unfinished(is bool) {
	if is {
		m.c.headBegun(time.Now())
	} else {
		m.c.headCame()
	}
}

// endpointMemory is what connections to endpoints draw from, for answers; it implements http2.Memory.
type endpointMemory struct {
	srv *Server
	use budget.Use
}

// Draw waits only for what an exchange cannot go on without.
func (m endpointMemory) Draw(n int, wait bool) bool {
	b := &m.srv.buffers
	if b.Draw(m.use, int64(n)) {
		return true
	}
	until := time.Now().Add(roomWait)
	for pause := roomPause; wait && m.use == budget.Exchange && m.srv.relieve(m.use, int64(n)) && time.Now().Before(until); pause = min(2*pause, roomPauseMost) {
		time.Sleep(pause/2 + rand.N(pause/2))
		if b.Draw(m.use, int64(n)) {
			return true
		}
	}
	b.Refuse(m.use)
	return false
}

func (m endpointMemory) Give(n int)      { m.srv.buffers.Give(int64(n)) }
func (m endpointMemory) Unfinished(bool) {}

var _, _ http2.Memory = clientMemory{}, endpointMemory{}

// memory is for the metrics.
func (b *buffers) memory() telemetry.Memory {
	m := telemetry.Memory{Drawn: b.Drawn(), Limit: b.Limit(), Ended: b.ended.Load()}
	for u := range budget.Uses {
		m.Refused = append(m.Refused, telemetry.LimitCount{Limit: u.String(), Count: b.Refused(u)})
	}
	return m
}
