package socket

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Acknowledge acknowledges at once what a TCP connection has received and the process has read. The system would wait up
// to 40 ms for data to acknowledge it with (RFC 9293 §3.8.6.3). Meanwhile a peer that has not set TCP_NODELAY holds back
// what it has written since (RFC 896).
func Acknowledge(fd uintptr) {
	on := int32(1)
	syscall.RawSyscall6(unix.SYS_SETSOCKOPT, fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, uintptr(unsafe.Pointer(&on)), unsafe.Sizeof(on), 0)
}
