//go:build unix

package proxy

import (
	"io"
	"syscall"
)

const canPeek = true

// peekSocket reads without taking; syscall.EAGAIN if nothing is there.
func peekSocket(fd uintptr, p []byte) (n int, err error) {
	for {
		n, _, err = syscall.Recvfrom(int(fd), p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// takeSocket takes what was peeked.
func takeSocket(fd uintptr, p []byte) error {
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
