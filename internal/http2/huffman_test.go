package http2

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/weirmesh/weir/test/size"
)

// agrees holds the decoder against the library's.
func agrees(t *testing.T, coded []byte) {
	t.Helper()
	want, err := hpack.HuffmanDecodeToString(coded)
	got, ok := appendHuffmanDecoded([]byte("before"), coded)
	if ok != (err == nil) || ok && string(got) != "before"+want {
		t.Fatalf("%x: %q, %v, want %q, %v", coded, got, ok, want, err)
	}
}

func TestHuffmanDecodesAsTheLibraryDoes(t *testing.T) {
	for c := range 256 {
		for n := range 9 {
			agrees(t, hpack.AppendHuffmanString(nil, string(bytes.Repeat([]byte{byte(c)}, n))))
		}
	}
	for a := range 256 {
		agrees(t, []byte{byte(a)})
		for b := range 256 {
			agrees(t, []byte{byte(a), byte(b)})
			agrees(t, []byte{0xff, 0xff, byte(a), byte(b)})
			agrees(t, []byte{0xff, 0xff, 0xff, byte(a), byte(b)})
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range size.Of(2000, 20_000) {
		b := make([]byte, r.IntN(40))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		agrees(t, b)
		coded := hpack.AppendHuffmanString(nil, string(b))
		agrees(t, coded)
		if n := len(coded); n > 0 {
			agrees(t, coded[:n-1])
			coded[n-1] ^= byte(1 << r.IntN(8))
			agrees(t, coded)
		}
	}
}

func FuzzHuffman(f *testing.F) {
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add(hpack.AppendHuffmanString(nil, "/shop/items?id=42"))
	f.Fuzz(agrees)
}

func BenchmarkHuffmanDecode(b *testing.B) {
	const path = "/cart/items?id=42&session=6f1c0b9a7d7c4e0f8f4f"
	coded := hpack.AppendHuffmanString(nil, path)
	var dst []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(path)))
	for b.Loop() {
		dst, _ = appendHuffmanDecoded(dst[:0], coded)
	}
	if string(dst) != path {
		b.Fatalf("%q", dst)
	}
}
