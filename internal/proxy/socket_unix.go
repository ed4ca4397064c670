//go:build unix

package proxy

import (
	"net"
	"os"
	"syscall"
)

// peekClosed is true if the other side has closed the connection or it broke; bytes that wait to be read say neither.
func peekClosed(fd uintptr) bool {
	var b [1]byte
	for {
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch err {
		case syscall.EINTR:
			continue
		case nil:
			return n == 0
		case syscall.EAGAIN:
			return false
		}
		return true
	}
}

// acceptQueued takes what waits in a listening socket's queue.
func acceptQueued(fd uintptr, start func(net.Conn)) {
	for {
		n, _, err := syscall.Accept(int(fd))
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return
		}
		f := os.NewFile(uintptr(n), "client")
		nc, err := net.FileConn(f)
		f.Close()
		if err == nil {
			start(nc)
		}
	}
}
