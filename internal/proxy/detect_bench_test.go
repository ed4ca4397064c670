package proxy

import (
	"io"
	"net"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// detectingBench is a listener before a canned backend for requests and an address for connections, which detects what they
// carry if detects is true.
func detectingBench(b *testing.B, detects bool, address string) *model.Config {
	cfg := plain(cannedBackend(b, cannedResponse(1024)))
	if detects {
		tcp := toAddresses(address)
		cfg.Listeners[0].Detect = true
		tcp.Services[0].Name, tcp.Routes[0].Rules[0].Backends[0].Service = "default/bytes:80", "default/bytes:80"
		cfg.Services, cfg.Routes = append(cfg.Services, tcp.Services...), append(cfg.Routes, tcp.Routes...)
	}
	return cfg
}

func BenchmarkExchangeDetected(b *testing.B) {
	s := serve(b, detectingBench(b, true, echo(b, "")))
	benchExchange(b, s, benchRequest, tcpDialer(s))
}

// BenchmarkConnect measures a connection with one request from its beginning to its end, where the protocol is known and
// where it is not.
func BenchmarkConnect(b *testing.B) {
	for name, detects := range map[string]bool{"known": false, "detected": true} {
		b.Run(name, func(b *testing.B) {
			s := serve(b, detectingBench(b, detects, echo(b, "")))
			addr := s.Addrs()[0].Bound.(*net.TCPAddr)
			r := requester{request: []byte(benchRequest), buf: make([]byte, 16<<10)}
			b.ReportAllocs()
			for b.Loop() {
				c, err := net.DialTCP("tcp", nil, addr)
				if err != nil {
					b.Fatal(err)
				}
				if r.c = c; r.do() != nil {
					b.Fatal("no answer")
				}
				c.Close()
			}
		})
	}
}

// BenchmarkRelayDetected measures a connection whose client speaks first, and no HTTP; compare BenchmarkRelay.
func BenchmarkRelayDetected(b *testing.B) {
	for name, cfg := range map[string]*model.Config{"known": toAddresses(echo(b, "")), "detected": detectingBench(b, true, echo(b, ""))} {
		b.Run(name, func(b *testing.B) {
			s := serve(b, cfg)
			addr := s.Addrs()[0].Bound.(*net.TCPAddr)
			buf := []byte{0}
			b.ReportAllocs()
			for b.Loop() {
				c, err := net.DialTCP("tcp", nil, addr)
				if err != nil {
					b.Fatal(err)
				}
				if _, err = c.Write(buf); err == nil {
					_, err = io.ReadFull(c, buf)
				}
				if c.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
