package socket

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Poller waits for any number of idle sockets, without a goroutine for each. The runtime's poller waits for the Poller
// itself, so it holds no thread. One goroutine calls Wait and Look; the rest may be called by any.
type Poller struct {
	fd     int // epoll descriptor, also file's
	file   *os.File
	raw    syscall.RawConn
	ready  func(fd int32)
	step   func(fd uintptr) bool
	events [128]unix.EpollEvent
}

// NewPoller fails where there is no epoll, with errors.ErrUnsupported, and for want of descriptors.
func NewPoller() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // lets os wait for it
		unix.Close(fd)
		return nil, fmt.Errorf("fcntl: %w", err)
	}
	p := &Poller{fd: fd, file: os.NewFile(uintptr(fd), "poller")}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		p.file.Close()
		return nil, err
	}
	p.step = p.look
	return p, nil
}

// Watch lets Wait report a socket once, when there is something to read, or its end. Data that has already arrived is
// reported at once. A closed socket is forgotten.
func (p *Poller) Watch(fd int32) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: fd}
	err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, int(fd), &event)
	if err == unix.ENOENT {
		err = unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, int(fd), &event)
	}
	return err
}

// Wait calls ready with each socket that can be read. It ends with an error: os.ErrDeadlineExceeded at the time that WakeAt set, another after
// Close.
func (p *Poller) Wait(ready func(fd int32)) error {
	p.ready = ready
	return p.raw.Read(p.step)
}

// Look is Wait without waiting.
func (p *Poller) Look(ready func(fd int32)) {
	p.ready = ready
	p.look(uintptr(p.fd))
}

// look reports false, as there may be more later.
func (p *Poller) look(uintptr) bool {
	for {
		n, _ := Ready(p.fd, p.events[:])
		for i := range p.events[:n] {
			p.ready(p.events[i].Fd)
		}
		if n < len(p.events) {
			return false
		}
	}
}

// WakeAt has Wait return at t; zero is never.
func (p *Poller) WakeAt(t time.Time) { p.file.SetReadDeadline(t) }

// Close ends Wait.
func (p *Poller) Close() error { return p.file.Close() }
