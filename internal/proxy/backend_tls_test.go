package proxy

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"

	"github.com/weirmesh/weir/internal/peertest"
)

func BenchmarkExchangeTLSBackend(b *testing.B) {
	for name, test := range map[string]struct {
		version uint16
		size    int
		records int
	}{
		"TLS 1.3": {tls.VersionTLS13, 1 << 10, 1}, "TLS 1.2": {tls.VersionTLS12, 1 << 10, 1},
		"two records": {tls.VersionTLS13, 1 << 10, 2}, "8 KiB": {tls.VersionTLS13, 8 << 10, 1}, "100 KiB": {tls.VersionTLS13, 100 << 10, 1},
	} {
		b.Run(name, func(b *testing.B) {
			side := peertest.NewTLS(b, test.version)
			response := cannedResponse(test.size)
			s := serve(b, side.OverTLS(plain(rawBackend(b, side.Serve(answering(response, test.records))))))
			benchExchange(b, s, benchRequest, tcpDialer(s))
		})
	}
}

// answering answers every request (without a body) with the same bytes, in the given number of writes, without
// allocating.
func answering(response []byte, writes int) func(net.Conn) {
	return func(c net.Conn) {
		buf := make([]byte, 16<<10)
		n := 0
		for {
			m, err := c.Read(buf[n:])
			if err != nil {
				return
			}
			n += m
			for {
				end := bytes.Index(buf[:n], []byte("\r\n\r\n"))
				if end < 0 {
					break
				}
				n = copy(buf, buf[end+4:n])
				for i := range writes {
					if _, err := c.Write(response[i*len(response)/writes : (i+1)*len(response)/writes]); err != nil {
						return
					}
				}
			}
		}
	}
}
