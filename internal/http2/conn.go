package http2

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/socket"
)

// Preface is the beginning of a client's connection (RFC 9113 §3.4).
const Preface = http2.ClientPreface

// States of an orderly end.
const (
	// endNone: new streams are taken.
	endNone = iota
	// endAnnounced: the peer was told to open no more, and a sign that it heard is awaited (RFC 9113 §6.8).
	endAnnounced
	// endFinal: the last stream is fixed; the connection ends with it.
	endFinal
)

// Conn is a connection. Its methods may be called by any goroutine.
type Conn struct {
	nc     net.Conn
	cfg    Config
	client bool
	serve  func(*Stream) // of a server

	reader // of Run's goroutine

	mu     sync.Mutex
	framer *http2.Framer // writes control frames, with mu held
	err    error         // why no stream is taken any more
	dead   bool          // and the existing streams have failed, because of
	end    error
	ending int
	peer   peer
	owes   bool // Config.Changed must be called

	streams map[uint32]*Stream
	lastID  uint32     // the last stream that was opened
	zombies int        // streams that were reset while their handler runs
	running int        // handlers
	idle    *sync.Cond // running is 0
	closed  closedRing // streams that were, lately
	inWin   int32      // bytes that the peer may still send
	inUsed  int32      // bytes that were read, and whose window was not returned yet
	partID  uint32     // the stream, if it is known, of a DATA frame that is incomplete, and
	partLen int        // how much of its payload is here
	// blocked is for how long the peer could not send bodies, blockedAt since when it cannot.
	blocked   time.Duration
	blockedAt time.Time
	scores    scores

	output
	keeping
	taking taking
	clock
}

// peer is the other side's settings and announcements.
type peer struct {
	settled bool // its first SETTINGS came
	acked   bool // it has taken ours
	window  int32
	streams uint32
}

// NewServer makes the server's side of nc. It calls serve with each stream, each in its own goroutine. The stream ends
// when serve returns: an incomplete answer is broken off.
func NewServer(nc net.Conn, cfg Config, serve func(*Stream)) *Conn {
	c := newConn(nc, cfg)
	c.serve = serve
	return c
}

// NewClient makes the client's side of nc. Preface and settings are sent at once by Run.
func NewClient(nc net.Conn, cfg Config) *Conn {
	c := newConn(nc, cfg)
	c.client = true
	return c
}

func newConn(nc net.Conn, cfg Config) *Conn {
	cfg.setDefaults()
	c := &Conn{
		nc: nc, cfg: cfg,
		streams: map[uint32]*Stream{},
		peer:    peer{window: defaultWindow, streams: assumedStreams},
		inWin:   defaultWindow,
	}
	c.framer = http2.NewFramer((*frameSink)(c), nil)
	c.reader.init(c)
	c.output.init(c)
	c.keeping.init(&c.cfg)
	c.idle = sync.NewCond(&c.mu)
	return c
}

// Run reads until the connection ends and closes it. early are bytes that were already read from it; for a server they
// follow the preface if sawPreface. Run returns why the connection ended, after every stream has ended: a server's
// handlers have returned; a client's streams have failed, but must still be closed. Run must be called once, also to
// end what NewClient began.
func (c *Conn) Run(early []byte, sawPreface bool) error {
	c.start(early)
	err := c.read(sawPreface)
	c.finish(err)
	c.mu.Lock()
	for c.running > 0 {
		c.idle.Wait()
	}
	c.forgo()
	c.mu.Unlock()
	c.changed()
	return c.end
}

// start sends preface and settings.
func (c *Conn) start(early []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began = time.Now()
	c.now = c.began
	c.feed(early)
	if c.client {
		c.out = append(c.out, Preface...)
	}
	settings := []http2.Setting{
		{ID: http2.SettingInitialWindowSize, Val: uint32(c.cfg.StreamWindow)},
		{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.cfg.MaxHeader)},
	}
	if c.client {
		settings = append(settings, http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	} else {
		settings = append(settings, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: c.cfg.MaxStreams})
	}
	c.framer.WriteSettings(settings...)
	if more := int32(c.cfg.ConnWindow) - c.inWin; more > 0 {
		c.framer.WriteWindowUpdate(0, uint32(more))
		c.inWin += more
	}
	c.flushSoon()
	c.arm(c.began.Add(min(c.cfg.HeaderTimeout, tickEvery)))
}

// finish ends all that is left after reading has.
func (c *Conn) finish(err error) {
	var ce *ConnError
	if !errors.As(err, &ce) {
		ce = &ConnError{Code: NoError, Remote: true, Err: err}
		if err == io.EOF {
			ce.Err = nil
		}
	}
	c.mu.Lock()
	told := ce.Err == nil && !ce.Remote // the peer is still there to be told
	if told && !(c.ending == endFinal && ce.Code == NoError) {
		c.framer.WriteGoAway(c.lastPeerID(), ce.Code, []byte(ce.Detail))
	}
	c.die(ce)
	last := farewell
	if c.evicted != nil {
		last = farewell / 20 // its memory is wanted
	}
	c.nc.SetWriteDeadline(time.Now().Add(last))
	c.drainOutput(told)
	told = told && c.evicted == nil
	c.mu.Unlock()
	if told {
		c.linger()
	}
	c.nc.Close()
	c.mu.Lock()
	for c.writing {
		c.wrote.Wait()
	}
	c.out, c.spareOut = nil, nil
	c.mu.Unlock()
	c.reader.release()
}

// lastPeerID is the last stream in GOAWAY.
func (c *Conn) lastPeerID() uint32 {
	if c.client {
		return 0
	}
	return c.lastID
}

// die fails every stream, once; mu is held.
func (c *Conn) die(err *ConnError) {
	if c.dead {
		return
	}
	c.dead, c.end = true, err
	if c.err == nil {
		c.err = err
	}
	for _, s := range c.streams {
		c.drop(s, err)
	}
	c.wrote.Broadcast()
}

// Bounds of the end of a connection.
const (
	farewell    = time.Second // to write the rest, and again for the peer to close its side
	lingerBytes = 1 << 20
)

// linger reads what the peer has under way: a connection that is closed with unread bytes is reset, and then the peer
// can lose the last frames.
func (c *Conn) linger() {
	if h, ok := c.nc.(interface{ CloseWrite() error }); !ok || h.CloseWrite() != nil {
		return
	}
	c.mu.Lock()
	c.over = true
	c.nc.SetReadDeadline(time.Now().Add(farewell))
	c.mu.Unlock()
	buf := c.scratch()
	for left := lingerBytes; left > 0; {
		n, err := c.nc.Read(buf)
		if left -= n; err != nil {
			return
		}
	}
}

// changed tells the owner of a client.
func (c *Conn) changed() {
	if f := c.cfg.Changed; f != nil {
		f()
	}
}

// Err is why the connection takes no more streams, nil as long as it may: it ended, it is ending, or the peer said GOAWAY.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Rest is for how long there was no stream; 0 if there is one, and once the connection is ending.
func (c *Conn) Rest() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idleAt.IsZero() || len(c.streams) > 0 || c.ending != endNone || c.dead {
		return 0
	}
	return time.Since(c.idleAt)
}

// Available is how many more streams a client may open now: always 0 once Err is not nil, and 0 before the peer's
// settings have arrived.
func (c *Conn) Available() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.available()
}

func (c *Conn) available() int {
	if c.err != nil || !c.peer.settled || c.lastID >= maxStreamID {
		return 0
	}
	return max(0, int(min(c.peer.streams, 1<<30))-len(c.streams))
}

// errShutdown is the end that Shutdown asked for.
var errShutdown = &ConnError{Code: NoError, Unprocessed: true, Detail: "the connection is being closed"}

// Shutdown ends the connection gracefully, without waiting: the peer is told twice (RFC 9113 §6.8), the streams that it
// opened until it heard are served, and Run returns after the last. A client's connection ends with its last stream.
func (c *Conn) Shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending != endNone || c.dead {
		return
	}
	if c.err == nil {
		c.err = errShutdown
	}
	if c.client {
		c.ending = endFinal
		c.framer.WriteGoAway(0, NoError, nil)
		c.endIfDone()
	} else {
		c.ending = endAnnounced
		c.endBy = time.Now().Add(farewell)
		c.framer.WriteGoAway(maxStreamID, NoError, nil)
		c.framer.WritePing(false, shutdownPing)
		c.arm(c.endBy)
	}
	c.flushSoon()
}

// settleEnd fixes the last stream; mu is held.
func (c *Conn) settleEnd() {
	if c.ending != endAnnounced {
		return
	}
	c.ending = endFinal
	c.framer.WriteGoAway(c.lastID, NoError, nil)
	c.flushSoon()
	c.endIfDone()
}

// endIfDone ends reading after the last stream of a connection that is ending; mu is held.
func (c *Conn) endIfDone() {
	if c.ending == endFinal && len(c.streams) == 0 && !c.over {
		c.over = true
		c.nc.SetReadDeadline(socket.LongAgo)
	}
}

// Close ends the connection at once, with the streams.
func (c *Conn) Close() {
	c.mu.Lock()
	c.die(&ConnError{Code: NoError, Detail: "the connection was closed", Err: net.ErrClosed})
	c.over = true
	c.mu.Unlock()
	c.nc.Close()
}
