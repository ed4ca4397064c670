package proxy

import "golang.org/x/sys/unix"

const canAcknowledge = true

// acknowledged is how many bytes the client's system has acknowledged since the connection began, and whether others wait for that.
func (c *conn) acknowledged() (n uint64, queued bool) {
	if c.socket == nil {
		return 0, true
	}
	c.socket.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n, queued = info.Bytes_acked, info.Unacked > 0 || info.Notsent_bytes > 0
		}
	})
	return n, queued
}
