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

// buffers are the memory for data that the proxy cannot pass on yet. They do not include the memory that every
// connection and every exchange needs anyway. All of it comes from one budget. When the budget is used up, this file
// decides which connections end to make room. docs/limits.md has the sums.
//
// Every user draws the bytes it keeps and gives them back later. A connection draws for its head and its handshake (see
// holding). HTTP/2 draws for streams and output (see memory). An exchange draws for a body that it could send again, a
// connection to an endpoint for answers' heads, a mirror for copies.
type buffers struct {
	*budget.Budget
	ended  atomic.Uint64 // connections closed to make room
	ending atomic.Int64  // bytes of those connections that are not given back yet

	waiting atomic.Int64 // HTTP/2 connections that wait for room and hold the data they have read

	mu   sync.Mutex // held while making room
	told loglimit.Limiter
}

// Bounds of making room.
const (
	// roomPart is the fraction of the budget (1/16) that is freed at once, so that not every newcomer has to make room.
	roomPart = 16
	// roomPause is the first pause of a connection that waits for room. roomPauseMost is the longest.
	roomPause, roomPauseMost = time.Millisecond, 64 * time.Millisecond
	// roomWait is how long an exchange waits for room.
	roomWait = time.Second
	// roomWaiting is how many HTTP/2 connections may wait for room at the same time.
	roomWaiting = 64
	// headAge is the age at which an incomplete head may lose its connection's place to another client.
	headAge = time.Second
)

// holding is what a client's connection has drawn, and whether the connection may be closed for it. An ordinary request
// only checks that bytes is 0.
type holding struct {
	mu    sync.Mutex
	bytes int64 // over HTTP/1.1 and in handshakes, only the connection's goroutine writes it
	// head is when the incomplete head or handshake began; 0: there is none.
	head int64
	// streams is when the connection first drew for HTTP/2; 0: it has drawn nothing.
	streams int64
	ended   bool // the connection was told to end, to make room
}

var (
	failHeadRoom = &exchange.Failure{Status: 503, Reason: telemetry.Overload, Detail: "the proxy has no memory left for the request's head", Later: true}
)

// headBegun notes that a head, or a handshake, is still incomplete.
func (c *conn) headBegun(now time.Time) {
	h := &c.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.head == 0 {
		h.head = clock.Instant(now)
	}
}

// headCame notes that the head or handshake is complete. It returns false if the connection was told to end.
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

// hold notes that c has drawn n more bytes; a negative n gives bytes back.
func (c *conn) hold(n int64) {
	h := &c.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bytes += n; h.ended {
		c.srv.buffers.ending.Add(n)
	}
}

// claim draws n bytes for an incomplete head. When the budget is used up, connections with incomplete heads are closed
// to make room; c may be one of them. The larger and the older a head is, the sooner its connection ends. claim waits
// for room until the given time and reads nothing from the client in that time.
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

// force counts n bytes that c holds for a request in flight.
func (c *conn) force(n int64) {
	c.srv.buffers.Force(n)
	c.hold(n)
}

// giveBack gives back all bytes that c has drawn over HTTP/1.1.
func (c *conn) giveBack() {
	if n := c.holding.bytes; n != 0 {
		c.give(n)
	}
}

func (c *conn) give(n int64) {
	c.hold(-n)
	c.srv.buffers.Give(n)
}

// growHead enlarges the read buffer for an incomplete head. It returns false if there is no memory for that.
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

// headDone is called when a head is complete that did not arrive in one piece. It returns false if the connection was
// told to end before.
func (c *conn) headDone() bool {
	if !c.headCame() {
		return false
	}
	if n := grown(c.w.rbuf); n > 0 {
		c.force(int64(n)) // the head is about to be written to the endpoint
	}
	return true
}

// dropHead frees a head that is not served.
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

// headPools hold buffers of twice, four and eight times readSize.
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

// A handshake draws for every byte from the client beyond helloFree. crypto/tls keeps these bytes in buffers that
// double.
const helloFree, helloStep = 8 << 10, 16 << 10

// hello counts n more bytes of a handshake. It returns false if there is no memory for them.
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

// relieve closes connections to make room for n bytes. It returns false if there is no connection to close, and none is
// about to end. For a head, it closes connections with incomplete heads. For an exchange, it also closes HTTP/2
// connections if there is no incomplete head.
func (s *Server) relieve(u budget.Use, n int64) bool {
	b := &s.buffers
	if !b.mu.TryLock() {
		return true // another goroutine makes room
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

// ranked are the connections that have a score and were not told to end yet, highest score first.
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

// endConns ends the connections with the highest scores until they hold want bytes together. It returns their number.
// Connections without a score stay.
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

// endForRoom makes the connection end; another goroutine calls it. An incomplete request gets a 503, an incomplete
// handshake is aborted, HTTP/2 gets ENHANCE_YOUR_CALM. It returns the number of bytes that will be given back, and
// false if it came too late.
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

// endHeads ends up to most connections whose head has been incomplete for headAge, oldest first. Other clients need
// their places.
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

// await waits for room, unless many connections wait already: each of them holds the data it has read.
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

// Draw waits only for bytes without which an exchange cannot continue.
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

// memory returns the figures for the metrics.
func (b *buffers) memory() telemetry.Memory {
	m := telemetry.Memory{Drawn: b.Drawn(), Limit: b.Limit(), Ended: b.ended.Load()}
	for u := range budget.Uses {
		m.Refused = append(m.Refused, telemetry.LimitCount{Limit: u.String(), Count: b.Refused(u)})
	}
	return m
}
