//go:build !linux

package socket

import (
	"net"
	"syscall"
	"time"
)

// Listen is net.Listen.
func Listen(network, address string) (net.Listener, error) { return net.Listen(network, address) }

// Queue is not to be had here: connections come from Accept.
type Queue struct{}

func OpenQueue(net.Listener) *Queue { return nil }

func (*Queue) Take(func() bool, func(net.Conn)) error { return syscall.ENOTSUP }
func (*Queue) Wake()                                  {}
func (*Queue) Close()                                 {}

// CanAcknowledge is true where Acknowledged knows.
const CanAcknowledge = false

// Acknowledged is not known on this system: only timeouts end connections whose other side does not read.
func Acknowledged(syscall.RawConn) (n uint64, queued bool) { return 0, true }

// DataAge cannot be known here.
func DataAge(syscall.RawConn) (age time.Duration, left, ok bool) { return 0, false, false }
