package socket

import (
	"errors"
	"syscall"
)

// IsShortage is true for errors that say that the process, or the system, has no descriptors or no memory for sockets left.
func IsShortage(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
