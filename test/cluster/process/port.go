package process

import (
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// Port is a TCP port of 127.0.0.1 kept free for a program that is told its number and listens with SO_REUSEPORT: until
// Release, only sockets with that option, of the same user, can be bound to it, and the kernel gives it to nobody else.
type Port struct {
	Number int
	fd     int
}

// ReservePort finds and keeps a free port.
func ReservePort() (*Port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	number, err := bind(fd)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return &Port{number, fd}, nil
}

// bind does not listen: connections to the port are refused, or go to the program.
func bind(fd int) (int, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return address.(*unix.SockaddrInet4).Port, nil
}

// Release gives the port up; the program that listens on it keeps it.
func (p *Port) Release() { unix.Close(p.fd) }

// Address is "127.0.0.1:number".
func (p *Port) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Number)) }
