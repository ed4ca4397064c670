package http2

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/test/size"
)

func TestEncodedBlocksDecodeToTheSame(t *testing.T) {
	for seed := range uint64(size.Of(4, 20)) {
		r := rand.New(rand.NewPCG(seed, 1))
		var e encoder
		e.init()
		dec := hpack.NewDecoder(encoderTable, nil)
		for range 300 {
			if r.IntN(10) == 0 {
				limit := []uint32{0, 100, 500, 4096, 1 << 20}[r.IntN(5)]
				e.setLimit(limit)
				dec.SetAllowedMaxDynamicTableSize(min(limit, encoderTable))
			}
			h := Head{Status: []int{200, 201, 204, 206, 304, 400, 404, 500, 503}[r.IntN(9)]}
			var want []string
			want = append(want, ":status", fmt.Sprint(h.Status))
			for range r.IntN(20) {
				name := []string{"Date", "content-type", "X-A", "etag", "Set-Cookie", "x-" + strings.Repeat("n", r.IntN(40)), "accept-encoding"}[r.IntN(7)]
				value := []string{"", "gzip, deflate", "a", fmt.Sprint(r.IntN(5)), strings.Repeat("v", r.IntN(2000)), fmt.Sprint(r.Uint64())}[r.IntN(6)]
				h.Fields = append(h.Fields, http1.Field{Name: name, Value: value})
				want = append(want, strings.ToLower(name), value)
			}
			if r.IntN(2) == 0 {
				h.Body = http1.Body{Kind: http1.BodyLength, Length: int64(r.IntN(100000))}
				want = append(want, "content-length", fmt.Sprint(h.Body.Length))
			}
			var got []string
			dec.SetEmitFunc(func(f hpack.HeaderField) { got = append(got, f.Name, f.Value) })
			if _, err := dec.Write(e.response(nil, &h)); err != nil {
				t.Fatal(err)
			}
			if err := dec.Close(); err != nil {
				t.Fatal(err)
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	}
}

func TestEncoderStopsAllocating(t *testing.T) {
	var e encoder
	e.init()
	h := Head{Status: 200, Body: http1.Body{Kind: http1.BodyLength, Length: 1024}, Fields: []http1.Field{
		{Name: "Server", Value: "weir"}, {Name: "Content-Type", Value: "text/plain"}, {Name: "ETag", Value: `"abc"`}, {Name: "X-Long-Name", Value: "value"},
	}}
	buf := make([]byte, 0, 1000)
	for range 3 {
		buf = e.response(buf[:0], &h)
	}
	if n := testing.AllocsPerRun(100, func() { buf = e.response(buf[:0], &h) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if len(buf) > 25 {
		t.Errorf("a block that came before has %d bytes: %x", len(buf), buf)
	}
}

func TestFieldsThatAreNeverKeptHaveTheirStaticNames(t *testing.T) {
	for _, name := range []string{"age", "etag", "cookie", "set-cookie", "x-request-id", "authorization"} {
		is, index, kind := rarely(name)
		if !is || index != staticNames[name] {
			t.Errorf("%s: %v, index %d, want %d", name, is, index, staticNames[name])
		}
		var e encoder
		e.init()
		for range 3 {
			got, err := hpack.NewDecoder(encoderTable, nil).DecodeFull(e.trailers(nil, []http1.Field{{Name: name, Value: "v"}}))
			want := hpack.HeaderField{Name: name, Value: "v", Sensitive: kind == neverIndexed}
			if err != nil || len(got) != 1 || got[0] != want {
				t.Errorf("%s: %v, %v, want %v", name, got, err, want)
			}
		}
		if e.count != 0 {
			t.Errorf("%s is in the table", name)
		}
	}
}
