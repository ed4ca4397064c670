package proxy

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
)

// h2Requester sends requests over the streams of one connection, as many at once as it is told, without allocating.
type h2Requester struct {
	c        net.Conn
	block    []byte // of a request whose fields are in the table
	body     []byte
	id       uint32
	in, out  []byte
	got      int // bytes of DATA
	fromHere int // in[fromHere:] is not read yet
}

var benchFields = [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "shop.example"}, {":path", "/shop/items?id=42"},
	{"user-agent", "bench/1.0"}, {"accept", "*/*"}, {"accept-encoding", "gzip"}, {"accept-language", "en"},
	{"cookie", "session=0123456789abcdef"}, {"x-request-id", "0123456789"}}

// newH2Requester opens a connection. If there is a body, each request sends it.
func newH2Requester(c net.Conn, body []byte) (*h2Requester, error) {
	r := &h2Requester{c: c, id: 1, in: make([]byte, 0, 256<<10), body: body}
	fields := benchFields
	if body != nil {
		fields = append([][2]string{{":method", "POST"}}, benchFields[1:]...)
	}
	blocks := encodeTwice(fields)
	r.block = blocks[1]
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	f.WriteSettingsAck()
	f.WriteWindowUpdate(0, 1<<24)
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: blocks[0], EndHeaders: true, EndStream: body == nil})
	if body != nil {
		f.WriteData(1, true, body)
	}
	if _, err := c.Write(b.Bytes()); err != nil {
		return nil, err
	}
	return r, r.read(1)
}

// do sends n requests and reads their answers.
func (r *h2Requester) do(n int) error {
	out := r.out[:0]
	for range n {
		r.id += 2
		out = appendFrame(out, http2.FrameHeaders, http2.FlagHeadersEndHeaders|flagIf(r.body == nil), r.id, r.block)
		if r.body != nil {
			out = appendFrame(out, http2.FrameData, http2.FlagDataEndStream, r.id, r.body)
		}
	}
	if r.got > 1<<20 {
		out = appendFrame(out, http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(make([]byte, 0, 4), uint32(r.got)))
		r.got = 0
	}
	r.out = out
	if _, err := r.c.Write(out); err != nil {
		return err
	}
	return r.read(n)
}

func flagIf(end bool) http2.Flags {
	if end {
		return http2.FlagHeadersEndStream
	}
	return 0
}

func appendFrame(dst []byte, kind http2.FrameType, flags http2.Flags, id uint32, p []byte) []byte {
	n := len(p)
	dst = append(dst, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags))
	dst = binary.BigEndian.AppendUint32(dst, id)
	return append(dst, p...)
}

// read reads until n streams have ended.
func (r *h2Requester) read(n int) error {
	for n > 0 {
		b := r.in[r.fromHere:]
		if len(b) < 9 || len(b) < 9+int(b[0])<<16+int(b[1])<<8+int(b[2]) {
			r.in = r.in[:copy(r.in[:cap(r.in)], b)]
			r.fromHere = 0
			m, err := r.c.Read(r.in[len(r.in):cap(r.in)])
			if err != nil {
				return err
			}
			r.in = r.in[:len(r.in)+m]
			continue
		}
		size := int(b[0])<<16 + int(b[1])<<8 + int(b[2])
		switch http2.FrameType(b[3]) {
		case http2.FrameHeaders, http2.FrameData:
			if b[3] == 0 {
				r.got += size
			}
			if b[4]&byte(http2.FlagDataEndStream) != 0 {
				n--
			}
		case http2.FrameRSTStream, http2.FrameGoAway:
			return fmt.Errorf("frame %x", b[:9+size])
		}
		r.fromHere += 9 + size
	}
	return nil
}

func benchHTTP2(b *testing.B, body []byte, dialer func() (net.Conn, error)) {
	const conns, streams = 8, 8
	all := make([]*h2Requester, conns)
	for i := range all {
		c, err := dialer()
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if all[i], err = newH2Requester(c, body); err != nil {
			b.Fatal(err)
		}
		for range 20 {
			if err := all[i].do(streams); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Go(func() {
			for range b.N/conns/streams + 1 {
				if err := r.do(streams); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkHTTP2(b *testing.B) {
	s := serve(b, plain(cannedBackend(b, cannedResponse(1024))))
	benchHTTP2(b, nil, tcpDialer(s))
}

func BenchmarkHTTP2TLS(b *testing.B) {
	cfg := plain(cannedBackend(b, cannedResponse(1024)))
	pool := secure(b, cfg, "shop.example")
	s := serve(b, cfg)
	benchHTTP2(b, nil, func() (net.Conn, error) {
		return tls.Dial("tcp", s.addr(), &tls.Config{RootCAs: pool, ServerName: "shop.example", NextProtos: []string{"h2"}})
	})
}

// TestHTTP2ExchangeAllocatesNothing counts all allocations of the process during exchanges over real sockets.
func TestHTTP2ExchangeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool drop what it is given")
	}
	const streams = 8
	for name, sent := range map[string][]byte{"without a body": nil, "with one": body(2000)} {
		t.Run(name, func(t *testing.T) {
			addr := cannedBackend(t, cannedResponse(1024))
			if sent != nil {
				addr = swallowingBackend(t, len(sent), cannedResponse(1024))
			}
			s := serve(t, plain(addr))
			r, err := newH2Requester(dial(t, s.addr()), sent)
			if err != nil {
				t.Fatal(err)
			}
			do := func() {
				if err := r.do(streams); err != nil {
					t.Fatal(err)
				}
			}
			for range 100 {
				do()
			}
			if n := testing.AllocsPerRun(1000, do) / streams; n >= 0.5 {
				t.Errorf("%v allocations for each exchange", n)
			}
		})
	}
}

// swallowingBackend reads a body of size bytes with every request and sends the same answer, without allocating.
func swallowingBackend(t testing.TB, size int, response []byte) string {
	return rawBackend(t, func(c net.Conn) {
		buf := make([]byte, 64<<10)
		n := 0
		for {
			end := bytes.Index(buf[:n], []byte("\r\n\r\n"))
			if end >= 0 && n >= end+4+size {
				n = copy(buf, buf[end+4+size:n])
				if _, err := c.Write(response); err != nil {
					return
				}
				continue
			}
			m, err := c.Read(buf[n:])
			if err != nil {
				return
			}
			n += m
		}
	})
}
