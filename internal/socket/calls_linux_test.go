package socket

import (
	"encoding/binary"
	"go/build"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestConnectionsAreAcceptedWithTheirAddresses(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s cannot be listened on: %v", address, err)
			continue
		}
		defer ln.Close()
		raw, err := ln.(*net.TCPListener).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		accept := func() (conn int, from netip.AddrPort, err error) {
			raw.Control(func(fd uintptr) { conn, from, err = Accept(fd) })
			return conn, from, err
		}
		if _, _, err := accept(); err != syscall.EAGAIN {
			t.Errorf("%s: accept of nothing: %v, want EAGAIN", address, err)
		}
		client, err := net.DialTimeout("tcp", ln.Addr().String(), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		conn, from, err := accept()
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		if got, want := net.TCPAddrFromAddrPort(from).String(), client.LocalAddr().String(); got != want {
			t.Errorf("%s: from %s, want %s", address, got, want)
		}
		local, err := Local(uintptr(conn))
		if got, want := net.TCPAddrFromAddrPort(local).String(), client.RemoteAddr().String(); got != want || err != nil {
			t.Errorf("%s: own end %s, %v, want %s", address, got, err, want)
		}
		if _, err := Read(uintptr(conn), make([]byte, 1)); err != syscall.EAGAIN {
			t.Errorf("%s: read of nothing: %v, want EAGAIN", address, err)
		}
		if info, err := Info(uintptr(conn)); err != nil || info.State != unix.BPF_TCP_ESTABLISHED {
			t.Errorf("%s: state %d, %v, want established", address, info.State, err)
		}
		if err := Close(conn); err != nil {
			t.Error(err)
		}
		if n, err := client.Read(make([]byte, 1)); n != 0 || err == nil || os.IsTimeout(err) {
			t.Errorf("%s: the client read %d, %v, want the end", address, n, err)
		}
	}
}

func TestZoneIsTheNumberOfTheInterface(t *testing.T) {
	a := unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: netip.MustParseAddr("fe80::1").As16(), Scope_id: 7}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&a.Port))[:], 8080)
	var sa unix.RawSockaddrAny
	*(*unix.RawSockaddrInet6)(unsafe.Pointer(&sa)) = a
	if got, want := addrPort(&sa), netip.MustParseAddrPort("[fe80::1%7]:8080"); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	sa.Addr.Family = unix.AF_UNIX
	if got := addrPort(&sa); got.IsValid() {
		t.Errorf("the address of a Unix socket is %v", got)
	}
}

func TestReadySocketsAreReported(t *testing.T) {
	poller, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(poller)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(fds[0])
	defer Close(fds[1])
	if err := unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, fds[0], &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fds[0])}); err != nil {
		t.Fatal(err)
	}
	events := make([]unix.EpollEvent, 4)
	if n, err := Ready(poller, events); n != 0 || err != nil {
		t.Errorf("%d events, %v, before anything came", n, err)
	}
	if _, err := Write(uintptr(fds[1]), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := Ready(poller, events); n != 1 || err != nil || events[0].Fd != int32(fds[0]) {
		t.Errorf("%d events, %v, %v", n, err, events[0])
	}
	if _, err := Ready(fds[0], events); err == nil {
		t.Error("events of what is no poller")
	}
}

// What is called for each request is not announced to the scheduler, which would wake its monitor each time (see
// calls_linux.go): of what is built without the race detector, nothing calls the announcing forms.
func TestCallsForRequestsAreNotAnnounced(t *testing.T) {
	context := build.Default
	context.GOOS, context.BuildTags = "linux", slices.DeleteFunc(slices.Clone(context.BuildTags), func(tag string) bool { return tag == "race" })
	context.ToolTags = slices.DeleteFunc(slices.Clone(context.ToolTags), func(tag string) bool { return tag == "race" })
	p, err := context.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	announced := regexp.MustCompile(`\b(syscall|unix)\.(Syscall6?|Read|Write|Recvfrom|Recvmsg\w*|Sendto|Sendmsg\w*|Accept4?|EpollWait|Getsockname|Getpeername|GetsockoptTCPInfo)\(`)
	for _, name := range p.GoFiles {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if call := announced.Find(source); call != nil {
			t.Errorf("%s: %s...) is announced to the scheduler; use RawSyscall6, as the other calls do", name, call)
		}
	}
	if !slices.Contains(p.GoFiles, "raw.go") {
		t.Errorf("%q are not the files that are built without the race detector", p.GoFiles)
	}
}
