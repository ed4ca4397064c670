package proxy

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAcceptedConnectionsInheritKeepAlive(t *testing.T) {
	ln, err := Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dial(t, ln.Addr().String())
	ln.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Second))
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { expectInherited(t, fd) })
}

// expectInherited looks at the options that connections inherit.
func expectInherited(t *testing.T, fd uintptr) {
	t.Helper()
	for _, o := range []struct{ level, option, want int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAliveSeconds},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAliveSeconds},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveProbes},
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
	} {
		if got, err := unix.GetsockoptInt(int(fd), o.level, o.option); err != nil || got != o.want {
			t.Errorf("option %d is %d, %v, want %d", o.option, got, err, o.want)
		}
	}
}

// BenchmarkExchangeChurn is a connection for each exchange; the client's side, raw system calls, allocates nothing that counts.
func BenchmarkExchangeChurn(b *testing.B) {
	s := serve(b, plain(cannedBackend(b, cannedResponse(1024))), func(o *Options) {
		o.Listen = func(n, _ string) (net.Listener, error) { return Listen(n, "127.0.0.1:0") }
	})
	request := []byte(strings.TrimSuffix(benchRequest, "\r\n") + "Connection: close\r\n\r\n")
	to := &unix.SockaddrInet4{Port: s.Addrs()[0].Bound.(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	buf := make([]byte, 16<<10)
	b.ReportAllocs()
	for b.Loop() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, to)
		}
		if err == nil {
			_, err = unix.Write(fd, request)
		}
		n := 1
		for n > 0 && err == nil {
			n, err = unix.Read(fd, buf)
		}
		if err != nil {
			b.Fatal(err)
		}
		unix.Close(fd)
	}
}
