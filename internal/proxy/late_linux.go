package proxy

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

	"github.com/weirmesh/weir/internal/socket"
)

// lateSocket is an accepted connection that the runtime's poller does not know before something has to wait for it. One that brings its request
// along, is answered and closed never gets there, and is spared entering and leaving the poller.
type lateSocket struct {
	fd     int
	remote *net.TCPAddr
	polled atomic.Pointer[polledSocket] // once something waited; it owns fd then

	mu              sync.Mutex
	users           int // of fd, that came before polled was set
	closed          bool
	readBy, writeBy time.Time // deadlines, for polled
}

type polledSocket struct {
	*os.File
	raw syscall.RawConn
}

// unpolled is true as long as nothing has waited.
func (l *lateSocket) unpolled() bool { return l.polled.Load() == nil }

// enter claims fd, which is not closed before leave.
func (l *lateSocket) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.users++
	return true
}

func (l *lateSocket) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users == 0 && l.closed {
		l.release()
	}
}

// release wants l.mu to be held.
func (l *lateSocket) release() error {
	if p := l.polled.Load(); p != nil {
		return p.Close()
	}
	return socket.Close(l.fd)
}

// poll gives the socket to the runtime's poller.
func (l *lateSocket) poll() (*polledSocket, error) {
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
	p := &polledSocket{File: os.NewFile(uintptr(l.fd), "client")}
	p.raw, _ = p.SyscallConn() // fails for no file
	l.polled.Store(p)
	return p, errors.Join(p.SetReadDeadline(l.readBy), p.SetWriteDeadline(l.writeBy))
}

// Close implements net.Conn. While fd is in use it is shut down, and closed by the last user.
func (l *lateSocket) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	if l.users > 0 {
		return unix.Shutdown(l.fd, unix.SHUT_RDWR)
	}
	return l.release()
}

func (l *lateSocket) Read(b []byte) (int, error) {
	p, err := l.poll()
	if err != nil {
		return 0, err
	}
	return p.Read(b)
}

func (l *lateSocket) Write(b []byte) (int, error) {
	p, err := l.poll()
	if err != nil {
		return 0, err
	}
	return p.Write(b)
}

// ReadFrom implements io.ReaderFrom; between sockets it moves the bytes without copying them through the process.
func (l *lateSocket) ReadFrom(r io.Reader) (int64, error) {
	p, err := l.poll()
	if err != nil {
		return 0, err
	}
	return p.ReadFrom(r)
}

func (l *lateSocket) CloseWrite() error {
	return l.with(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

// SetLinger is what *net.TCPConn has.
func (l *lateSocket) SetLinger(seconds int) error {
	o := &unix.Linger{Onoff: 1, Linger: int32(seconds)}
	if seconds < 0 {
		o = &unix.Linger{}
	}
	return l.with(func(fd int) error { return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, o) })
}

// with calls f with the descriptor.
func (l *lateSocket) with(f func(fd int) error) error {
	var err error
	return errors.Join((*lateRaw)(l).Control(func(fd uintptr) { err = f(int(fd)) }), err)
}

func (l *lateSocket) RemoteAddr() net.Addr { return l.remote }

func (l *lateSocket) LocalAddr() net.Addr {
	var local netip.AddrPort
	l.with(func(fd int) (err error) {
		local, err = socket.Local(uintptr(fd))
		return err
	})
	return tcpAddr(local)
}

func (l *lateSocket) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}

func (l *lateSocket) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readBy = t
	if p := l.polled.Load(); p != nil {
		return p.SetReadDeadline(t)
	}
	return nil
}

func (l *lateSocket) SetWriteDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writeBy = t
	if p := l.polled.Load(); p != nil {
		return p.SetWriteDeadline(t)
	}
	return nil
}

// SyscallConn implements syscall.Conn.
func (l *lateSocket) SyscallConn() (syscall.RawConn, error) { return (*lateRaw)(l), nil }

// lateRaw is a lateSocket's syscall.RawConn. Deadlines hold for waiting only: what is ready is read and written before they are looked at.
type lateRaw lateSocket

func (r *lateRaw) Control(f func(fd uintptr)) error {
	l := (*lateSocket)(r)
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

func (r *lateRaw) Read(f func(fd uintptr) bool) error {
	return (*lateSocket)(r).try(f, syscall.RawConn.Read)
}

func (r *lateRaw) Write(f func(fd uintptr) bool) error {
	return (*lateSocket)(r).try(f, syscall.RawConn.Write)
}

// attempt calls f once, and reports what it did.
func (l *lateSocket) attempt(f func(fd uintptr) bool) (done bool, err error) {
	if !l.enter() {
		return false, net.ErrClosed
	}
	defer l.leave()
	return f(uintptr(l.fd)), nil
}

// try calls f, and waits with the poller if that was not enough.
func (l *lateSocket) try(f func(fd uintptr) bool, wait func(syscall.RawConn, func(fd uintptr) bool) error) error {
	if l.polled.Load() == nil {
		if done, err := l.attempt(f); err != nil || done {
			return err
		}
	}
	p, err := l.poll()
	if err != nil {
		return err
	}
	return wait(p.raw, f)
}
