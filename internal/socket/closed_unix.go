//go:build unix

package socket

import "syscall"

// Closed is true if the other side has closed the connection or it broke; bytes that wait to be read say neither.
func Closed(fd uintptr) bool {
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
