package socket

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
)

// Queue takes connections from the queue of a listening socket in batches, and waits for them. They become Conns, which the
// library's Accept cannot give, and no call is announced to the scheduler: see Accept.
type Queue struct {
	file *os.File // a second descriptor of the socket
	raw  syscall.RawConn
}

// acceptBatch bounds how many connections are accepted before the accept loop checks its other tasks.
const acceptBatch = 64

// OpenQueue is nil if connections have to come from Accept.
func OpenQueue(ln net.Listener) *Queue {
	l, ok := ln.(*net.TCPListener)
	if !ok {
		return nil
	}
	f, err := l.File()
	if err != nil {
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil || bequeath(raw) != nil { // it may be another process's that did not
		f.Close()
		return nil
	}
	return &Queue{f, raw}
}

// Take calls start with new connections, until an error, or until busy reports that the caller has something else to
// do. It calls busy before it accepts connections, at least once in acceptBatch of them, and after each wait.
func (q *Queue) Take(busy func() bool, start func(net.Conn)) error {
	var failed error
	err := q.raw.Read(func(fd uintptr) bool {
		for {
			if busy() {
				return true
			}
			more, err := acceptSome(fd, acceptBatch, start)
			if err != nil {
				failed = os.NewSyscallError("accept4", err)
				return true
			}
			if !more {
				return false
			}
		}
	})
	if err == nil {
		err = failed
	}
	return err
}

// Wake makes Take return with an error, now and later.
func (q *Queue) Wake() {
	if q != nil {
		q.file.SetReadDeadline(LongAgo)
	}
}

func (q *Queue) Close() {
	if q != nil {
		q.file.Close()
	}
}

// acceptWaiting takes all that waits.
func acceptWaiting(fd uintptr, start func(net.Conn)) {
	for more := true; more; {
		more, _ = acceptSome(fd, acceptBatch, start)
	}
}

// acceptSome reports whether there may be more than most.
func acceptSome(fd uintptr, most int, start func(net.Conn)) (more bool, err error) {
	for n := 0; n < most; {
		s, from, err := Accept(fd)
		switch err {
		case nil:
			n++
			start(NewConn(s, tcpAddr(from)))
		case syscall.EAGAIN:
			return false, nil
		case syscall.ECONNABORTED:
		default:
			return false, err
		}
	}
	return true, nil
}

// tcpAddr is the address as the library gives it, with the name of its zone.
func tcpAddr(a netip.AddrPort) *net.TCPAddr {
	if zone := a.Addr().Zone(); zone != "" {
		if n, err := strconv.Atoi(zone); err == nil {
			if i, err := net.InterfaceByIndex(n); err == nil {
				a = netip.AddrPortFrom(a.Addr().WithZone(i.Name), a.Port())
			}
		}
	}
	return net.TCPAddrFromAddrPort(a)
}
