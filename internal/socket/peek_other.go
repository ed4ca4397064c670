//go:build !unix

package socket

import (
	"net"
	"syscall"
)

// CanPeek is true where Peek and Take work.
const CanPeek = false

func Peek(uintptr, []byte) (int, error) { return 0, syscall.EINVAL }
func Take(uintptr, []byte) error        { return syscall.EINVAL }

// Closed cannot look here; a client that left shows itself when it is written to.
func Closed(uintptr) bool { return false }

// Quiet cannot look here; a stale connection shows itself when it is used.
func Quiet(uintptr) bool { return true }

// acceptWaiting has no way to do it here.
func acceptWaiting(uintptr, func(net.Conn)) {}
