//go:build linux

package main

import (
	"bytes"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// grpcConn is a connection to the backend's gRPC port: each message of a call is answered with one, and the end of the call with its trailers.
type grpcConn struct {
	h2conn
	calls   map[uint32]*grpcCall
	free    []*grpcCall
	encoder *hpack.Encoder
	block   bytes.Buffer
	port    *port
	// decoder is there for the first calls of a connection only, among which those are that check the proxy.
	decoder *hpack.Decoder
	heads   int
}

// decodedHeads is how many header blocks of a connection are read.
const decodedHeads = 16

// grpcCall is a stream.
type grpcCall struct {
	window int64
	got    int // bytes received
	owed   int // answers not yet sent
	begun  bool
	ended  bool   // by the client
	head   string // if it is what is asked for
}

func newGRPCConn(pt *port) *grpcConn {
	c := &grpcConn{calls: map[uint32]*grpcCall{}, port: pt, decoder: hpack.NewDecoder(4096, nil)}
	c.encoder = hpack.NewEncoder(&c.block)
	c.start("")
	return c
}

// readableGRPC is readable for the gRPC port.
func (b *backend) readableGRPC(c *peerConn) {
	g := c.grpc
	for {
		room := len(g.in) - g.n
		n, eof, err := read(c.fd, g.in[g.n:])
		if err != nil || eof || room == 0 {
			b.close(c)
			return
		}
		g.n += n
		if !c.prefaced {
			if g.n < len(http2.ClientPreface) {
				return
			}
			c.prefaced = true
			copy(g.in, g.in[len(http2.ClientPreface):g.n])
			g.n -= len(http2.ClientPreface)
		}
		if err := g.consume(g); err != nil {
			b.close(c)
			return
		}
		if n < room {
			break
		}
	}
	b.flushGRPC(c)
}

func (b *backend) flushGRPC(c *peerConn) {
	if err := c.grpc.flush(func(p []byte) (int, error) { return write(c.fd, p) }); err != nil {
		b.close(c)
	}
}

func (c *grpcConn) head(id uint32, block []byte, end bool) {
	call := c.calls[id]
	if call == nil {
		if n := len(c.free); n > 0 {
			call, c.free = c.free[n-1], c.free[:n-1]
		} else {
			call = new(grpcCall)
		}
		*call = grpcCall{window: c.initial}
		c.calls[id] = call
		c.port.requests++
		if c.heads++; c.heads <= decodedHeads {
			call.head = c.special(block)
		}
	}
	call.ended = end
	c.advance(id, call)
}

// special is the head of a request whose path begins with "/_".
func (c *grpcConn) special(block []byte) string {
	fields, err := c.decoder.DecodeFull(block)
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	var cookies []string // may come in pieces (RFC 9113 §8.2.3)
	special := false
	for _, f := range fields {
		special = special || f.Name == ":path" && strings.HasPrefix(f.Value, "/_")
		if f.Name == "cookie" {
			cookies = append(cookies, f.Value)
			continue
		}
		text.WriteString("\r\n" + f.Name + ": " + f.Value)
	}
	if !special {
		return ""
	}
	text.WriteString("\r\ncookie: " + strings.Join(cookies, "; "))
	return strings.Replace(text.String(), "\r\n:authority: ", "\r\nhost: ", 1)
}

func (c *grpcConn) data(id uint32, piece []byte, end bool) {
	call := c.calls[id]
	if call == nil {
		return
	}
	call.owed -= call.got / questionSize
	call.got += len(piece)
	call.owed += call.got / questionSize
	call.ended = end
	c.advance(id, call)
}

func (c *grpcConn) grown(id uint32, by int64) {
	if id != 0 {
		if call := c.calls[id]; call != nil {
			call.window += by
			c.advance(id, call)
		}
		return
	}
	for id, call := range c.calls {
		c.advance(id, call)
	}
}

func (c *grpcConn) reset(id uint32) {
	if call := c.calls[id]; call != nil {
		delete(c.calls, id)
		c.free = append(c.free, call)
	}
}

// advance sends what a call is owed, as far as its window goes.
func (c *grpcConn) advance(id uint32, call *grpcCall) {
	if !call.begun && (call.owed > 0 || call.ended) {
		call.begun = true
		c.fields(id, 0, hpack.HeaderField{Name: ":status", Value: "200"}, hpack.HeaderField{Name: "content-type", Value: "application/grpc"})
	}
	for ; call.owed > 0; call.owed-- {
		size := messageSize
		if call.head != "" {
			size = messageHead + len(call.head)
		}
		if call.window < int64(size) || c.window < int64(size) {
			return
		}
		call.window -= int64(size)
		c.message(id, size, 0)
		copy(c.out[len(c.out)-len(call.head):], call.head)
	}
	if call.ended {
		c.fields(id, http2.FlagHeadersEndStream, hpack.HeaderField{Name: "grpc-status", Value: "0"}, hpack.HeaderField{Name: "grpc-message", Value: ""})
		c.reset(id)
	}
}

// fields sends a header block.
func (c *grpcConn) fields(id uint32, flags http2.Flags, all ...hpack.HeaderField) {
	c.block.Reset()
	if n := min(c.table, 4096); n != c.encoder.MaxDynamicTableSize() {
		c.encoder.SetMaxDynamicTableSize(n)
	}
	for _, f := range all {
		_ = c.encoder.WriteField(f) // a bytes.Buffer takes everything
	}
	c.frame(http2.FrameHeaders, flags|http2.FlagHeadersEndHeaders, id, c.block.Len())
	c.out = append(c.out, c.block.Bytes()...)
}
