package socket

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These calls are made for each connection, and are not announced to the scheduler either. If the scheduler was idle,
// an announcement costs more than itself: it wakes the monitor (runtime.sysmon), which then checks everything every 20
// us for at least a millisecond.

// Accept takes a connection, non-blocking, from the queue of a listening socket; syscall.EAGAIN means that there is
// none. The zone of an address is the number of its interface.
func Accept(fd uintptr) (conn int, from netip.AddrPort, err error) {
	var sa unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_ACCEPT4, fd, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)),
			unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch errno {
		case 0:
			return int(n), addrPort(&sa), nil
		case syscall.EINTR:
			continue
		}
		return -1, netip.AddrPort{}, errno
	}
}

// Local is the address of a socket's own end.
func Local(fd uintptr) (netip.AddrPort, error) {
	var sa unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	if _, _, errno := syscall.RawSyscall(unix.SYS_GETSOCKNAME, fd, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size))); errno != 0 {
		return netip.AddrPort{}, errno
	}
	return addrPort(&sa), nil
}

// addrPort is the zero value for anything but IPv4 and IPv6.
func addrPort(sa *unix.RawSockaddrAny) netip.AddrPort {
	port := func(p *uint16) uint16 { return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(p))[:]) }
	switch sa.Addr.Family {
	case unix.AF_INET:
		a := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), port(&a.Port))
	case unix.AF_INET6:
		a := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
		ip := netip.AddrFrom16(a.Addr)
		if a.Scope_id != 0 {
			ip = ip.WithZone(strconv.Itoa(int(a.Scope_id)))
		}
		return netip.AddrPortFrom(ip, port(&a.Port))
	}
	return netip.AddrPort{}
}

// Close closes a descriptor of a socket that does not linger.
func Close(fd int) error {
	if _, _, errno := syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// Ready asks an epoll descriptor for events, without waiting.
func Ready(poller int, events []unix.EpollEvent) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(poller), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
			uintptr(len(events)), 0, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
			continue
		}
		return 0, errno
	}
}

// Info is the system's information about a TCP connection.
func Info(fd uintptr) (info unix.TCPInfo, err error) {
	size := uint32(unix.SizeofTCPInfo)
	if _, _, errno := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, fd, unix.IPPROTO_TCP, unix.TCP_INFO, uintptr(unsafe.Pointer(&info)),
		uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		return info, errno
	}
	return info, nil
}
