//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// role is how a port of the backend answers.
type role string

const (
	roleFast      role = "fast"      // 1 KiB, at once
	roleSecond    role = "second"    // the same, for the smaller part of a split
	roleLarge     role = "large"     // 100 KiB, at once
	roleMirror    role = "mirror"    // 1 KiB, at once; target of mirrors
	roleSlow      role = "slow"      // 1 KiB, after slowDelay
	roleGarbage   role = "garbage"   // bytes that are not HTTP, then the end of the connection
	roleBlackhole role = "blackhole" // accepts and never reads
	roleRefuse    role = "refuse"    // no connections
	roleGRPC      role = "grpc"      // a gRPC message of 1 KiB for each that comes
)

var roles = []role{roleFast, roleSecond, roleLarge, roleMirror, roleSlow, roleGarbage, roleBlackhole, roleRefuse, roleGRPC}

const slowDelay = 200 * time.Millisecond

// port is one of the backend's listening sockets.
type port struct {
	role     role
	fd       int
	number   int
	answer   []byte
	requests uint64
	conns    uint64
}

// peerConn is a connection to the backend.
type peerConn struct {
	fd    int
	port  *port
	buf   []byte // of which n bytes are unread
	n     int
	skip  int    // bytes of a request's body still to come
	chunk bool   // a chunked body is still to come
	out   []byte // not yet written
	epoch uint32 // counts the connections that used this struct
	last  bool   // close when out is written

	grpc     *grpcConn // on the gRPC port
	prefaced bool      // whose preface has come
}

// delayed is an answer that is due later.
type delayed struct {
	due   int64
	conn  *peerConn
	epoch uint32
}

// backend answers on all ports from one loop.
type backend struct {
	poller  *poller
	ports   []*port
	byFD    []*peerConn // index: descriptor
	accepts []*port     // index: descriptor
	free    []*peerConn
	later   []delayed // in order of due
}

// serveBackend is the subcommand "backend": it prints its ports by role as JSON, then serves until it is killed.
func serveBackend(args []string, out io.Writer) error {
	f := flag.NewFlagSet("backend", flag.ExitOnError)
	realtime := f.Bool("realtime", false, "as the generator's")
	_ = f.Parse(args)
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
	b := &backend{poller: p, byFD: make([]*peerConn, 1<<16), accepts: make([]*port, 1<<16)}
	numbers := map[role]int{}
	for _, r := range roles {
		backlog := 4096
		if r == roleRefuse {
			backlog = 0
		}
		fd, number, err := listen(backlog)
		if err != nil {
			return err
		}
		numbers[r] = number
		pt := &port{role: r, fd: fd, number: number, answer: answer(r)}
		b.ports = append(b.ports, pt)
		if r == roleRefuse {
			continue
		}
		b.accepts[fd] = pt
		if err := p.add(fd, unix.EPOLLIN); err != nil {
			return fmt.Errorf("epoll_ctl: %w", err)
		}
	}
	if err := json.NewEncoder(out).Encode(numbers); err != nil {
		return err
	}
	b.run()
	return nil
}

// answer is the whole response of a role.
func answer(r role) []byte {
	size := 1 << 10
	switch r {
	case roleLarge:
		size = 100 << 10
	case roleGarbage:
		return []byte("\x16\x03\x01 this is not HTTP \x00\xff\r\n\r\n")
	}
	head := "HTTP/1.1 200 OK\r\nServer: backend\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n" +
		"Content-Type: text/plain\r\nCache-Control: no-store\r\nETag: \"5f3c\"\r\nVary: Accept-Encoding\r\n" +
		"X-Backend: " + string(r) + "\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n"
	return append([]byte(head), bytes.Repeat([]byte{'x'}, size)...)
}

func (b *backend) run() {
	for {
		for _, e := range b.poller.wait(b.untilNext()) {
			fd := int(e.Fd)
			if pt := b.accepts[fd]; pt != nil {
				b.accept(pt)
				continue
			}
			c := b.byFD[fd]
			switch {
			case c == nil:
			case e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 || c.port.role == roleBlackhole:
				if e.Events&(unix.EPOLLERR|unix.EPOLLHUP|unix.EPOLLRDHUP) != 0 {
					b.close(c)
				}
			default:
				if c.grpc != nil {
					b.readableGRPC(c)
					continue
				}
				if e.Events&unix.EPOLLOUT != 0 && len(c.out) > 0 && !b.flush(c) {
					continue
				}
				if e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0 {
					b.readable(c)
				}
			}
		}
		b.answerDue()
	}
}

// untilNext is how long until an answer is due, -1 for never.
func (b *backend) untilNext() int64 {
	if len(b.later) == 0 {
		return -1
	}
	return max(0, b.later[0].due-now())
}

func (b *backend) answerDue() {
	done := 0
	for t := int64(0); done < len(b.later); done++ {
		d := b.later[done]
		if d.due > t {
			if t = now(); d.due > t {
				break
			}
		}
		if d.conn.epoch == d.epoch {
			b.send(d.conn, d.conn.port.answer)
		}
	}
	b.later = append(b.later[:0], b.later[done:]...)
}

func (b *backend) accept(pt *port) {
	for range 64 {
		fd, _, err := unix.Accept4(pt.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return // EAGAIN, or the client has gone; out of descriptors shows as timeouts
		}
		if fd >= len(b.byFD) {
			unix.Close(fd)
			return
		}
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		pt.conns++
		var c *peerConn
		if n := len(b.free); n > 0 {
			c, b.free = b.free[n-1], b.free[:n-1]
		} else {
			c = &peerConn{buf: make([]byte, 16<<10)}
		}
		*c = peerConn{fd: fd, port: pt, buf: c.buf, epoch: c.epoch}
		if pt.role == roleGRPC {
			c.grpc = newGRPCConn(pt)
		}
		b.byFD[fd] = c
		events := uint32(edge)
		if pt.role == roleBlackhole {
			events = unix.EPOLLRDHUP | unix.EPOLLET
		}
		if err := b.poller.add(fd, events); err != nil {
			b.close(c)
		}
	}
}

func (b *backend) close(c *peerConn) {
	b.byFD[c.fd] = nil
	unix.Close(c.fd)
	c.epoch++
	b.free = append(b.free, c)
}

func (b *backend) readable(c *peerConn) {
	for {
		room := len(c.buf) - c.n
		n, eof, err := read(c.fd, c.buf[c.n:])
		if err != nil || eof || room == 0 {
			b.close(c)
			return
		}
		c.n += n
		if n == 0 || !b.requests(c) || n < room {
			return
		}
	}
}

var (
	headEnd  = []byte("\r\n\r\n")
	lastPart = []byte("0\r\n\r\n")
	length   = []byte("content-length:")
	chunked  = []byte("transfer-encoding: chunked")
	special  = []byte("/_")
)

// requests serves what is whole in the buffer; false when the connection is closed.
func (b *backend) requests(c *peerConn) bool {
	at := 0
	for at < c.n {
		rest := c.buf[at:c.n]
		if c.skip > 0 {
			n := min(c.skip, len(rest))
			c.skip -= n
			at += n
			if c.skip == 0 && !b.respond(c, nil) {
				return false
			}
			continue
		}
		if c.chunk {
			end := bytes.Index(rest, lastPart)
			if end < 0 {
				keep := min(len(rest), len(lastPart)-1)
				at = c.n - keep
				break
			}
			c.chunk = false
			at += end + len(lastPart)
			if !b.respond(c, nil) {
				return false
			}
			continue
		}
		end := bytes.Index(rest, headEnd)
		if end < 0 {
			break
		}
		head := rest[:end+2]
		at += end + len(headEnd)
		c.port.requests++
		if head[0] != 'G' { // only GET comes without a body here
			c.skip, c.chunk = bodyOf(head)
			if c.skip > 0 || c.chunk {
				continue
			}
		}
		if !b.respond(c, head) {
			return false
		}
	}
	copy(c.buf, c.buf[at:c.n])
	c.n -= at
	return true
}

// bodyOf finds the framing of a request's body.
func bodyOf(head []byte) (size int, isChunked bool) {
	lower := bytes.ToLower(head)
	if bytes.Contains(lower, chunked) {
		return 0, true
	}
	i := bytes.Index(lower, length)
	if i < 0 {
		return 0, false
	}
	value := lower[i+len(length):]
	value = value[:bytes.IndexByte(value, '\r')]
	size, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
	return size, false
}

// respond answers a request; false when the connection is closed.
func (b *backend) respond(c *peerConn, head []byte) bool {
	switch {
	case bytes.Contains(head[:min(len(head), 48)], special):
		return b.send(c, b.control(head))
	case c.port.role == roleSlow:
		b.later = append(b.later, delayed{now() + int64(slowDelay), c, c.epoch})
		return true
	case c.port.role == roleGarbage:
		c.last = true
	}
	return b.send(c, c.port.answer)
}

// control answers /_count with the requests and connections of each role, and other paths with a "/_" near their
// start with the head that arrived.
func (b *backend) control(head []byte) []byte {
	body := head
	if bytes.HasPrefix(head, []byte("GET /_count ")) {
		counts := map[role][2]uint64{}
		for _, p := range b.ports {
			counts[p.role] = [2]uint64{p.requests, p.conns}
		}
		body, _ = json.Marshal(counts)
	}
	return append([]byte("HTTP/1.1 200 OK\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"), body...)
}

// send writes an answer, and keeps what does not go out at once; false when the connection is closed.
func (b *backend) send(c *peerConn, data []byte) bool {
	if len(c.out) > 0 {
		c.out = append(bytes.Clone(c.out), data...)
		return true
	}
	c.out = data
	return b.flush(c)
}

func (b *backend) flush(c *peerConn) bool {
	for len(c.out) > 0 {
		n, err := write(c.fd, c.out)
		if err != nil {
			b.close(c)
			return false
		}
		if n == 0 {
			return true
		}
		c.out = c.out[n:]
	}
	if c.last {
		b.close(c)
		return false
	}
	return true
}

// startBackend starts the backend on the load's processor and reads its ports.
func (b *bench) startBackend(args ...string) (map[role]int, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	_, err = b.start("backend", b.loadCPU, in, append([]string{self, "backend"}, args...)...)
	in.Close()
	if err != nil {
		return nil, err
	}
	ports := map[role]int{}
	if err := json.NewDecoder(out).Decode(&ports); err != nil {
		return nil, fmt.Errorf("ports of the backend: %w", err)
	}
	return ports, nil
}
