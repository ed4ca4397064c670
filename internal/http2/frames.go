package http2

import (
	"encoding/binary"
	"time"

	"golang.org/x/net/http2"
)

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
		return protocol("PUSH_PROMISE although push is disabled")
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
	c.mu.Lock()
	c.gathers(true)
	c.mu.Unlock()
	if err := c.draw(); err != nil {
		return err
	}
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
	c.gathers(false)
	c.blockAt = time.Time{}
	c.mu.Unlock()
	err := c.onBlock(h.block)
	if cap(h.block) > maxFrame {
		h.block = nil
	}
	return err
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
		return &ConnError{Code: FlowControlError, Detail: "flow control: the peer exceeded the connection's window"}
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
		return c.fault(s, StreamClosed, "DATA after the end of the stream")
	}
	if s.inWin -= int32(len(p)); s.inWin < 0 {
		c.giveRoom(len(p))
		return c.fault(s, FlowControlError, "flow control: the peer exceeded the stream's window")
	}
	s.received += int64(len(data))
	if c.client && !s.headCame || s.declared >= 0 && s.received > s.declared {
		c.giveRoom(len(p))
		return c.fault(s, ProtocolError, "the body is longer than Content-Length, or not allowed")
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
		s.add(data)
		c.weigh(s)
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
		return protocol("frame on an idle stream")
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
			return protocol("WINDOW_UPDATE with an increment of 0")
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
		return c.fault(s, ProtocolError, "WINDOW_UPDATE with an increment of 0")
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
	wasted := !c.client && !c.cfg.Shared && !s.begun && (s.born.IsZero() || time.Since(s.born) < youngReset)
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

// closedRing remembers streams that have ended, except for the oldest.
type closedRing struct {
	ids  [closedSize]uint32 // with the top bit set: this side reset it
	next int
}

// closedSize is how many it remembers: at least those of a full connection, so that frames that a peer had under way
// for them are harmless.
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

// find reports whether the stream ended recently, and whether this side reset it.
func (r *closedRing) find(id uint32) (known, ours bool) {
	for _, v := range r.ids {
		if v&^closedOurs == id {
			return true, v&closedOurs != 0
		}
	}
	return false, false
}
