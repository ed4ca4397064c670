package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Listen is net.Listen. Connections inherit the settings of bequeath; setting them on each connection would cost system
// calls.
func Listen(network, address string) (net.Listener, error) {
	c := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error { return bequeath(raw) }}
	return c.Listen(context.Background(), network, address)
}

// bequeath sets the options that connections inherit from the listening socket: keep-alive, with the library's values, and no delay.
func bequeath(raw syscall.RawConn) error {
	var errs error
	set := func(fd uintptr, level, option, value int) {
		errs = errors.Join(errs, unix.SetsockoptInt(int(fd), level, option, value))
	}
	err := raw.Control(func(fd uintptr) {
		set(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		set(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAliveSeconds)
		set(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAliveSeconds)
		set(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveProbes)
		set(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	})
	if err = errors.Join(err, errs); err != nil {
		return fmt.Errorf("options of the listening socket: %w", err)
	}
	return nil
}

const keepAliveSeconds, keepAliveProbes = 15, 9

// CanAcknowledge is true where Acknowledged knows.
const CanAcknowledge = true

// Acknowledged is how many bytes the other side's system has acknowledged since the connection began, and whether others wait for that.
func Acknowledged(raw syscall.RawConn) (n uint64, queued bool) {
	raw.Control(func(fd uintptr) {
		if info, err := Info(fd); err == nil {
			n, queued = info.Bytes_acked, info.Unacked > 0 || info.Notsent_bytes > 0
		}
	})
	return n, queued
}

// closeWait is TCP_CLOSE_WAIT (net/tcp_states.h): the other side has sent its last byte.
const closeWait = 8

// DataAge is how long ago the last bytes came, whether or not they were read, and whether the other side has closed its own.
func DataAge(raw syscall.RawConn) (age time.Duration, left, ok bool) {
	raw.Control(func(fd uintptr) {
		if info, err := Info(fd); err == nil {
			age, left, ok = time.Duration(info.Last_data_recv)*time.Millisecond, info.State == closeWait, true
		}
	})
	return age, left, ok
}
