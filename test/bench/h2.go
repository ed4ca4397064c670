//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2conn is what backend and generator share of HTTP/2: frames, SETTINGS, PING and flow control, with as little work as it can be done with. It
// checks nothing: its peers are proxies that are known to behave, and the work is to be theirs.
type h2conn struct {
	in      []byte // of which n bytes are unread
	n       int
	out     []byte // of which at bytes are written
	at      int
	window  int64 // what may be sent on the connection
	initial int64 // and on a new stream
	taken   int   // bytes received since the connection's window was last raised
	table   uint32
	settled bool // the other side's SETTINGS have come
}

const (
	frameHead   = 9
	frameSize   = 16 << 10
	h2Window    = 1 << 30 // of each stream and of the connection, for receiving
	messageHead = 5       // gRPC's length prefix

	questionSize = messageHead + 128    // a gRPC request message
	messageSize  = messageHead + 1<<10  // the one that answers it
	grpcPath     = "/bench.Echo/Answer" // and its method
)

// start forgets an earlier connection and begins one: SETTINGS and a large window.
func (c *h2conn) start(preface string) {
	if c.in == nil {
		c.in = make([]byte, 256<<10)
	}
	*c = h2conn{in: c.in, out: append(c.out[:0], preface...), window: 65535, initial: 65535, table: 4096}
	c.frame(http2.FrameSettings, 0, 0, 6)
	c.out = binary.BigEndian.AppendUint16(c.out, uint16(http2.SettingInitialWindowSize))
	c.out = binary.BigEndian.AppendUint32(c.out, h2Window)
	c.raise(h2Window)
}

// frame appends a frame's head.
func (c *h2conn) frame(kind http2.FrameType, flags http2.Flags, id uint32, size int) {
	c.out = append(c.out, byte(size>>16), byte(size>>8), byte(size), byte(kind), byte(flags))
	c.out = binary.BigEndian.AppendUint32(c.out, id)
}

// raise gives the other side more of the connection's window.
func (c *h2conn) raise(by uint32) {
	c.frame(http2.FrameWindowUpdate, 0, 0, 4)
	c.out = binary.BigEndian.AppendUint32(c.out, by)
}

// h2events is who uses the connection.
type h2events interface {
	// head is a header block, or the trailers.
	head(id uint32, block []byte, end bool)
	// data is a piece of a stream's body.
	data(id uint32, piece []byte, end bool)
	// grown says that a stream's window grew, or with 0 the connection's.
	grown(id uint32, by int64)
	// reset ends a stream.
	reset(id uint32)
}

var errGoAway = errors.New("the other side goes away")

// consume handles the frames that are whole in c.in.
func (c *h2conn) consume(e h2events) error {
	at := 0
	for c.n-at >= frameHead {
		b := c.in[at:c.n]
		size := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if size > frameSize {
			return fmt.Errorf("a frame of %d bytes", size)
		}
		if len(b) < frameHead+size {
			break
		}
		at += frameHead + size
		if err := c.handle(e, http2.FrameType(b[3]), http2.Flags(b[4]), binary.BigEndian.Uint32(b[5:])&(1<<31-1), b[frameHead:frameHead+size]); err != nil {
			return err
		}
	}
	copy(c.in, c.in[at:c.n])
	c.n -= at
	return nil
}

func (c *h2conn) handle(e h2events, kind http2.FrameType, flags http2.Flags, id uint32, p []byte) error {
	end := flags.Has(http2.FlagDataEndStream)
	switch kind {
	case http2.FrameData:
		if c.taken += len(p); c.taken > h2Window/2 {
			c.raise(uint32(c.taken))
			c.taken = 0
		}
		if flags.Has(http2.FlagDataPadded) {
			p = p[1 : len(p)-int(p[0])]
		}
		e.data(id, p, end)
	case http2.FrameHeaders:
		if !flags.Has(http2.FlagHeadersEndHeaders) {
			return errors.New("a header block that goes on in another frame")
		}
		if flags.Has(http2.FlagHeadersPadded) {
			p = p[1 : len(p)-int(p[0])]
		}
		if flags.Has(http2.FlagHeadersPriority) {
			p = p[5:]
		}
		e.head(id, p, end)
	case http2.FrameSettings:
		if flags.Has(http2.FlagSettingsAck) {
			break
		}
		for ; len(p) >= 6; p = p[6:] {
			value := binary.BigEndian.Uint32(p[2:])
			switch http2.SettingID(binary.BigEndian.Uint16(p)) {
			case http2.SettingInitialWindowSize:
				c.initial = int64(value) // it comes before the first stream
			case http2.SettingHeaderTableSize:
				c.table = value
			}
		}
		c.settled = true
		c.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
	case http2.FramePing:
		if !flags.Has(http2.FlagPingAck) {
			c.frame(http2.FramePing, http2.FlagPingAck, 0, len(p))
			c.out = append(c.out, p...)
		}
	case http2.FrameWindowUpdate:
		by := int64(binary.BigEndian.Uint32(p))
		if id == 0 {
			c.window += by
		}
		e.grown(id, by)
	case http2.FrameRSTStream:
		e.reset(id)
	case http2.FrameGoAway:
		return errGoAway
	}
	return nil
}

// flush writes what fits; each is how.
func (c *h2conn) flush(each func([]byte) (int, error)) error {
	for c.at < len(c.out) {
		n, err := each(c.out[c.at:])
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		c.at += n
	}
	c.out, c.at = c.out[:0], 0
	return nil
}

// message appends a gRPC message of size bytes with its prefix, as one frame.
func (c *h2conn) message(id uint32, size int, flags http2.Flags) {
	c.frame(http2.FrameData, flags, id, size)
	c.out = append(c.out, 0)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(size-messageHead))
	c.out = append(c.out, zeros[:size-messageHead]...)
	c.window -= int64(size)
}

var zeros [2 << 10]byte

// grpcFields are a request's, in order.
func grpcFields(scheme string) []hpack.HeaderField {
	all := []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: scheme},
		{Name: ":path", Value: grpcPath},
		{Name: ":authority", Value: hostname},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}
	return append(all, lowerHeaders()...)
}
