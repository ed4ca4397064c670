//go:build !linux

package proxy

import "net"

// Listen is net.Listen.
func Listen(network, address string) (net.Listener, error) { return net.Listen(network, address) }

const canAcknowledge = false

// acknowledged cannot be known here: only the stream timeout ends the answers of clients that do not take them.
func (c *conn) acknowledged() (n uint64, queued bool) { return 0, true }
