//go:build unix && !linux

package socket

import (
	"net"
	"os"
	"syscall"
)

// acceptWaiting accepts the connections in a listening socket's queue.
func acceptWaiting(fd uintptr, start func(net.Conn)) {
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
