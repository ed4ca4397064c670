package socket

import (
	"net"
	"syscall"
	"time"
)

// Bounds of AcceptLast.
const (
	acceptQuiet  = 2 * time.Millisecond
	acceptLinger = 100 * time.Millisecond
)

// AcceptLast calls start with the connections that the system has accepted already, before ln is closed: they would be reset, and a request in
// them lost. It takes no longer than 100 ms.
func AcceptLast(ln net.Listener, start func(net.Conn)) {
	d, ok := ln.(interface{ SetDeadline(time.Time) error })
	for end := time.Now().Add(acceptLinger); ok; {
		now := time.Now()
		if now.After(end) || d.SetDeadline(now.Add(acceptQuiet)) != nil {
			return
		}
		nc, err := ln.Accept()
		if err != nil {
			break
		}
		start(nc)
	}
	// Once more, with nothing between this and the close.
	if sc, ok := ln.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { acceptWaiting(fd, start) })
		}
	}
}

// StopAccepting makes Accept fail, now and later; it closes a listener that cannot be told.
func StopAccepting(ln net.Listener) {
	if d, ok := ln.(interface{ SetDeadline(time.Time) error }); !ok || d.SetDeadline(LongAgo) != nil {
		ln.Close()
	}
}
