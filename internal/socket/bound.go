package socket

import (
	"errors"
	"net"
	"strings"
	"syscall"
)

// Bound is a socket that clients come to: exactly one of Stream and Packet is set.
type Bound struct {
	// Stream is a listening socket of connections.
	Stream net.Listener
	// Packet is a socket of datagrams.
	Packet net.PacketConn
}

// Opener opens a socket of a network, "tcp" or "udp", at an address, host and port.
type Opener = func(network, address string) (Bound, error)

// Open opens a socket: Listen for "tcp", net.ListenPacket for "udp".
func Open(network, address string) (Bound, error) {
	if network == "udp" {
		p, err := net.ListenPacket(network, address)
		return Bound{Packet: p}, err
	}
	return Streams(Listen)(network, address)
}

// Streams makes an Opener of a function that opens listening sockets of connections.
func Streams(listen func(network, address string) (net.Listener, error)) Opener {
	return func(network, address string) (Bound, error) {
		l, err := listen(network, address)
		return Bound{Stream: l}, err
	}
}

// Network is "tcp" or "udp", by what is set.
func (b Bound) Network() string {
	if b.Packet != nil {
		return "udp"
	}
	return "tcp"
}

// Addr is the address the socket is bound to.
func (b Bound) Addr() net.Addr {
	if b.Packet != nil {
		return b.Packet.LocalAddr()
	}
	return b.Stream.Addr()
}

// Close closes the socket. What waits in its queue is lost, unless another process has the socket too.
func (b Bound) Close() error {
	if b.Packet != nil {
		return b.Packet.Close()
	}
	return b.Stream.Close()
}

// SyscallConn gives access to the descriptor; errors.ErrUnsupported if there is none.
func (b Bound) SyscallConn() (syscall.RawConn, error) {
	var socket any = b.Stream
	if b.Packet != nil {
		socket = b.Packet
	}
	if c, ok := socket.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Name names a socket among those of a process: two of different networks may have one address.
type Name struct {
	// Network is "tcp" or "udp".
	Network string
	// Address is the one the socket was opened with, host and port.
	Address string
}

// String is what ParseName reads: the address of a socket for connections, and "udp/" before that of one for datagrams.
func (n Name) String() string {
	if n.Network == "tcp" {
		return n.Address
	}
	return n.Network + "/" + n.Address
}

// ParseName reads a name. The network may be one that is unknown.
func ParseName(text string) Name {
	if network, address, ok := strings.Cut(text, "/"); ok {
		return Name{network, address}
	}
	return Name{"tcp", text}
}
