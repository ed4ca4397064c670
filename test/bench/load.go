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
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// loadResult is what the generator measured.
type loadResult struct {
	// Requests were scheduled in the measured time; OK of them were answered with 2xx.
	Requests int `json:"requests"`
	OK       int `json:"ok"`
	// Status counts other answers, Broken connections that ended before the answer, Late those without an answer at
	// the end.
	Status int `json:"status"`
	Broken int `json:"broken"`
	Late   int `json:"late"`
	// Elapsed is the measured time in nanoseconds, to the last answer.
	Elapsed int64 `json:"elapsed"`
	// Latencies in nanoseconds, from when a request was due.
	P50 int64 `json:"p50"`
	P90 int64 `json:"p90"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
	// Latencies holds all of them, Lateness how long after it was due the generator came to each request that had a time.
	Latencies histogram `json:"latencies,omitempty"`
	Lateness  histogram `json:"lateness,omitempty"`
}

// loadConn is a connection of the generator.
type loadConn struct {
	link *link // nil until a request needs it
	busy bool
	due  int64  // when the request was to be sent
	out  []byte // of the request, not yet written
	buf  []byte
	n    int
	body int // bytes of the answer still to come; -1 while its head is incomplete
	ok   bool
}

// generator sends requests at a fixed rate, whether or not earlier ones were answered (open loop). One that finds no
// connection free waits, and its latency still counts from when it was due: a proxy that stalls cannot hide it.
// Without a rate it sends a request on each connection as soon as the one before is answered (closed loop).
type generator struct {
	poller  *poller
	port    int
	tls     *tls.Config // nil: cleartext
	churn   bool        // a connection for each request
	source  int         // with churn, of the last connection
	list    [][]byte    // requests, sent in turn
	at      int
	until   int64 // with a closed loop, when to end
	conns   []*loadConn
	byFD    map[int]*loadConn
	free    []*loadConn
	waiting []int64 // due times of requests that found no connection
	from    int64   // requests due earlier are warm-up
	result  loadResult
	samples []int64
}

// generateLoad is the subcommand "load".
func generateLoad(args []string, in io.Reader, out io.Writer) error {
	f := flag.NewFlagSet("load", flag.ExitOnError)
	port := f.Int("port", 0, "port of the proxy")
	rate := f.Int("rate", 0, "requests a second; 0: as many as are answered")
	many := f.Bool("many", false, "the standard input holds many requests, without bodies")
	conns := f.Int("conns", 64, "connections")
	secure := f.Bool("tls", false, "use TLS")
	certificate := f.String("certificate", "", "with TLS, a file with the client's certificate and key")
	churn := f.Bool("churn", false, "a connection for each request")
	duration := f.Duration("duration", 3*time.Second, "measured time")
	warmup := f.Duration("warmup", 500*time.Millisecond, "time before it")
	grace := f.Duration("grace", 3*time.Second, "how long to wait for the last answers")
	realtime := f.Bool("realtime", false, "let nothing else run that the scheduler can keep waiting, where that is permitted")
	_ = f.Parse(args)
	if *certificate != "" && !*secure {
		return errors.New("-certificate is for -tls")
	}
	request, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("request on the standard input: %w", err)
	}
	list := [][]byte{request}
	if *many {
		list = bytes.SplitAfter(request, headEnd)
		list = list[:len(list)-1] // what follows the last one: nothing
	}
	if len(list) == 0 || len(list[0]) == 0 {
		return errors.New("no request on the standard input")
	}
	loopProcess()
	if *realtime {
		if err := goRealtime(); err != nil {
			return err
		}
	}
	p, err := newPoller()
	if err != nil {
		return err
	}
	g := &generator{poller: p, port: *port, list: list, churn: *churn, byFD: map[int]*loadConn{}}
	if *secure {
		g.tls = loadTLS("http/1.1")
	}
	if *certificate != "" {
		pair, err := tls.LoadX509KeyPair(*certificate, *certificate)
		if err != nil {
			return err
		}
		g.tls.Certificates = []tls.Certificate{pair}
	}
	g.samples = make([]int64, 0, int(duration.Seconds()*float64(*rate))+1<<20)
	g.waiting = make([]int64, 0, cap(g.samples))
	started := time.Now()
	for range *conns {
		c := &loadConn{buf: make([]byte, 256<<10)}
		if !g.churn {
			if err := g.connect(c); err != nil {
				return err
			}
		}
		g.conns = append(g.conns, c)
		g.free = append(g.free, c)
	}
	g.result.Latencies, g.result.Lateness = histogram{}, histogram{}
	interval := int64(0)
	if *rate > 0 {
		interval = int64(time.Second) / int64(*rate)
	}
	g.run(interval, *warmup, *duration, *grace)
	g.result.Elapsed = int64(time.Since(started) - *warmup)
	return json.NewEncoder(out).Encode(g.finish())
}

func (g *generator) connect(c *loadConn) error {
	if g.churn {
		g.source = g.source%sources + 1
	}
	l, err := connectLink(g.port, g.source, g.tls)
	if err != nil {
		return err
	}
	*c = loadConn{link: l, buf: c.buf, body: -1}
	g.byFD[l.fd] = c
	return g.poller.add(l.fd, edge)
}

func (g *generator) disconnect(c *loadConn) {
	delete(g.byFD, c.link.fd)
	c.link.close()
	c.link = nil
}

// run sends a request each interval, or with none one after the other, and then waits for the answers that are still
// missing.
func (g *generator) run(interval int64, warmup, duration, grace time.Duration) {
	start := now()
	g.from = start + int64(warmup)
	end := g.from + int64(duration)
	if interval == 0 {
		g.until = end
		g.free = g.free[:0]
		for _, c := range g.conns {
			g.start(c, start)
		}
		start = end // nothing is due by itself
	}
	for due := start; ; {
		t := now()
		for ; due <= t && due < end; due += interval {
			if due >= g.from {
				g.result.Lateness.add(t - due)
			}
			g.send(due)
		}
		until := due - t
		if due >= end {
			if until = end + int64(grace) - t; until <= 0 || len(g.free) == len(g.conns) && len(g.waiting) == 0 {
				return
			}
		}
		for _, e := range g.poller.wait(until) {
			c := g.byFD[int(e.Fd)]
			if c == nil {
				continue
			}
			if e.Events&unix.EPOLLOUT != 0 {
				g.flush(c)
			}
			if c.link != nil && e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
				g.readable(c)
			}
		}
	}
}

// send starts the request that is due, or queues it.
func (g *generator) send(due int64) {
	n := len(g.free)
	if n == 0 {
		g.waiting = append(g.waiting, due)
		return
	}
	c := g.free[0] // first in, first out: all connections are used alike
	copy(g.free, g.free[1:])
	g.free = g.free[:n-1]
	g.start(c, due)
}

func (g *generator) start(c *loadConn, due int64) {
	if c.link == nil {
		if err := g.connect(c); err != nil {
			fail(err)
		}
	}
	c.busy, c.due, c.out, c.body = true, due, g.list[g.at], -1
	if g.at++; g.at == len(g.list) {
		g.at = 0
	}
	g.flush(c)
}

func (g *generator) flush(c *loadConn) {
	for len(c.out) > 0 {
		n, err := c.link.write(c.out)
		if err != nil {
			g.broken(c)
			return
		}
		if n == 0 {
			return
		}
		c.out = c.out[n:]
	}
	if err := c.link.flush(); err != nil {
		g.broken(c)
	}
}

// fail ends the process.
func fail(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(1)
}

// broken ends a connection: a request on it has failed.
func (g *generator) broken(c *loadConn) {
	g.disconnect(c)
	busy := c.busy
	if busy && c.due >= g.from {
		g.result.Requests++
		g.result.Broken++
	}
	if err := g.connect(c); err != nil {
		fail(err)
	}
	if busy {
		g.next(c)
	}
}

// next gives a connection the request that waited longest, or sets it free.
func (g *generator) next(c *loadConn) {
	c.busy = false
	if g.until > 0 {
		if t := now(); t < g.until {
			g.start(c, t)
			return
		}
	}
	if len(g.waiting) > 0 {
		due := g.waiting[0]
		copy(g.waiting, g.waiting[1:])
		g.waiting = g.waiting[:len(g.waiting)-1]
		g.start(c, due)
		return
	}
	g.free = append(g.free, c)
}

func (g *generator) readable(c *loadConn) {
	for {
		room := len(c.buf) - c.n
		n, eof, err := c.link.read(c.buf[c.n:])
		if err != nil || eof {
			g.broken(c)
			return
		}
		if n == 0 {
			return
		}
		c.n += n
		if !g.answer(c) {
			g.broken(c)
			return
		}
		if c.link == nil || n < room && c.link.tls == nil {
			return
		}
	}
}

// answer looks at what arrived; false when it is not an answer to a request.
func (g *generator) answer(c *loadConn) bool {
	if !c.busy {
		return false
	}
	at := 0
	if c.body < 0 {
		end := bytes.Index(c.buf[:c.n], headEnd)
		if end < 0 {
			return c.n < len(c.buf)
		}
		size, ok := answerHead(c.buf[:end+2])
		if size < 0 {
			return false
		}
		c.body, c.ok = size, ok
		at = end + len(headEnd)
	}
	if c.n-at > c.body {
		return false
	}
	c.body -= c.n - at
	c.n = 0
	if c.body > 0 {
		return true
	}
	if c.due >= g.from {
		g.result.Requests++
		g.samples = append(g.samples, now()-c.due)
		if c.ok {
			g.result.OK++
		} else {
			g.result.Status++
		}
	}
	if g.churn {
		g.disconnect(c)
	}
	g.next(c)
	return true
}

var lengthField = []byte("\r\ncontent-length:")

// answerHead is the length of the answer's body, -1 if it has none that is known before, and whether it is 2xx.
func answerHead(head []byte) (size int, ok bool) {
	if len(head) < len("HTTP/1.1 200") || !bytes.HasPrefix(head, []byte("HTTP/1.")) {
		return -1, false
	}
	ok = head[9] == '2'
	for rest := head; len(rest) > len(lengthField); {
		if len(rest) > len(lengthField) && bytes.EqualFold(rest[:len(lengthField)], lengthField) {
			value := rest[len(lengthField):]
			value = bytes.TrimSpace(value[:bytes.IndexByte(value, '\r')])
			size, err := strconv.Atoi(string(value))
			if err != nil {
				return -1, ok
			}
			return size, ok
		}
		i := bytes.IndexByte(rest[1:], '\r')
		if i < 0 {
			break
		}
		rest = rest[1+i:]
	}
	return -1, ok
}

// finish counts what was not answered and computes the quantiles.
func (g *generator) finish() loadResult {
	for _, c := range g.conns {
		if c.busy && c.due >= g.from {
			g.result.Late++
		}
	}
	for _, due := range g.waiting {
		if due >= g.from {
			g.result.Late++
		}
	}
	g.result.Requests += g.result.Late
	if g.result.Latencies != nil {
		for _, ns := range g.samples {
			g.result.Latencies.add(ns)
		}
	}
	g.result.quantiles(g.samples)
	return g.result
}

// quantiles sorts the samples.
func (r *loadResult) quantiles(samples []int64) {
	n := len(samples)
	if n == 0 {
		return
	}
	slices.Sort(samples)
	at := func(q float64) int64 { return samples[min(n-1, int(q*float64(n)))] }
	r.P50, r.P90, r.P99, r.Max = at(0.5), at(0.9), at(0.99), samples[n-1]
}
