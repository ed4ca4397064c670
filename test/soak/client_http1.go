//go:build unix

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// clientOptions are those of one client.
type clientOptions struct {
	name   string // of the protocol, in the report
	target target
	secure bool
	// uses bounds the requests of a connection, so that there are new ones all along; 0: no bound. Over HTTP/1.1 the last says Connection: close.
	uses int
}

// startClients starts the load.
func (s *soak) startClients(wg *sync.WaitGroup) {
	many := func(n int, f func()) {
		for range n * s.width {
			wg.Go(f)
		}
	}
	http1 := func(o clientOptions) func() { return func() { (&http1Client{s: s, o: o}).run() } }
	many(2, http1(clientOptions{name: "HTTP/1.1", target: s.mains}))
	many(1, http1(clientOptions{name: "HTTP/1.1 balanced", target: s.balanced}))
	many(1, http1(clientOptions{name: "HTTP/1.1 fresh", target: s.mains, uses: 1}))
	many(1, http1(clientOptions{name: "HTTP/1.1 fresh", target: s.balanced, uses: 1}))
	many(1, http1(clientOptions{name: "HTTP/1.1 passing", target: s.passing}))
	many(1, http1(clientOptions{name: "HTTP/1.1 TLS", target: s.mains, secure: true, uses: 50}))
	http2 := func(o clientOptions) { newHTTP2Client(s, o).start(wg, 2*s.width) }
	http2(clientOptions{name: "HTTP/2", target: s.mains})
	http2(clientOptions{name: "HTTP/2", target: s.mains})
	http2(clientOptions{name: "HTTP/2 balanced", target: s.balanced})
	http2(clientOptions{name: "HTTP/2 passing", target: s.passing})
	http2(clientOptions{name: "HTTP/2 TLS", target: s.mains, secure: true, uses: 2000})
	for _, o := range []clientOptions{
		{name: "gRPC", target: s.mains}, {name: "gRPC balanced", target: s.balanced}, {name: "gRPC TLS", target: s.mains, secure: true},
	} {
		c := newGRPCClient(s, o)
		wg.Go(func() { c.run(s.width, s.width, s.endless) })
	}
}

// operation is one request: what is asked for, and what has to come back.
type operation struct {
	method, path, id string
	body             []byte // sent
	chunked          bool   // sent so
	want             []byte
	sum              bool // a trailer tells the length
}

var sizes = []int{0, 100, 100, 1000, 1000, 4000, 20_000}

// nextOperation draws one.
func nextOperation(r *rand.Rand) operation {
	n := sizes[r.IntN(len(sizes))]
	if r.IntN(200) == 0 {
		n = 300_000
	}
	o := r.IntN(len(block) - n)
	p := block[o : o+n]
	what := strconv.Itoa(o) + "-" + strconv.Itoa(n)
	op := operation{id: strconv.FormatUint(r.Uint64(), 36), method: "GET"}
	switch k := r.IntN(10); {
	case k < 5:
		op.path, op.want = "/get/"+what, p
	case k < 6:
		op.path, op.method = "/get/"+what, "HEAD"
	case k < 7:
		op.path, op.want, op.sum = "/chunked/"+what, p, true
	default:
		op.path, op.method, op.body, op.chunked, op.want = "/echo/"+what, "POST", p, k == 9, p
		if n > echoed {
			op.want = []byte(strconv.Itoa(n))
		}
	}
	return op
}

// http1Client sends one request after the other over a connection that it keeps, as long as the server does.
type http1Client struct {
	s    *soak
	o    clientOptions
	nc   net.Conn
	raw  syscall.RawConn
	r    *bufio.Reader
	uses int
	out  []byte
	body []byte
	took []uint32
}

func (c *http1Client) run() {
	s := c.s
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	c.body = make([]byte, len(block))
	for s.more() {
		op := nextOperation(r)
		for {
			if err := c.connect(); err != nil {
				s.sent.Add(-1)
				if errors.Is(err, errOver) {
					break
				}
				s.diary.fail(c.o.name, err)
				time.Sleep(100 * time.Millisecond)
				break
			}
			s.gate.RLock()
			if c.uses > 0 && ended(c.raw) {
				s.gate.RUnlock()
				s.diary.note(c.o.name + ": the server closed an idle connection; another was opened")
				c.close()
				continue
			}
			begun := time.Now()
			err := c.exchange(&op)
			s.gate.RUnlock()
			if err != nil {
				s.diary.fail(c.o.name, fmt.Errorf("%s %s, request %d of its connection: %w", op.method, op.path, c.uses+1, err))
				c.close()
				break
			}
			c.took = append(c.took, uint32(min(time.Since(begun).Microseconds(), 1<<31)))
			break
		}
	}
	c.close()
	s.answers.add(c.o.name, c.took)
}

func (c *http1Client) connect() error {
	if c.nc != nil {
		return nil
	}
	oldest := c.s.truth.certConfirmed.Load()
	nc, err := c.o.target.dial(c.s.ports, c.o.secure)
	if err != nil {
		return err
	}
	if c.raw, err = nc.(*net.TCPConn).SyscallConn(); err != nil {
		return err
	}
	if c.o.secure {
		t := tls.Client(nc, c.s.tls.client(c.s, "web.example", "http/1.1"))
		t.SetDeadline(time.Now().Add(patience))
		if err := t.Handshake(); err != nil {
			nc.Close()
			return fmt.Errorf("TLS handshake: %w", err)
		}
		if err := c.s.checkCertificate(oldest, t.ConnectionState()); err != nil {
			nc.Close()
			return err
		}
		nc = t
	}
	c.nc, c.uses = nc, 0
	if c.r == nil {
		c.r = bufio.NewReaderSize(nc, 16<<10)
	}
	c.r.Reset(nc)
	return nil
}

func (c *http1Client) close() {
	if c.nc != nil {
		c.nc.Close()
		c.nc = nil
	}
}

// exchange sends a request and judges the answer.
func (c *http1Client) exchange(op *operation) error {
	oldest := c.s.truth.confirmed.Load()
	out := fmt.Appendf(c.out[:0], "%s %s HTTP/1.1\r\nHost: web.example\r\n%s: %s\r\n%s: 1\r\n", op.method, op.path, fieldID, op.id, fieldMark)
	last := c.uses+1 == c.o.uses
	if last {
		out = append(out, "Connection: close\r\n"...)
	}
	switch {
	case op.chunked:
		out = append(out, "Transfer-Encoding: chunked\r\n\r\n"...)
		for rest := op.body; len(rest) > 0; {
			n := min(len(rest), 30_000)
			out = fmt.Appendf(out, "%x\r\n", n)
			out = append(append(out, rest[:n]...), "\r\n"...)
			rest = rest[n:]
		}
		out = append(out, "0\r\n\r\n"...)
	case op.method == "POST":
		out = fmt.Appendf(out, "Content-Length: %d\r\n\r\n", len(op.body))
		out = append(out, op.body...)
	default:
		out = append(out, "\r\n"...)
	}
	c.out = out
	c.nc.SetDeadline(time.Now().Add(patience))
	if _, err := c.nc.Write(out); err != nil {
		return fmt.Errorf("sending the request: %w", err)
	}
	status, h, err := c.head()
	if err != nil {
		return fmt.Errorf("reading the answer's head: %w", err)
	}
	got, sum, err := c.readBody(op.method, h)
	if err != nil {
		return fmt.Errorf("reading the answer's body: %w", err)
	}
	c.uses++
	switch {
	case last:
		if _, err := c.r.ReadByte(); err != io.EOF {
			return fmt.Errorf("the connection did not end when it was asked to: %w", err)
		}
		c.close()
	case h.close:
		c.s.diary.note(c.o.name + ": an answer said Connection: close; another connection was opened")
		c.close()
	}
	switch {
	case status != 200:
		return fmt.Errorf("status %d: %.200q", status, got)
	case !bytes.Equal(got, op.want):
		return fmt.Errorf("the body has %d bytes, %d were expected, or others", len(got), len(op.want))
	case op.sum && sum != strconv.Itoa(len(op.want)):
		return fmt.Errorf("the trailer says %q, not %d", sum, len(op.want))
	}
	return c.s.truth.judge(oldest, &answer{h.id, op.id, h.config, h.version, h.seen})
}

// http1Head is what matters of an answer's head.
type http1Head struct {
	length                    int
	chunked, close            bool
	id, config, version, seen string
}

func (c *http1Client) line() (string, error) {
	l, err := c.r.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(string(l), "\r\n"), nil
}

func (c *http1Client) head() (status int, h http1Head, err error) {
	l, err := c.line()
	if err != nil {
		return 0, h, err
	}
	if len(l) < 12 || l[:9] != "HTTP/1.1 " {
		return 0, h, fmt.Errorf("status line %q", l)
	}
	if status, err = strconv.Atoi(l[9:12]); err != nil {
		return 0, h, fmt.Errorf("status line %q", l)
	}
	for h.length = -1; ; {
		if l, err = c.line(); err != nil || l == "" {
			return status, h, err
		}
		name, value, _ := strings.Cut(l, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "content-length":
			h.length, err = strconv.Atoi(value)
		case "transfer-encoding":
			h.chunked = value == "chunked"
		case "connection":
			h.close = value == "close"
		case fieldID:
			h.id = value
		case fieldConfig:
			h.config = value
		case fieldVersion:
			h.version = value
		case fieldSeen:
			h.seen = value
		}
		if err != nil {
			return 0, h, err
		}
	}
}

// readBody reads a body and the trailer with its length.
func (c *http1Client) readBody(method string, h http1Head) (body []byte, sum string, err error) {
	switch {
	case method == "HEAD":
		return nil, "", nil
	case h.chunked:
		n := 0
		for {
			l, err := c.line()
			if err != nil {
				return nil, "", err
			}
			size, err := strconv.ParseUint(l, 16, 31)
			if err != nil || n+int(size) > len(c.body) {
				return nil, "", fmt.Errorf("chunk of size %q", l)
			}
			if size == 0 {
				break
			}
			if _, err := io.ReadFull(c.r, c.body[n:n+int(size)]); err != nil {
				return nil, "", err
			}
			n += int(size)
			if l, err = c.line(); err != nil || l != "" {
				return nil, "", fmt.Errorf("after a chunk: %q, %w", l, err)
			}
		}
		for {
			l, err := c.line()
			if err != nil || l == "" {
				return c.body[:n], sum, err
			}
			if name, value, _ := strings.Cut(l, ":"); strings.EqualFold(name, fieldSum) {
				sum = strings.TrimSpace(value)
			}
		}
	case h.length < 0 || h.length > len(c.body):
		return nil, "", fmt.Errorf("content length %d", h.length)
	}
	_, err = io.ReadFull(c.r, c.body[:h.length])
	return c.body[:h.length], "", err
}
