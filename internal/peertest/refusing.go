package peertest

import (
	"net/netip"
	"syscall"
	"testing"
)

// Refusing is an address that refuses connections until the test ends. A socket that is bound and does not listen keeps
// it: an address that was merely free a moment ago may be given to the next listener, of another test perhaps, or to the
// very connection that is opened to it, which then connects to itself.
func Refusing(t testing.TB) string {
	t.Helper()
	syscall.ForkLock.RLock() // as package syscall asks for
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := name.(*syscall.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)).String()
}
