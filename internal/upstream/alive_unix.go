//go:build unix

package upstream

import "syscall"

// peekAlive is true if the descriptor has nothing to read and no end: what an idle connection looks like.
func peekAlive(fd uintptr) bool {
	var b [1]byte
	for {
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err != syscall.EINTR {
			return err == syscall.EAGAIN
		}
	}
}
