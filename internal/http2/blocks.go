package http2

import (
	"errors"

	"golang.org/x/net/http2/hpack"

	"github.com/weirmesh/weir/internal/http1"
)

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
	c.head = c.head.empty()
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
		return nil // the stream ended in the meantime
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

// blockKind returns the kind of a block on a stream; mu is held.
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
	if !c.client && h.id%2 == 1 && h.id > c.lastID {
		if c.ending == endFinal {
			return blockDropped, nil // RFC 9113 §6.8
		}
		return blockRequest, nil
	}
	if known, _ := c.closed.find(h.id); known {
		return blockDropped, nil
	}
	switch {
	case c.client || h.id%2 == 0:
		return 0, protocol("HEADERS on an invalid stream")
	case c.ending == endFinal:
		return blockDropped, nil
	}
	return 0, protocol("stream opened out of order (RFC 9113 §5.1.1)")
}

// onDropped handles a block on a stream that accepts none; mu is held.
func (c *Conn) onDropped(h *headers) error {
	if s := c.streams[h.id]; s != nil {
		return c.fault(s, StreamClosed, "HEADERS after the end of the stream")
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
		return c.refuse(h, ProtocolError, "the body is shorter than Content-Length")
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
	s.block += c.dec.size
	c.weigh(s)
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

// fault resets a stream because of what the peer sent; mu is held. A server's bad answer does not count as wasted work.
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
	s.block += c.dec.size
	c.weigh(s)
	return c.bodyEnd(s)
}

// onResponse takes a head of an answer; mu is held.
func (c *Conn) onResponse(s *Stream, h *headers) error {
	status := c.head.Status
	s.block += c.dec.size
	c.weigh(s)
	if status < 200 {
		switch s.interims++; {
		case h.end || status == 101:
			return c.fault(s, ProtocolError, "unexpected 1xx response")
		case s.interims > maxInterim:
			return c.fault(s, EnhanceYourCalm, "too many 1xx responses")
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
		return c.fault(s, ProtocolError, "the body is shorter than Content-Length")
	}
	s.remoteEnd = true
	s.reading.cond.Signal()
	c.complete(s)
	return nil
}
