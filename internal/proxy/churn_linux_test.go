package proxy

import (
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirmesh/weir/internal/socket"
)

// BenchmarkExchangeChurn opens a connection for each exchange. The client's side uses raw system calls and hardly
// allocates.
func BenchmarkExchangeChurn(b *testing.B) {
	s := serve(b, plain(cannedBackend(b, cannedResponse(1024))), func(o *Options) {
		o.Listen = func(n, _ string) (socket.Bound, error) { return socket.Open(n, "127.0.0.1:0") }
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
