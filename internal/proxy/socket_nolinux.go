//go:build !linux

package proxy

import (
	"net"
	"syscall"
	"time"
)

// Listen is net.Listen.
func Listen(network, address string) (net.Listener, error) { return net.Listen(network, address) }

// acceptQueue is not to be had here: connections come from Accept.
type acceptQueue struct{}

func openQueue(net.Listener) *acceptQueue { return nil }

func (*acceptQueue) take(func() bool, func(net.Conn)) error { return syscall.ENOTSUP }
func (*acceptQueue) wake()                                  {}
func (*acceptQueue) close()                                 {}

const canAcknowledge = false

// acknowledged cannot be known here: only the stream timeout ends the answers of clients that do not take them.
func (c *conn) acknowledged() (n uint64, queued bool) { return 0, true }

func (c *conn) dataAge() (age time.Duration, left, ok bool) { return 0, false, false }
