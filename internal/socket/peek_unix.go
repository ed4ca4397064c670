//go:build unix

package socket

import (
	"io"
	"syscall"
)

// CanPeek is true where Peek and Take work.
const CanPeek = true

// Peek reads without removing the bytes, and without waiting; syscall.EAGAIN if there are none.
func Peek(fd uintptr, p []byte) (int, error) {
	return receive(fd, p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
}

// Take removes the bytes that were peeked.
func Take(fd uintptr, p []byte) error {
	for len(p) > 0 {
		switch n, err := receive(fd, p, syscall.MSG_DONTWAIT); {
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

// Closed is true if the other side has closed the connection or it broke; bytes that wait to be read say neither.
func Closed(fd uintptr) bool {
	var b [1]byte
	n, err := Peek(fd, b[:])
	return err == nil && n == 0 || err != nil && err != syscall.EAGAIN
}

// Quiet is true if there is nothing to read and no end, as on an idle connection.
func Quiet(fd uintptr) bool {
	var b [1]byte
	_, err := Peek(fd, b[:])
	return err == syscall.EAGAIN
}
