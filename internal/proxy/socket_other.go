//go:build !unix

package proxy

import "net"

// peekClosed cannot look here; a client that left shows itself when it is written to.
func peekClosed(fd uintptr) bool { return false }

// acceptQueued has no way to do it here.
func acceptQueued(fd uintptr, start func(net.Conn)) {}
