package mirror

import (
	"net"
	"testing"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/peertest"
)

func typicalHead() *Head {
	return get("/shop/cart/items?id=1234&lang=en",
		http1.Field{Name: "Host", Value: "shop.example.com"},
		http1.Field{Name: "User-Agent", Value: "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"},
		http1.Field{Name: "Accept", Value: "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"},
		http1.Field{Name: "Accept-Language", Value: "en-US,en;q=0.5"},
		http1.Field{Name: "Accept-Encoding", Value: "gzip, deflate, br"},
		http1.Field{Name: "Connection", Value: "keep-alive"},
		http1.Field{Name: "Cookie", Value: "session=0123456789abcdef; theme=dark"},
		http1.Field{Name: "X-Request-Id", Value: "7b9f2a1c-4e3d"},
		http1.Field{Name: "Cache-Control", Value: "no-cache"})
}

// canned returns the address of a server that answers whatever arrives in one read.
func canned(t testing.TB) string {
	return peertest.Raw(t, func(_ int, c net.Conn) {
		b, answer := make([]byte, 64<<10), []byte(peertest.OK)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	})
}

// BenchmarkMirrorBegin measures a copy that is aborted before a worker gets it: bounds, head, accounts.
func BenchmarkMirrorBegin(b *testing.B) {
	f := newFixture(b, Options{}, peertest.ToMirror("127.0.0.1:1"))
	f.Set.ended = nil
	head := typicalHead()
	b.ReportAllocs()
	for b.Loop() {
		l, _ := f.Begin(f.target, head, 0)
		l.Abort()
		l.Outcome()
	}
}

// BenchmarkMirrorCopy measures copies from Begin to the end of their answers, one after the other.
func BenchmarkMirrorCopy(b *testing.B) {
	f := newFixture(b, Options{}, peertest.ToMirror(canned(b)))
	head := typicalHead()
	b.ReportAllocs()
	for b.Loop() {
		f.copy(head, nil)
		<-f.ended
	}
}

// BenchmarkMirrorDropped measures the cost of a copy that the breaker, or a bound, refuses.
func BenchmarkMirrorDropped(b *testing.B) {
	f := newFixture(b, Options{}, peertest.ToMirror("127.0.0.1:1"))
	f.target.service.breaker.until.Store(1 << 62)
	head := typicalHead()
	b.ReportAllocs()
	for b.Loop() {
		f.copy(head, nil)
	}
}

func TestMirroredRequestAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	f := newFixture(t, Options{}, peertest.ToMirror(canned(t)))
	head := typicalHead()
	copyOne := func() {
		f.copy(head, nil)
		<-f.ended
	}
	for range 100 {
		copyOne()
	}
	if n := testing.AllocsPerRun(500, copyOne); n >= 1 {
		t.Errorf("%v allocations a copy", n)
	}
}
