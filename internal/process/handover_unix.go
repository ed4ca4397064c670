//go:build unix

package process

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/weirmesh/weir/internal/socket"
)

// sendSockets sends a line with copies of the sockets' descriptors, at most socketsAtOnce.
func sendSockets(nc *net.UnixConn, line []byte, sockets []socket.Bound) error {
	var fds []int
	var send func() error
	send = func() error {
		if len(fds) == len(sockets) {
			var rights []byte
			if len(fds) > 0 {
				rights = syscall.UnixRights(fds...)
			}
			_, _, err := nc.WriteMsgUnix(line, rights, nil)
			return err
		}
		raw, err := sockets[len(fds)].SyscallConn()
		if err != nil {
			return fmt.Errorf("%s: %w", sockets[len(fds)].Addr(), err)
		}
		// The descriptor is good as long as Control runs.
		var inner error
		err = raw.Control(func(fd uintptr) {
			fds = append(fds, int(fd))
			inner = send()
		})
		return errors.Join(err, inner)
	}
	return send()
}

// receiveSockets receives what sendSockets sent.
func receiveSockets(nc *net.UnixConn) (line []byte, sockets []socket.Bound, err error) {
	defer func() {
		if err != nil {
			for _, l := range sockets {
				l.Close()
			}
			sockets = nil
		}
	}()
	buf := make([]byte, handoverMessage)
	rights := make([]byte, syscall.CmsgSpace(4*socketsAtOnce))
	for n := 0; n < len(buf); {
		m, o, _, _, err := nc.ReadMsgUnix(buf[n:], rights)
		if err != nil {
			return nil, sockets, err
		}
		if m == 0 {
			return nil, sockets, errors.New("it closed the connection")
		}
		n += m
		messages, err := syscall.ParseSocketControlMessage(rights[:o])
		if err != nil {
			return nil, sockets, err
		}
		for i := range messages {
			fds, err := syscall.ParseUnixRights(&messages[i])
			if err != nil {
				return nil, sockets, err
			}
			for _, fd := range fds {
				syscall.CloseOnExec(fd)
				s, serr := boundOf(fd)
				if serr != nil {
					err = errors.Join(err, serr)
					continue
				}
				sockets = append(sockets, s)
			}
			if err != nil {
				return nil, sockets, err
			}
		}
		if buf[n-1] == '\n' {
			return bytes.TrimSuffix(buf[:n], []byte{'\n'}), sockets, nil
		}
	}
	return nil, sockets, errors.New("it sent too long a message")
}

// boundOf makes a socket of a descriptor, which it takes.
func boundOf(fd int) (s socket.Bound, err error) {
	f := os.NewFile(uintptr(fd), "inherited")
	defer f.Close()
	kind, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE)
	switch {
	case err != nil:
		return s, os.NewSyscallError("getsockopt", err)
	case kind == syscall.SOCK_DGRAM:
		s.Packet, err = net.FilePacketConn(f)
	default:
		s.Stream, err = net.FileListener(f)
	}
	return s, err
}
