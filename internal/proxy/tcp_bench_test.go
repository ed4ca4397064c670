package proxy

import (
	"io"
	"net"
	"testing"
)

// BenchmarkRelay measures a connection to a TCP listener from its beginning to its end, with the client and the
// endpoint in the same process: their allocations count, too.
func BenchmarkRelay(b *testing.B) {
	s := serve(b, toAddresses(rawBackend(b, func(c net.Conn) { io.WriteString(c, "!") })))
	addr := s.Addrs()[0].Bound.(*net.TCPAddr)
	var buf [2]byte
	b.ReportAllocs()
	for b.Loop() {
		c, err := net.DialTCP("tcp", nil, addr)
		if err != nil {
			b.Fatal(err)
		}
		for {
			if _, err = c.Read(buf[:]); err != nil {
				break
			}
		}
		c.Close()
		if err != io.EOF {
			b.Fatal(err)
		}
	}
}
