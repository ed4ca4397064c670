//go:build unix

package socket

import (
	"io"
	"syscall"
)

const CanPeek = true

// Peek reads without taking; syscall.EAGAIN if nothing is there.
func Peek(fd uintptr, p []byte) (n int, err error) {
	for {
		n, _, err = syscall.Recvfrom(int(fd), p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// Take takes what was peeked.
func Take(fd uintptr, p []byte) error {
	for len(p) > 0 {
		n, _, err := syscall.Recvfrom(int(fd), p, syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		default:
			p = p[n:]
		}
	}
	return nil
}
