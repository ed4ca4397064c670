package http2

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/socket"
)

const (
	// readBuffer is what is read at once: many small frames, or two of the largest.
	readBuffer     = 2 * (maxFrame + frameHeader)
	defaultWindow  = 1<<16 - 1 // RFC 9113 §6.9.2
	maxWindow      = 1<<31 - 1
	maxStreamID    = 1<<31 - 1
	assumedStreams = 100 // that a server takes before it says how many
	maxInterim     = 32  // interim answers of one stream
)

var (
	alivePing    = [8]byte{'a', 'l', 'i', 'v', 'e'}
	shutdownPing = [8]byte{'s', 'h', 'u', 't', 'd', 'o', 'w', 'n'}
)

var bufferPool = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// reader is what the reading goroutine alone uses.
type reader struct {
	buf      *[readBuffer]byte // nil while there is nothing to keep in it and none is awaited
	r, w     int               // buf[r:w] is to be worked on
	early    []byte            // comes before what is read
	one      [1]byte
	rest     bool // the connection is idle: a buffer is taken when there is something to read
	first    bool // no frame has come yet
	raw      syscall.RawConn
	step     func(fd uintptr) bool // readStep; nil where it cannot be used
	stepErr  error
	dec      decoder
	head     Head
	tail     []http1.Field
	opens    []*Stream // of this batch, to be served at its end
	progress bool      // a frame was complete since the last look
	header   headers
}

// headers is a header block that is being gathered.
type headers struct {
	open          bool // CONTINUATION follows
	id            uint32
	end           bool // END_STREAM
	self          bool // the stream is to depend on itself
	frames, empty int
	block         []byte
}

func (r *reader) init(c *Conn) {
	r.first = true
	r.dec.init(&c.cfg)
	if tcp, ok := c.nc.(*net.TCPConn); ok && socket.CanPoll {
		if raw, err := tcp.SyscallConn(); err == nil {
			r.raw, r.step = raw, c.readStep
		}
	}
}

// feed has p worked on before anything is read.
func (r *reader) feed(p []byte) { r.early = p }

func (r *reader) release() {
	if r.buf != nil {
		bufferPool.Put(r.buf)
		r.buf = nil
	}
	r.r, r.w = 0, 0
}

// scratch is a buffer of any content.
func (r *reader) scratch() []byte {
	if r.buf == nil {
		r.buf = bufferPool.Get().(*[readBuffer]byte)
	}
	return r.buf[:]
}

// goIdle gives memory away; mu is held.
func (c *Conn) goIdle() {
	if c.r == c.w && len(c.early) == 0 {
		c.release()
		c.rest = true
	}
	if !c.writing && len(c.out) == 0 {
		c.out, c.spare = nil, nil
	}
}

// frameSource gives the framer what is in the buffer.
type frameSource Conn

func (r *frameSource) Read(p []byte) (int, error) {
	n := copy(p, r.buf[r.r:r.w])
	r.reader.r += n
	return n, nil
}

var errOver = &ConnError{Code: NoError, Detail: "the connection was ended"}

// read is the reading loop.
func (c *Conn) read(sawPreface bool) error {
	if !c.client && !sawPreface {
		if err := c.readPreface(); err != nil {
			return err
		}
	}
	for {
		if err := c.work(); err != nil {
			return err
		}
		if len(c.early) == 0 && c.step != nil {
			return c.poll()
		}
		if err := c.fillBuffer(); err != nil {
			return err
		}
	}
}

// work works on what was read.
func (c *Conn) work() error {
	if err := c.frames(); err != nil {
		return c.judge(err)
	}
	return c.endBatch()
}

// poll is the reading loop of a socket without TLS.
func (c *Conn) poll() error {
	for {
		err := c.raw.Read(c.step)
		if err == nil {
			return c.stepErr
		}
		if err := c.interrupted(err); err != nil {
			return err
		}
	}
}

// readStep is called by the poller when there may be something to read, and works on it right away: bytes that come meanwhile wake the poller
// again, so that the attempt to read that would find nothing can be left out. When the end of the connection came together with the last frames,
// nothing wakes the poller again: hence the next tick, after which reading is tried.
func (c *Conn) readStep(fd uintptr) bool {
	for {
		c.makeRoom()
		b := c.scratch()[c.w:]
		n, err := socket.Read(fd, b)
		switch {
		case n > 0:
			c.w += n
			c.rest = false
			if c.stepErr = c.work(); c.stepErr != nil {
				return true
			}
			if n == len(b) {
				continue
			}
			return false
		case err == syscall.EAGAIN:
			if c.rest && c.r == c.w {
				c.release()
			}
			return false
		case err == nil:
			err = io.EOF
		}
		c.stepErr = c.interrupted(err)
		return true
	}
}

// judge makes an error of the connection of what the framer says.
func (c *Conn) judge(err error) error {
	var code http2.ConnectionError
	switch {
	case errors.As(err, &code):
		return &ConnError{Code: http2.ErrCode(code), Detail: "a frame is malformed or out of order"}
	case errors.Is(err, http2.ErrFrameTooLarge):
		return &ConnError{Code: FrameSizeError, Detail: "a frame is larger than was allowed"}
	}
	return err
}

// readPreface takes the client's preface (RFC 9113 §3.4).
func (c *Conn) readPreface() error {
	for c.w-c.r < len(Preface) {
		if have := c.buf; have != nil {
			if n := c.w - c.r; string(have[c.r:c.w]) != Preface[:n] {
				break
			}
		}
		c.partial(c.w > c.r, false)
		if err := c.fillBuffer(); err != nil {
			return err
		}
	}
	if c.w-c.r < len(Preface) || string(c.buf[c.r:c.r+len(Preface)]) != Preface {
		return &ConnError{Code: ProtocolError, Detail: "the preface is not that of HTTP/2"}
	}
	c.r += len(Preface)
	return nil
}

// fillBuffer reads once.
func (c *Conn) fillBuffer() error {
	for {
		if c.buf == nil && !c.rest {
			c.scratch()
		}
		c.makeRoom()
		var n int
		var err error
		switch {
		case len(c.early) > 0:
			n = copy(c.scratch()[c.w:], c.early)
			c.early = c.early[n:]
		case c.buf == nil:
			if n, err = c.nc.Read(c.one[:]); n > 0 {
				// The rest is read with the next call, which does not wait in a TLS connection that holds it.
				c.scratch()[0] = c.one[0]
				c.rest = false
			}
		default:
			n, err = c.nc.Read(c.buf[c.w:])
		}
		if n > 0 {
			c.w += n
			return nil
		}
		if err == nil {
			err = io.ErrNoProgress
		}
		if err := c.interrupted(err); err != nil {
			return err
		}
	}
}

// makeRoom makes the buffer able to take the rest of a frame.
func (c *Conn) makeRoom() {
	if c.r == c.w {
		c.r, c.w = 0, 0
	} else if readBuffer-c.r < maxFrame+frameHeader {
		c.w = copy(c.buf[:], c.buf[c.r:c.w])
		c.r = 0
	}
}

// interrupted judges a read that failed: nil if it was only time to look after the connection, and all is well.
func (c *Conn) interrupted(err error) error {
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		return c.tick()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over && !c.dead {
		return errOver
	}
	return err
}

// endBatch is called when all that was read is worked on: now the streams that it opened begin, if they were not reset by then.
func (c *Conn) endBatch() error {
	partial := c.w > c.r
	data := partial && c.w-c.r > 3 && http2.FrameType(c.buf[c.r+3]) == http2.FrameData
	c.partial(partial, data)
	c.mu.Lock()
	c.active = true
	if c.partID = 0; data && c.w-c.r > frameHeader {
		c.partID, c.partLen = binary.BigEndian.Uint32(c.buf[c.r+5:])&maxStreamID, c.w-c.r-frameHeader
	}
	if len(c.opens) > 0 {
		now := time.Now()
		c.now = now
		for _, s := range c.opens {
			if s.removed {
				continue
			}
			c.opened(s, now)
			s.running = true
			c.running++
		}
	}
	if c.step != nil && len(c.streams) == 0 {
		c.arm(time.Now().Add(tickEvery))
	}
	if c.overrun() {
		c.mu.Unlock()
		return errOutput
	}
	c.flushSoon()
	owes := c.owes
	c.owes = false
	c.mu.Unlock()
	if owes {
		c.changed()
	}
	for i, s := range c.opens {
		c.opens[i] = nil
		switch {
		case !s.running:
			s.giveBackAlone()
			s.recycle()
		case c.cfg.Workers != nil:
			c.cfg.Workers.run(s)
		default:
			go c.serveStream(s)
		}
	}
	c.opens = c.opens[:0]
	return nil
}

// giveBackAlone is giveBack of a stream that nobody served.
func (s *Stream) giveBackAlone() {
	s.c.mu.Lock()
	s.giveBack()
	s.c.mu.Unlock()
}

// partial notes whether the last frame, maybe one of data, is incomplete.
func (c *Conn) partial(is, data bool) {
	if !is {
		if !c.partAt.IsZero() {
			c.mu.Lock()
			c.partAt = time.Time{}
			c.mu.Unlock()
		}
		return
	}
	if !c.partAt.IsZero() && !c.progress {
		return
	}
	c.progress = false
	c.mu.Lock()
	c.partAt, c.partData = time.Now(), data
	c.arm(c.partAt.Add(tickEvery))
	c.mu.Unlock()
}

// frames works on what is complete in the buffer.
func (c *Conn) frames() error {
	for c.w-c.r >= frameHeader {
		b := c.buf[c.r:c.w]
		n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if n <= maxFrame && len(b) < frameHeader+n {
			return nil
		}
		fh, err := c.framer.ReadFrameHeader()
		if err != nil {
			return err
		}
		payload := c.buf[c.r : c.r+n]
		c.r += n
		c.progress = true
		if err := c.frame(&fh, payload); err != nil {
			return err
		}
	}
	return nil
}

func protocol(detail string) error { return &ConnError{Code: ProtocolError, Detail: detail} }

func frameSize(detail string) error { return &ConnError{Code: FrameSizeError, Detail: detail} }

// frame works on one frame.
func (c *Conn) frame(fh *http2.FrameHeader, p []byte) error {
	if c.first {
		if fh.Type != http2.FrameSettings || fh.Flags.Has(http2.FlagSettingsAck) {
			return protocol("the first frame is not SETTINGS")
		}
		c.first = false
	}
	switch fh.Type {
	case http2.FrameHeaders:
		return c.onHeaders(fh, p)
	case http2.FrameContinuation:
		return c.onContinuation(fh, p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch fh.Type {
	case http2.FrameData:
		return c.onData(fh, p)
	case http2.FrameWindowUpdate:
		return c.onWindowUpdate(fh, p)
	case http2.FrameRSTStream:
		return c.onReset(fh, p)
	case http2.FramePing:
		return c.onPing(fh, p)
	case http2.FrameSettings:
		return c.onSettings(fh, p)
	case http2.FrameGoAway:
		return c.onGoAway(fh, p)
	case http2.FramePriority:
		return c.onPriority(fh, p)
	case http2.FramePushPromise:
		return protocol("PUSH_PROMISE, which was not allowed")
	}
	return c.scores.useless(1) // RFC 9113 §4.1: ignored
}

// unpad takes the padding off (RFC 9113 §6.1, §6.2).
func unpad(fh *http2.FrameHeader, p []byte) ([]byte, error) {
	if !fh.Flags.Has(http2.FlagDataPadded) { // the same bit in HEADERS
		return p, nil
	}
	if len(p) == 0 {
		return nil, frameSize("a padded frame is empty")
	}
	n := int(p[0])
	if p = p[1:]; n > len(p) {
		return nil, protocol("the padding is longer than its frame")
	}
	return p[:len(p)-n], nil
}

func (c *Conn) onHeaders(fh *http2.FrameHeader, p []byte) error {
	h := &c.header
	if fh.StreamID == 0 {
		return protocol("HEADERS without a stream")
	}
	p, err := unpad(fh, p)
	if err != nil {
		return err
	}
	h.id, h.end, h.self = fh.StreamID, fh.Flags.Has(http2.FlagHeadersEndStream), false
	if fh.Flags.Has(http2.FlagHeadersPriority) {
		if len(p) < 5 {
			return frameSize("HEADERS is too short for its priority")
		}
		h.self = binary.BigEndian.Uint32(p)&maxStreamID == h.id
		p = p[5:]
	}
	if fh.Flags.Has(http2.FlagHeadersEndHeaders) {
		return c.onBlock(p)
	}
	h.open, h.frames, h.empty = true, 0, 0
	h.block = append(h.block[:0], p...)
	c.mu.Lock()
	c.blockAt = time.Now()
	c.arm(c.blockAt.Add(c.cfg.HeaderTimeout))
	c.mu.Unlock()
	return nil
}

func (c *Conn) onContinuation(fh *http2.FrameHeader, p []byte) error {
	h := &c.header
	h.frames++
	if len(p) == 0 {
		h.empty++
	}
	if h.frames > maxContinuations || h.empty > maxEmptyContinuations {
		return &ConnError{Code: EnhanceYourCalm, Flood: true, Detail: "a header block has too many CONTINUATION frames"}
	}
	if len(h.block)+len(p) > c.cfg.MaxHeader {
		return &ConnError{Code: EnhanceYourCalm, Flood: true, Detail: "a header block is too large"}
	}
	h.block = append(h.block, p...)
	if !fh.Flags.Has(http2.FlagContinuationEndHeaders) {
		return nil
	}
	h.open = false
	c.mu.Lock()
	c.blockAt = time.Time{}
	c.mu.Unlock()
	err := c.onBlock(h.block)
	if cap(h.block) > maxFrame {
		h.block = nil
	}
	return err
}

// onBlock works on a complete header block.
func (c *Conn) onBlock(block []byte) error {
	h := &c.header
	if len(block) > c.cfg.MaxHeader {
		return &ConnError{Code: EnhanceYourCalm, Flood: true, Detail: "a header block is too large"}
	}
	c.mu.Lock()
	kind, err := c.blockKind(h)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	c.head = Head{Fields: c.head.Fields[:0]}
	fields := c.head.Fields
	if kind == blockTrailers {
		fields = c.tail[:0]
	}
	if err := c.dec.read(block, kind, &c.head, fields); err != nil {
		if errors.Is(err, hpack.ErrStringLength) {
			return &ConnError{Code: EnhanceYourCalm, Flood: true, Detail: "a header block is too large"}
		}
		return &ConnError{Code: CompressionError, Detail: "a header block cannot be decoded"}
	}
	if kind == blockTrailers {
		c.tail = c.dec.fields
	} else {
		c.head.Fields = c.dec.fields
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case kind == blockRequest:
		return c.onRequest(h)
	case kind == blockDropped:
		return c.onDropped(h)
	}
	s := c.streams[h.id]
	if s == nil {
		return nil // ended meanwhile
	}
	if h.self {
		return c.fault(s, ProtocolError, "the stream depends on itself")
	}
	if c.dec.bad != "" || c.dec.tooLarge {
		detail := c.dec.bad
		if c.dec.tooLarge {
			detail = "the fields are too large"
		}
		return c.fault(s, ProtocolError, detail)
	}
	if kind == blockTrailers {
		return c.onTrailers(s, h)
	}
	return c.onResponse(s, h)
}

// blockKind says what a block on a stream is; mu is held.
func (c *Conn) blockKind(h *headers) (blockKind, error) {
	if s := c.streams[h.id]; s != nil {
		switch {
		case s.remoteEnd:
			return blockDropped, nil
		case c.client && !s.headCame:
			return blockResponse, nil
		}
		return blockTrailers, nil
	}
	if known, _ := c.closed.find(h.id); known {
		return blockDropped, nil
	}
	if c.client || h.id%2 == 0 {
		return 0, protocol("HEADERS on a stream that cannot be")
	}
	if h.id <= c.lastID {
		if c.ending == endFinal {
			return blockDropped, nil
		}
		return 0, protocol("a stream was opened out of order (RFC 9113 §5.1.1)")
	}
	if c.ending == endFinal {
		return blockDropped, nil // RFC 9113 §6.8
	}
	return blockRequest, nil
}

// onDropped is called for a block on a stream that takes none; mu is held.
func (c *Conn) onDropped(h *headers) error {
	if s := c.streams[h.id]; s != nil {
		return c.fault(s, StreamClosed, "HEADERS behind the end of the stream")
	}
	if known, ours := c.closed.find(h.id); known && !ours {
		return &ConnError{Code: StreamClosed, Detail: "HEADERS on a stream that has ended"}
	}
	return c.scores.useless(1)
}

// onRequest opens a stream; mu is held.
func (c *Conn) onRequest(h *headers) error {
	if c.dead {
		return errOver // writing has failed
	}
	c.lastID = h.id
	if h.self {
		return c.refuse(h, ProtocolError, "the stream depends on itself")
	}
	if c.dec.bad != "" {
		return c.refuse(h, ProtocolError, c.dec.bad)
	}
	length := c.dec.length
	if h.end && length > 0 && !c.dec.tooLarge {
		return c.refuse(h, ProtocolError, "there is less body than Content-Length says")
	}
	if len(c.streams)+c.zombies >= int(c.cfg.MaxStreams) {
		c.framer.WriteRSTStream(h.id, RefusedStream)
		c.closed.add(h.id, true)
		if c.peer.acked && len(c.streams) >= int(c.cfg.MaxStreams) {
			return c.scores.useless(streamWorth)
		}
		return c.scores.useless(1)
	}
	c.scores.useful(streamWorth)
	s := c.newStream(h.id)
	s.head, c.head = c.head, s.head
	s.head.TooLarge = c.dec.tooLarge
	s.remoteEnd = h.end
	switch {
	case h.end:
		s.head.Body = http1.Body{Kind: http1.BodyNone}
	case length >= 0:
		s.head.Body = http1.Body{Kind: http1.BodyLength, Length: length}
		s.declared = length
	default:
		s.head.Body = http1.Body{Kind: http1.BodyChunked}
	}
	c.streams[s.id] = s
	c.opens = append(c.opens, s)
	return nil
}

// refuse resets a stream that never was, for a fault of its head; mu is held.
func (c *Conn) refuse(h *headers, code Code, detail string) error {
	c.framer.WriteRSTStream(h.id, code)
	c.closed.add(h.id, true)
	if f := c.cfg.Refused; f != nil {
		f(&StreamError{Stream: h.id, Code: code, Detail: detail})
	}
	return c.scores.wasted()
}

// fault resets a stream because of what the peer sent; mu is held. A server that answers badly makes no work that was not asked for.
func (c *Conn) fault(s *Stream, code Code, detail string) error {
	c.reset(s, &StreamError{Stream: s.id, Code: code, Detail: detail})
	if c.client {
		return nil
	}
	return c.scores.wasted()
}

// onTrailers ends a body; mu is held.
func (c *Conn) onTrailers(s *Stream, h *headers) error {
	if !h.end {
		return c.fault(s, ProtocolError, "trailers do not end the stream (RFC 9113 §8.1)")
	}
	n := 0
	for i := range c.tail {
		if f := &c.tail[i]; !http1.ForbiddenInTrailer(f) {
			c.tail[n] = *f
			n++
		}
	}
	s.trailers, c.tail = c.tail[:n], s.trailers
	return c.bodyEnd(s)
}

// onResponse takes a head of an answer; mu is held.
func (c *Conn) onResponse(s *Stream, h *headers) error {
	status := c.head.Status
	if status < 200 {
		switch s.interims++; {
		case h.end || status == 101:
			return c.fault(s, ProtocolError, "an interim answer that cannot be")
		case s.interims > maxInterim:
			return c.fault(s, EnhanceYourCalm, "too many interim answers")
		}
		s.interim = append(s.interim, c.head)
		c.head = Head{}
		s.reading.cond.Signal()
		return nil
	}
	length := c.dec.length
	s.head, c.head = c.head, s.head
	b := &s.head.Body
	switch {
	case s.noBody || status == 204 || status == 304 || h.end && length < 0:
		*b = http1.Body{Kind: http1.BodyNone}
		s.declared = 0
	case length >= 0:
		*b = http1.Body{Kind: http1.BodyLength, Length: length}
		s.declared = length
	default:
		*b = http1.Body{Kind: http1.BodyChunked}
	}
	s.headCame = true
	s.reading.cond.Signal()
	if h.end {
		return c.bodyEnd(s)
	}
	return nil
}

// bodyEnd notes that the peer's message is complete; mu is held.
func (c *Conn) bodyEnd(s *Stream) error {
	if s.declared >= 0 && s.received != s.declared {
		return c.fault(s, ProtocolError, "there is less body than Content-Length says")
	}
	s.remoteEnd = true
	s.reading.cond.Signal()
	c.complete(s)
	return nil
}

func (c *Conn) onData(fh *http2.FrameHeader, p []byte) error {
	if fh.StreamID == 0 {
		return protocol("DATA without a stream")
	}
	data, err := unpad(fh, p)
	if err != nil {
		return err
	}
	c.partID = 0
	switch c.inWin -= int32(len(p)); {
	case c.inWin < 0:
		return &ConnError{Code: FlowControlError, Detail: "more was sent than the connection's window allows"}
	case c.inWin < maxFrame && c.blockedAt.IsZero():
		c.blockedAt = time.Now()
	}
	end := fh.Flags.Has(http2.FlagDataEndStream)
	s := c.streams[fh.StreamID]
	if s == nil {
		c.giveRoom(len(p))
		return c.onLost(fh)
	}
	if s.remoteEnd {
		c.giveRoom(len(p))
		return c.fault(s, StreamClosed, "DATA behind the end of the stream")
	}
	if s.inWin -= int32(len(p)); s.inWin < 0 {
		c.giveRoom(len(p))
		return c.fault(s, FlowControlError, "more was sent than the stream's window allows")
	}
	s.received += int64(len(data))
	if c.client && !s.headCame || s.declared >= 0 && s.received > s.declared {
		c.giveRoom(len(p))
		return c.fault(s, ProtocolError, "there is more body than Content-Length says, or none may be here")
	}
	if len(data) > 0 {
		c.scores.data(len(data))
	} else if !end {
		if err := c.scores.useless(1); err != nil {
			return err
		}
	}
	if s.interrupted {
		c.giveRoom(len(p))
	} else {
		s.used(len(p) - len(data))
		s.fill = append(s.fill, data...)
		s.reading.cond.Signal()
	}
	if end {
		return c.bodyEnd(s)
	}
	return nil
}

// onLost is called for a frame, but HEADERS and PRIORITY, on a stream that is not; mu is held.
func (c *Conn) onLost(fh *http2.FrameHeader) error {
	id := fh.StreamID
	mine := c.client == (id%2 == 1)
	if !mine && c.client || id > c.lastID && c.ending != endFinal || mine && !c.client {
		return protocol("a frame on a stream that was not opened")
	}
	_, ours := c.closed.find(id)
	if fh.Type == http2.FrameData && !ours && id <= c.lastID {
		c.framer.WriteRSTStream(id, StreamClosed)
		c.closed.add(id, true)
		return c.scores.wasted()
	}
	return c.scores.useless(1)
}

func (c *Conn) onWindowUpdate(fh *http2.FrameHeader, p []byte) error {
	if len(p) != 4 {
		return frameSize("WINDOW_UPDATE has a wrong size")
	}
	n := int64(binary.BigEndian.Uint32(p) & maxWindow)
	if err := c.scores.useless(1); err != nil {
		return err
	}
	if fh.StreamID == 0 {
		if n == 0 {
			return protocol("WINDOW_UPDATE of nothing")
		}
		if c.window += n; c.window > maxWindow {
			return &ConnError{Code: FlowControlError, Detail: "the connection's window is too large"}
		}
		c.wakeSenders()
		return nil
	}
	s := c.streams[fh.StreamID]
	if s == nil {
		return c.onLost(fh)
	}
	if n == 0 {
		return c.fault(s, ProtocolError, "WINDOW_UPDATE of nothing")
	}
	if s.window += n; s.window > maxWindow {
		return c.fault(s, FlowControlError, "the stream's window is too large")
	}
	s.sending.cond.Signal()
	return nil
}

func (c *Conn) onReset(fh *http2.FrameHeader, p []byte) error {
	if len(p) != 4 {
		return frameSize("RST_STREAM has a wrong size")
	}
	if fh.StreamID == 0 {
		return protocol("RST_STREAM without a stream")
	}
	s := c.streams[fh.StreamID]
	if s == nil {
		return c.onLost(fh)
	}
	code := Code(binary.BigEndian.Uint32(p))
	wasted := !c.client && !s.begun && (s.born.IsZero() || time.Since(s.born) < youngReset)
	if c.client && code == NoError && s.headCame {
		// The answer is complete without the rest of the request (RFC 9113 §8.1).
		if s.remoteEnd {
			s.localEnd = true
			s.sending.cond.Broadcast()
		}
	}
	c.drop(s, &StreamError{Stream: s.id, Code: code, Remote: true, Unprocessed: code == RefusedStream})
	if wasted {
		return c.scores.wasted()
	}
	return nil
}

func (c *Conn) onPing(fh *http2.FrameHeader, p []byte) error {
	if len(p) != 8 {
		return frameSize("PING has a wrong size")
	}
	if fh.StreamID != 0 {
		return protocol("PING on a stream")
	}
	if !fh.Flags.Has(http2.FlagPingAck) {
		c.framer.WritePing(true, [8]byte(p))
	} else if [8]byte(p) == shutdownPing {
		c.settleEnd()
	}
	return c.scores.useless(1)
}

func (c *Conn) onSettings(fh *http2.FrameHeader, p []byte) error {
	if fh.StreamID != 0 {
		return protocol("SETTINGS on a stream")
	}
	if fh.Flags.Has(http2.FlagSettingsAck) {
		if len(p) != 0 {
			return frameSize("an acknowledgement of SETTINGS is not empty")
		}
		c.peer.acked = true
		return c.scores.useless(1)
	}
	if len(p)%6 != 0 {
		return frameSize("SETTINGS has a wrong size")
	}
	window := int64(c.peer.window)
	for cost := len(p) / 64; len(p) > 0; p = p[6:] {
		v := binary.BigEndian.Uint32(p[2:])
		switch http2.SettingID(binary.BigEndian.Uint16(p)) {
		case http2.SettingHeaderTableSize:
			c.enc.setLimit(v)
		case http2.SettingEnablePush:
			if v > 1 || v == 1 && c.client {
				return protocol("SETTINGS_ENABLE_PUSH has a wrong value")
			}
		case http2.SettingMaxConcurrentStreams:
			c.peer.streams = v
		case http2.SettingInitialWindowSize:
			if v > maxWindow {
				return &ConnError{Code: FlowControlError, Detail: "SETTINGS_INITIAL_WINDOW_SIZE is too large"}
			}
			window = int64(v)
		case http2.SettingMaxFrameSize:
			if v < 1<<14 || v > 1<<24-1 {
				return protocol("SETTINGS_MAX_FRAME_SIZE has a wrong value")
			}
		}
		if cost > 0 {
			cost--
			if err := c.scores.useless(1); err != nil {
				return err
			}
		}
	}
	if change := window - int64(c.peer.window); change != 0 {
		c.peer.window = int32(window)
		for _, s := range c.streams {
			if s.window += change; s.window > maxWindow {
				return &ConnError{Code: FlowControlError, Detail: "SETTINGS_INITIAL_WINDOW_SIZE makes a window too large"}
			}
			s.sending.cond.Signal()
		}
		c.wakeSenders()
	}
	c.framer.WriteSettingsAck()
	if !c.peer.settled {
		c.peer.settled = true
		close(c.settled)
		c.owes = true
		return nil
	}
	c.owes = true
	return c.scores.useless(1)
}

func (c *Conn) onGoAway(fh *http2.FrameHeader, p []byte) error {
	if fh.StreamID != 0 {
		return protocol("GOAWAY on a stream")
	}
	if len(p) < 8 {
		return frameSize("GOAWAY has a wrong size")
	}
	last, code := binary.BigEndian.Uint32(p)&maxStreamID, Code(binary.BigEndian.Uint32(p[4:]))
	if c.client {
		err := &ConnError{Code: code, Remote: true, Unprocessed: true, Detail: "GOAWAY"}
		if c.err == nil {
			c.err = err
		}
		for id, s := range c.streams {
			if id > last {
				c.drop(s, &StreamError{Stream: id, Code: code, Remote: true, Unprocessed: true, Detail: "GOAWAY"})
			}
		}
		c.ending = endFinal
		c.endIfDone()
		c.owes = true
	}
	return c.scores.useless(1)
}

func (c *Conn) onPriority(fh *http2.FrameHeader, p []byte) error {
	if fh.StreamID == 0 {
		return protocol("PRIORITY without a stream")
	}
	if len(p) != 5 {
		return frameSize("PRIORITY has a wrong size")
	}
	if binary.BigEndian.Uint32(p)&maxStreamID == fh.StreamID {
		if s := c.streams[fh.StreamID]; s != nil {
			return c.fault(s, ProtocolError, "the stream depends on itself")
		}
		return protocol("a stream depends on itself")
	}
	return c.scores.useless(1)
}

// closedRing remembers streams that have ended, the oldest forgotten.
type closedRing struct {
	ids  [closedSize]uint32 // with the top bit set: this side reset it
	next int
}

// closedSize is how many of them: those of a full connection at least, so that what a peer had under way for them does no harm.
const closedSize = 256

const closedOurs = 1 << 31

func (r *closedRing) add(id uint32, ours bool) {
	if ours {
		for i := range r.ids {
			if r.ids[i] == id {
				r.ids[i] |= closedOurs
				return
			}
		}
		id |= closedOurs
	}
	r.ids[r.next] = id
	r.next = (r.next + 1) % closedSize
}

// find says whether the stream ended lately, and whether this side reset it.
func (r *closedRing) find(id uint32) (known, ours bool) {
	for _, v := range r.ids {
		if v&^closedOurs == id {
			return true, v&closedOurs != 0
		}
	}
	return false, false
}
