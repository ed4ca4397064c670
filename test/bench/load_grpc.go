//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"
)

// grpcLoad makes gRPC calls in a closed loop: a stream sends its next message when the one before is answered, and after so many messages the next
// call begins. With one message a call these are unary calls. What is counted is messages: answered whole and, the last ones, with trailers.
type grpcLoad struct {
	poller   *poller
	messages int   // of a call
	until    int64 // when to end
	result   loadResult
	samples  []int64
	open     int   // connections
	err      error // why one broke
}

// grpcClient is a connection of the generator.
type grpcClient struct {
	h2conn
	load    *grpcLoad
	link    *link
	nextID  uint32
	blocks  [2][]byte // header block of the first call, and of all others: these only refer to the first's fields
	streams map[uint32]*grpcStream
	begun   bool
	closed  bool
}

// grpcStream is a call under way.
type grpcStream struct {
	window int64
	sent   int   // messages
	got    int   // bytes of answers
	since  int64 // when the last message was to be sent
	stuck  bool  // it waits for the window
	last   bool  // the call's end was sent with it
}

// generateGRPC is the subcommand "grpcload".
func generateGRPC(args []string, out io.Writer) error {
	f := flag.NewFlagSet("grpcload", flag.ExitOnError)
	port := f.Int("port", 0, "port of the proxy")
	conns := f.Int("conns", 16, "connections")
	streams := f.Int("streams", h2Streams, "calls at a time on each")
	messages := f.Int("messages", 1, "messages of a call")
	duration := f.Duration("duration", 3*time.Second, "measured time")
	secure := f.Bool("tls", false, "use TLS")
	_ = f.Parse(args)
	loopProcess()
	p, err := newPoller()
	if err != nil {
		return err
	}
	g := &grpcLoad{poller: p, messages: *messages, samples: make([]int64, 0, 1<<21)}
	byFD := map[int]*grpcClient{}
	var config *tls.Config
	scheme := "http"
	if *secure {
		scheme = "https"
		config = loadTLS("h2")
	}
	for range *conns {
		c := &grpcClient{load: g, nextID: 1, streams: map[uint32]*grpcStream{}}
		if c.link, err = connectLink(*port, 0, config); err != nil {
			return err
		}
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for i := range c.blocks {
			block.Reset()
			for _, field := range grpcFields(scheme) {
				_ = encoder.WriteField(field)
			}
			c.blocks[i] = bytes.Clone(block.Bytes())
		}
		c.start(http2.ClientPreface)
		byFD[c.link.fd] = c
		if err := p.add(c.link.fd, edge); err != nil {
			return err
		}
		if err := c.h2conn.flush(c.link.write); err != nil {
			return err
		}
	}
	g.open = len(byFD)
	start := now()
	g.until = start + int64(*duration)
	limit := g.until + int64(3*time.Second)
	for g.open > 0 {
		left := limit - now()
		if left <= 0 {
			break
		}
		for _, e := range p.wait(left) {
			c := byFD[int(e.Fd)]
			if !c.closed {
				c.serve(e.Events, *streams)
			}
		}
	}
	for _, c := range byFD {
		g.result.Late += len(c.streams)
		g.result.Requests += len(c.streams)
	}
	g.result.Elapsed = now() - start
	g.result.quantiles(g.samples)
	if g.result.OK == 0 {
		return fmt.Errorf("no message was answered: %w", g.err)
	}
	return json.NewEncoder(out).Encode(g.result)
}

// serve handles what the poller says, and ends the connection when it broke, or when the time is over and so are the calls.
func (c *grpcClient) serve(events uint32, streams int) {
	err := c.exchange(events, streams)
	if err == nil && (now() < c.load.until || len(c.streams) > 0) {
		return
	}
	g := c.load
	if err != nil {
		g.err = err
		g.result.Broken += len(c.streams)
		g.result.Requests += len(c.streams)
		clear(c.streams)
	}
	c.link.close()
	c.closed = true
	g.open--
}

func (c *grpcClient) exchange(events uint32, streams int) error {
	if events&unix.EPOLLOUT != 0 {
		if err := c.link.flush(); err != nil {
			return err
		}
	}
	for {
		room := len(c.in) - c.n
		n, eof, err := c.link.read(c.in[c.n:])
		if err != nil || eof {
			return errors.Join(err, errors.New("the connection ended"))
		}
		c.n += n
		if err := c.consume(c); err != nil {
			return err
		}
		if n == 0 || c.link.tls == nil && n < room {
			break
		}
	}
	if c.settled && !c.begun {
		c.begun = true
		if c.table < 4096 {
			return fmt.Errorf("a header table of %d bytes is less than the fields need", c.table)
		}
		for range streams {
			c.call(now())
		}
	}
	return c.h2conn.flush(c.link.write)
}

// call begins one.
func (c *grpcClient) call(t int64) {
	id := c.nextID
	c.nextID += 2
	block := c.blocks[min(1, id/2)]
	c.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, id, len(block))
	c.out = append(c.out, block...)
	s := &grpcStream{window: c.initial}
	c.streams[id] = s
	c.ask(id, s, t)
}

// ask sends the stream's next message.
func (c *grpcClient) ask(id uint32, s *grpcStream, t int64) {
	if !s.stuck {
		s.since = t
	}
	if s.stuck = s.window < questionSize || c.window < questionSize; s.stuck {
		return
	}
	s.window -= questionSize
	s.sent++
	flags := http2.Flags(0)
	if s.sent == c.load.messages {
		flags, s.last = http2.FlagDataEndStream, true
	}
	c.message(id, questionSize, flags)
}

func (c *grpcClient) head(id uint32, _ []byte, end bool) { c.data(id, nil, end) }

func (c *grpcClient) data(id uint32, piece []byte, end bool) {
	s := c.streams[id]
	if s == nil {
		return
	}
	s.got += len(piece)
	r := &c.load.result
	whole := s.got == s.sent*messageSize
	if !end && (!whole || len(piece) == 0 || s.last) {
		return
	}
	t := now()
	if s.sent > 0 && !(s.last && s.sent < c.load.messages) {
		r.Requests++
		if whole && (!end || s.last) {
			r.OK++
			c.load.samples = append(c.load.samples, t-s.since)
		} else {
			r.Status++
		}
	}
	switch {
	case end:
		delete(c.streams, id)
		if t < c.load.until {
			c.call(t)
		}
	case t < c.load.until:
		c.ask(id, s, t)
	default: // the time is over before the call
		s.last = true
		c.frame(http2.FrameData, http2.FlagDataEndStream, id, 0)
	}
}

func (c *grpcClient) grown(id uint32, by int64) {
	if s := c.streams[id]; s != nil {
		s.window += by
	}
	for id, s := range c.streams {
		if s.stuck {
			c.ask(id, s, 0)
		}
	}
}

func (c *grpcClient) reset(id uint32) {
	if s := c.streams[id]; s != nil {
		s.got = -1
		c.data(id, nil, true)
	}
}
