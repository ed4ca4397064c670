package socket

import (
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST, of linux/netfilter_ipv4.h and linux/netfilter_ipv6/ip6_tables.h.
const soOriginalDst = 80

// OriginalDestination is where an accepted connection was to go before a redirect; without one, the connection's own
// end. syscall.ENOENT means that the kernel does not track the connection. A connection of IPv4 to a socket of IPv6 is
// tracked as one of IPv4, which its own end's address tells.
func OriginalDestination(fd uintptr) (netip.AddrPort, error) {
	local, err := Local(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	level := unix.SOL_IPV6
	if local.Addr().Unmap().Is4() {
		level = unix.SOL_IP
	}
	var sa unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrInet4)
	if level == unix.SOL_IPV6 {
		size = unix.SizeofSockaddrInet6
	}
	if _, _, errno := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), soOriginalDst, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		return netip.AddrPort{}, errno
	}
	return addrPort(&sa), nil
}

// BindLoopback gives a socket of IPv4 that is about to connect a port of 127.0.0.1, and returns it.
func BindLoopback(fd uintptr) (netip.AddrPort, error) {
	if err := unix.Bind(int(fd), &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return netip.AddrPort{}, os.NewSyscallError("bind", err)
	}
	return Local(fd)
}
