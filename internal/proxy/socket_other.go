//go:build !unix

package proxy

import (
	"net"
	"syscall"
)

const canPoll = false

// readSocket would need the system's own calls; connections wait with a buffer there.
func readSocket(fd uintptr, p []byte) (int, error) { return 0, syscall.EINVAL }

func writeSocket(fd uintptr, p []byte) (int, error) { return 0, syscall.EINVAL }

// peekClosed cannot look here; a client that left shows itself when it is written to.
func peekClosed(fd uintptr) bool { return false }

// acceptQueued has no way to do it here.
func acceptQueued(fd uintptr, start func(net.Conn)) {}
