//go:build linux

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The backend and the load generator are loops on raw descriptors: they must cost less than the proxy between them,
// or the proxy is never saturated. Their loops make system calls that the Go scheduler does not see, allocate
// next to nothing, and put the collector off until there is much to collect.

// loopProcess prepares the process and thread for a raw loop.
func loopProcess() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)
	runtime.LockOSThread()
	// 50 us of timer slack would blur the schedule of the generator.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

// goRealtime lets the loop's thread run before all that is not of real time. Where latency is measured, what waits for a processor is to be the
// proxy: the clients and the backends would be other machines.
func goRealtime() error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("sched_setattr: %w", err)
	}
	return nil
}

// mayRealtime reports whether goRealtime is permitted.
func mayRealtime() bool {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		done <- goRealtime()
	}()
	return <-done == nil
}

// poller is an epoll descriptor.
type poller struct {
	fd     int
	events [256]unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	return &poller{fd: fd}, nil
}

// edge is what connections are registered for: once, edge-triggered, so that no other epoll_ctl is needed.
const edge = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

func (p *poller) add(fd int, events uint32) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// wait returns the events, or none after timeout nanoseconds (less than 0: never). One that is due now only looks.
func (p *poller) wait(timeout int64) []unix.EpollEvent {
	var ts *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(timeout)
		ts = &t
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])),
		uintptr(len(p.events)), uintptr(unsafe.Pointer(ts)), 0, 0)
	if errno != 0 {
		runtime.Gosched() // EINTR: the scheduler may want something
		return nil
	}
	return p.events[:n]
}

// now is the monotonic clock in nanoseconds.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// read returns 0 bytes and no error when there is nothing to read now.
func read(fd int, b []byte) (n int, eof bool, err error) {
	r, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, false, nil
	case errno != 0:
		return 0, false, errno
	}
	return int(r), r == 0, nil
}

// write returns 0 bytes and no error when nothing can be written now.
func write(fd int, b []byte) (int, error) {
	r, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, nil
	case errno != 0:
		return 0, errno
	}
	return int(r), nil
}

// listen opens a socket on a free port of the loopback interface. With backlog 0 it is only bound: connections to it
// are refused, and nobody else gets the port.
func listen(backlog int) (fd, port int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, 0, fmt.Errorf("bind: %w", err)
	}
	if backlog > 0 {
		if err := unix.Listen(fd, backlog); err != nil {
			return 0, 0, fmt.Errorf("listen: %w", err)
		}
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, 0, fmt.Errorf("getsockname: %w", err)
	}
	return fd, name.(*unix.SockaddrInet4).Port, nil
}

// sources is how many addresses dial may come from: the ports of one do not suffice for tens of thousands of connections.
const sources = 32

// dial connects to a port of the loopback interface and makes the descriptor non-blocking. source is the last byte of the address that it
// comes from, 0 for any.
func dial(port, source int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	if source != 0 {
		// The port is left to connect, which knows what is free towards the other side.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, byte(source)}}); err != nil {
			unix.Close(fd)
			return 0, fmt.Errorf("bind: %w", err)
		}
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("connect to port %d: %w", port, err)
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}
