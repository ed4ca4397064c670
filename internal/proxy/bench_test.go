package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

const benchRequest = "GET /shop/items?id=42 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n" +
	"Accept-Encoding: gzip\r\nAccept-Language: en\r\nCookie: session=0123456789abcdef\r\nX-Request-Id: 0123456789\r\n\r\n"

// cannedBackend answers every request (without a body) with the same bytes, without allocating.
func cannedBackend(t testing.TB, response []byte) string {
	return rawBackend(t, func(c net.Conn) {
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
				if _, err := c.Write(response); err != nil {
					return
				}
			}
		}
	})
}

func cannedResponse(size int) []byte {
	return append([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT\r\nServer: canned\r\nContent-Length: "+
		strconv.Itoa(size)+"\r\n\r\n"), bytes.Repeat([]byte("x"), size)...)
}

// requester sends requests over a connection, one after the other.
type requester struct {
	c       net.Conn
	request []byte
	buf     []byte
}

// do sends a request and reads its answer, which has a Content-Length. It does not allocate.
func (r *requester) do() error {
	if _, err := r.c.Write(r.request); err != nil {
		return err
	}
	n := 0
	for {
		m, err := r.c.Read(r.buf[n:])
		if err != nil {
			return err
		}
		n += m
		end := bytes.Index(r.buf[:n], []byte("\r\n\r\n"))
		if end < 0 {
			continue
		}
		i := bytes.Index(r.buf[:end], []byte("Content-Length: "))
		length := 0
		for i += len("Content-Length: "); r.buf[i] >= '0' && r.buf[i] <= '9'; i++ {
			length = 10*length + int(r.buf[i]-'0')
		}
		for left := end + 4 + length - n; left > 0; left -= m {
			if m, err = r.c.Read(r.buf); err != nil {
				return err
			}
		}
		return nil
	}
}

func benchExchange(b *testing.B, s *testServer, request string, dialer func() (net.Conn, error)) {
	const conns = 16
	all := make([]*requester, conns)
	for i := range all {
		c, err := dialer()
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		all[i] = &requester{c: c, request: []byte(request), buf: make([]byte, 128<<10)}
		for range 20 {
			if err := all[i].do(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Go(func() {
			for range b.N/conns + 1 {
				if err := r.do(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func tcpDialer(s *testServer) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", s.addr()) }
}

func BenchmarkExchangePlain(b *testing.B) {
	s := serve(b, plain(cannedBackend(b, cannedResponse(1024))))
	benchExchange(b, s, benchRequest, tcpDialer(s))
}

func BenchmarkExchangeSplitBehindHeader(b *testing.B) {
	cfg := splitConfig(cannedBackend(b, cannedResponse(1024)), cannedBackend(b, cannedResponse(1024)))
	s := serve(b, cfg)
	benchExchange(b, s, benchRequest, tcpDialer(s))
}

func BenchmarkExchangeSession(b *testing.B) {
	s := serve(b, sessionConfig(cannedBackend(b, cannedResponse(1024))))
	benchExchange(b, s, benchRequest, tcpDialer(s)) // each begins a session
}

func sessionConfig(address string) *model.Config {
	cfg := plain(address)
	cfg.Routes[0].Rules[0].Session = &model.Session{Name: "s", Type: model.Cookie}
	return cfg
}

func splitConfig(first, second string) *model.Config {
	r := ruleTo("default/a:80", "default/b:80")
	r.Backends[0].Weight, r.Backends[1].Weight = 90, 10
	r.Matches[0].Headers = []model.ValueMatch{{Type: model.Exact, Name: "user-agent", Value: "bench/1.0"}}
	return config([]model.Service{service("default/a:80", model.HTTP, first), service("default/b:80", model.HTTP, second)}, r)
}

func BenchmarkExchangeEdits(b *testing.B) {
	cfg := plain(cannedBackend(b, cannedResponse(1024)))
	cfg.Routes[0].Rules[0].Filters = model.Filters{
		RequestHeaders:  &model.HeaderEdit{Set: []model.HeaderValue{{Name: "X-Team", Value: "shop"}}, Remove: []string{"Cookie"}},
		ResponseHeaders: &model.HeaderEdit{Remove: []string{"Server"}},
		Rewrite:         &model.Rewrite{Path: &model.PathPatch{Prefix: true, Value: "/v2"}},
	}
	s := serve(b, cfg)
	benchExchange(b, s, benchRequest, tcpDialer(s))
}

func BenchmarkExchange100KiB(b *testing.B) {
	s := serve(b, plain(cannedBackend(b, cannedResponse(100<<10))))
	benchExchange(b, s, benchRequest, tcpDialer(s))
}

func BenchmarkExchangeTLS(b *testing.B) {
	cfg := plain(cannedBackend(b, cannedResponse(1024)))
	pool := secure(b, cfg, "shop.example")
	s := serve(b, cfg)
	benchExchange(b, s, benchRequest, func() (net.Conn, error) {
		return tls.Dial("tcp", s.addr(), &tls.Config{RootCAs: pool, ServerName: "shop.example"})
	})
}

// TestPlainExchangeAllocatesNothing counts all allocations of the process during exchanges over real sockets.
func TestPlainExchangeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool drop what it is given")
	}
	for name, cfg := range map[string]*model.Config{
		"plain":       plain(cannedBackend(t, cannedResponse(1024))),
		"split":       splitConfig(cannedBackend(t, cannedResponse(1024)), cannedBackend(t, cannedResponse(1024))),
		"new session": sessionConfig(cannedBackend(t, cannedResponse(1024))),
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, cfg)
			r := &requester{c: dial(t, s.addr()), request: []byte(benchRequest), buf: make([]byte, 8<<10)}
			for range 50 {
				if err := r.do(); err != nil {
					t.Fatal(err)
				}
			}
			if n := testing.AllocsPerRun(2000, func() {
				if err := r.do(); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%v allocations for each exchange", n)
			}
		})
	}
}

func BenchmarkExchangeRequestID(b *testing.B) {
	for name, ids := range map[string]exchange.RequestIDs{"off": exchange.RequestIDsOff, "on": exchange.RequestIDsMissing} {
		b.Run(name, func(b *testing.B) {
			s := serve(b, plain(cannedBackend(b, cannedResponse(1024))), func(o *Options) { o.RequestIDs = ids })
			benchExchange(b, s, strings.Replace(benchRequest, "X-Request-Id: 0123456789\r\n", "", 1), tcpDialer(s))
		})
	}
}

// BenchmarkExchangeTap is an exchange without taps, and with one in force of another pod.
func BenchmarkExchangeTap(b *testing.B) {
	for _, of := range []string{"none", "of another"} {
		b.Run(of, func(b *testing.B) {
			s := serve(b, plain(cannedBackend(b, cannedResponse(1024))))
			if of != "none" {
				q, err := telemetry.ParseTapQuery(nil)
				if err != nil {
					b.Fatal(err)
				}
				sides := telemetry.TapSides{{Kind: "Pod", Namespace: "shop", Name: "other-1"}: true}
				tap, err := s.metrics.Tap(q.Rate, func(x *telemetry.Tapped) bool { return q.Wants(x, sides) })
				if err != nil {
					b.Fatal(err)
				}
				defer s.metrics.CloseTap(tap)
			}
			benchExchange(b, s, benchRequest, tcpDialer(s))
		})
	}
}

func BenchmarkExchangeAccessLog(b *testing.B) {
	for name, fields := range map[string][]string{"json": nil, "json with fields": {"Accept", "Cookie"}} {
		b.Run(name, func(b *testing.B) {
			log := telemetry.NewAccessLog(io.Discard, telemetry.AccessLogOptions{RequestFields: fields, ResponseFields: fields})
			defer log.Close(context.Background())
			s := serve(b, plain(cannedBackend(b, cannedResponse(1024))), func(o *Options) { o.AccessLog = log })
			benchExchange(b, s, benchRequest, tcpDialer(s))
		})
	}
}
