//go:build !linux

package proxy

import (
	"net"
	"syscall"
	"time"
)

// Listen is net.Listen.
func Listen(network, address string) (net.Listener, error) { return net.Listen(network, address) }

// rawListener is nil here: connections come from Accept.
func rawListener(net.Listener) syscall.RawConn { return nil }

func acceptReady(syscall.RawConn, func(net.Conn)) {}

const canAcknowledge = false

// acknowledged cannot be known here: only the stream timeout ends the answers of clients that do not take them.
func (c *conn) acknowledged() (n uint64, queued bool) { return 0, true }

func (c *conn) dataAge() (age time.Duration, left, ok bool) { return 0, false, false }
