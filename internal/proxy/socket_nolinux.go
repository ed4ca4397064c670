//go:build !linux

package proxy

const canAcknowledge = false

// acknowledged cannot be known here: only the stream timeout ends the answers of clients that do not take them.
func (c *conn) acknowledged() (n uint64, queued bool) { return 0, true }
