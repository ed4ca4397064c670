package socket

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is an accepted connection that the runtime's poller does not know before something has to wait for it. If its
// request has already arrived, and it is answered and closed, it never enters the poller and saves the cost.
type Conn struct {
	fd     int
	remote *net.TCPAddr
	polled atomic.Pointer[polledFile] // once something waited; it owns fd then

	mu              sync.Mutex
	users           int // of fd, that came before polled was set
	closed          bool
	readBy, writeBy time.Time // deadlines, for polled
}

type polledFile struct {
	*os.File
	raw syscall.RawConn
}

// NewConn makes a Conn of a socket that is connected and non-blocking, whose descriptor it owns from now on.
func NewConn(fd int, remote *net.TCPAddr) *Conn { return &Conn{fd: fd, remote: remote} }

// Unpolled is true as long as nothing has waited.
func (l *Conn) Unpolled() bool { return l.polled.Load() == nil }

// enter claims fd, which is not closed before leave.
func (l *Conn) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.users++
	return true
}

func (l *Conn) leave() {
	l.mu.Lock()
	l.users--
	last := l.users == 0 && l.closed
	l.mu.Unlock()
	if last {
		l.release()
	}
}

// release closes the socket, once closed is set. It wants l.mu not to be held: a polled file waits for the callbacks of RawConn that are under way, and
// these may wait for somebody who sets a deadline.
func (l *Conn) release() error {
	if p := l.polled.Load(); p != nil {
		return p.Close()
	}
	return Close(l.fd)
}

// poll gives the socket to the runtime's poller.
func (l *Conn) poll() (*polledFile, error) {
	if p := l.polled.Load(); p != nil {
		return p, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	if p := l.polled.Load(); p != nil {
		return p, nil
	}
	p := &polledFile{File: os.NewFile(uintptr(l.fd), "client")}
	p.raw, _ = p.SyscallConn() // fails for no file
	l.polled.Store(p)
	return p, errors.Join(p.SetReadDeadline(l.readBy), p.SetWriteDeadline(l.writeBy))
}

// Close implements net.Conn. While fd is in use it is shut down, and closed by the last user.
func (l *Conn) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return net.ErrClosed
	}
	l.closed = true
	if l.users > 0 {
		defer l.mu.Unlock()
		return unix.Shutdown(l.fd, unix.SHUT_RDWR)
	}
	l.mu.Unlock()
	return l.release()
}

func (l *Conn) Read(b []byte) (int, error) {
	p, err := l.poll()
	if err != nil {
		return 0, err
	}
	return p.Read(b)
}

func (l *Conn) Write(b []byte) (int, error) {
	p, err := l.poll()
	if err != nil {
		return 0, err
	}
	return p.Write(b)
}

// ReadFrom implements io.ReaderFrom; between sockets it moves the bytes without copying them through the process.
func (l *Conn) ReadFrom(r io.Reader) (int64, error) {
	p, err := l.poll()
	if err != nil {
		return 0, err
	}
	return p.ReadFrom(r)
}

func (l *Conn) CloseWrite() error {
	return l.with(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

// SetLinger is as in *net.TCPConn.
func (l *Conn) SetLinger(seconds int) error {
	o := &unix.Linger{Onoff: 1, Linger: int32(seconds)}
	if seconds < 0 {
		o = &unix.Linger{}
	}
	return l.with(func(fd int) error { return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, o) })
}

// with calls f with the descriptor.
func (l *Conn) with(f func(fd int) error) error {
	var err error
	return errors.Join((*connRaw)(l).Control(func(fd uintptr) { err = f(int(fd)) }), err)
}

func (l *Conn) RemoteAddr() net.Addr { return l.remote }

func (l *Conn) LocalAddr() net.Addr {
	var local netip.AddrPort
	l.with(func(fd int) (err error) {
		local, err = Local(uintptr(fd))
		return err
	})
	return tcpAddr(local)
}

func (l *Conn) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}

func (l *Conn) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readBy = t
	if p := l.polled.Load(); p != nil {
		return p.SetReadDeadline(t)
	}
	return nil
}

func (l *Conn) SetWriteDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writeBy = t
	if p := l.polled.Load(); p != nil {
		return p.SetWriteDeadline(t)
	}
	return nil
}

// SyscallConn implements syscall.Conn.
func (l *Conn) SyscallConn() (syscall.RawConn, error) { return (*connRaw)(l), nil }

// connRaw is a Conn's syscall.RawConn. Deadlines only bound waiting: ready data is read and written before they are
// checked.
type connRaw Conn

func (r *connRaw) Control(f func(fd uintptr)) error {
	l := (*Conn)(r)
	if p := l.polled.Load(); p != nil {
		return p.raw.Control(f)
	}
	if !l.enter() {
		return net.ErrClosed
	}
	defer l.leave()
	f(uintptr(l.fd))
	return nil
}

func (r *connRaw) Read(f func(fd uintptr) bool) error {
	return (*Conn)(r).try(f, syscall.RawConn.Read)
}

func (r *connRaw) Write(f func(fd uintptr) bool) error {
	return (*Conn)(r).try(f, syscall.RawConn.Write)
}

// Attempt calls f once, and returns its result.
func (l *Conn) Attempt(f func(fd uintptr) bool) (done bool, err error) {
	if !l.enter() {
		return false, net.ErrClosed
	}
	defer l.leave()
	return f(uintptr(l.fd)), nil
}

// try calls f, and waits with the poller if that was not enough.
func (l *Conn) try(f func(fd uintptr) bool, wait func(syscall.RawConn, func(fd uintptr) bool) error) error {
	if l.polled.Load() == nil {
		if done, err := l.Attempt(f); err != nil || done {
			return err
		}
	}
	p, err := l.poll()
	if err != nil {
		return err
	}
	return wait(p.raw, f)
}
