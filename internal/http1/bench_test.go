package http1

import "testing"

// typical is a request as a browser sends it: nine fields.
const typical = "GET /shop/cart/items?id=1234&lang=en HTTP/1.1\r\n" +
	"Host: shop.example.com\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n" +
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n" +
	"Accept-Language: en-US,en;q=0.5\r\n" +
	"Accept-Encoding: gzip, deflate, br\r\n" +
	"Connection: keep-alive\r\n" +
	"Cookie: session=0123456789abcdef; theme=dark\r\n" +
	"X-Request-Id: 7b9f2a1c-4e3d\r\n" +
	"Cache-Control: no-cache\r\n\r\n"

const typicalResponse = "HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n" +
	"Content-Type: application/json\r\nContent-Length: 1024\r\nConnection: keep-alive\r\nETag: \"abc\"\r\n\r\n"

func BenchmarkRequestParse(b *testing.B) {
	buf := []byte(typical)
	var r Request
	b.ReportAllocs()
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if n, err := r.Parse(buf, Limits{}); n != len(buf) || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkResponseParse(b *testing.B) {
	buf := []byte(typicalResponse)
	var r Response
	b.ReportAllocs()
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if n, err := r.Parse(buf, Limits{}, "GET"); n != len(buf) || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkRequestSerialise(b *testing.B) {
	var r Request
	if n, err := r.Parse([]byte(typical), Limits{}); n == 0 || err != nil {
		b.Fatal(n, err)
	}
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendRequestLine(dst[:0], r.Method, r.Target)
		for i := range r.Fields {
			if f := &r.Fields[i]; !f.ID.HopByHop() {
				dst = AppendField(dst, f.Name, f.Value)
			}
		}
		dst = AppendEnd(dst)
	}
}

func BenchmarkChunkReader(b *testing.B) {
	data := make([]byte, 4096)
	var body []byte
	for range 16 {
		body = AppendChunk(body, data)
	}
	body = AppendLastChunk(body, nil)
	var c ChunkReader
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		c.Reset()
		for rest, done := body, false; !done; {
			_, n, end, err := c.Next(rest)
			if err != nil {
				b.Fatal(err)
			}
			rest, done = rest[n:], end
		}
	}
}
