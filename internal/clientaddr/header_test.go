package clientaddr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

const sig2 = "\r\n\r\n\x00\r\nQUIT\n"

// v2 makes a header of version 2.
func v2(command, family byte, body ...[]byte) []byte {
	b := append([]byte(sig2), command, family)
	all := bytes.Join(body, nil)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(all))), all...)
}

func tlv(kind byte, value ...byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(value))), value...)
}

// summed fills in the checksum of a header whose last extension it is.
func summed(b []byte) []byte {
	binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

var (
	four = []byte{192, 0, 2, 1, 198, 51, 100, 1, 0x12, 0x34, 0, 80}
	six  = append(append(netip.MustParseAddr("2001:db8::1").AsSlice(), netip.MustParseAddr("2001:db8::2").AsSlice()...), 0x12, 0x34, 0, 80)
)

type headerCase struct {
	name string
	text []byte
	want string // source>destination, "-" for nobody; empty: malformed
	tls  bool
}

func headerCases() []headerCase {
	return []headerCase{
		{"v1", []byte("PROXY TCP4 192.0.2.1 198.51.100.1 4660 80\r\n"), "192.0.2.1:4660>198.51.100.1:80", false},
		{"v1 IPv6", []byte("PROXY TCP6 2001:db8::1 2001:db8::2 4660 80\r\n"), "[2001:db8::1]:4660>[2001:db8::2]:80", false},
		{"v1 IPv4 as IPv6", []byte("PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 4660 80\r\n"), "192.0.2.1:4660>[2001:db8::2]:80", false},
		{"v1 unknown", []byte("PROXY UNKNOWN\r\n"), "-", false},
		{"v1 unknown with more", []byte("PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n"), "-", false},
		{"v1 longest", []byte("PROXY UNKNOWN " + strings.Repeat("x", maxV1-16) + "\r\n"), "-", false},
		{"v2", v2(0x21, 0x11, four), "192.0.2.1:4660>198.51.100.1:80", false},
		{"v2 IPv6", v2(0x21, 0x21, six), "[2001:db8::1]:4660>[2001:db8::2]:80", false},
		{"v2 Unix", v2(0x21, 0x31, make([]byte, 216)), "-", false},
		{"v2 local", v2(0x20, 0x00), "-", false},
		{"v2 local with addresses", v2(0x20, 0x11, four), "-", false},
		{"v2 local with fewer bytes than its family", v2(0x20, 0x11, four[:3]), "-", false},
		{"v2 with extensions", v2(0x21, 0x11, four, tlv(4, 0, 0), tlv(0xEA, 1, 2, 3)), "192.0.2.1:4660>198.51.100.1:80", false},
		{"v2 TLS", v2(0x21, 0x11, four, tlv(0x20, 1, 0, 0, 0, 0)), "192.0.2.1:4660>198.51.100.1:80", true},
		{"v2 no TLS", v2(0x21, 0x11, four, tlv(0x20, 0, 0, 0, 0, 0)), "192.0.2.1:4660>198.51.100.1:80", false},
		{"v2 checksum", summed(v2(0x21, 0x11, four, tlv(4), tlv(3, 0, 0, 0, 0))), "192.0.2.1:4660>198.51.100.1:80", false},
		{"v2 largest", v2(0x21, 0x11, four, tlv(4, make([]byte, MaxHeader-prefixV2-12-3)...)), "192.0.2.1:4660>198.51.100.1:80", false},

		{"v1 too long", []byte("PROXY UNKNOWN " + strings.Repeat("x", maxV1-15) + "\r\n"), "", false},
		{"v1 without end", []byte("PROXY TCP4 " + strings.Repeat("1", 1000)), "", false},
		{"v1 LF alone", []byte("PROXY TCP4 192.0.2.1 198.51.100.1 4660 80\n"), "", false},
		{"v1 family and address differ", []byte("PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n"), "", false},
		{"v1 zone", []byte("PROXY TCP6 fe80::1%eth0 2001:db8::2 1 2\r\n"), "", false},
		{"v1 port", []byte("PROXY TCP4 192.0.2.1 198.51.100.1 65536 80\r\n"), "", false},
		{"v1 leading zero", []byte("PROXY TCP4 192.0.2.1 198.51.100.1 080 80\r\n"), "", false},
		{"v1 two spaces", []byte("PROXY  TCP4 192.0.2.1 198.51.100.1 1 80\r\n"), "", false},
		{"v1 more words", []byte("PROXY TCP4 192.0.2.1 198.51.100.1 1 80 9\r\n"), "", false},
		{"v1 fewer words", []byte("PROXY TCP4 192.0.2.1\r\n"), "", false},
		{"v1 lower case", []byte("proxy TCP4 192.0.2.1 198.51.100.1 1 80\r\n"), "", false},
		{"v1 another family", []byte("PROXY UDP4 192.0.2.1 198.51.100.1 1 80\r\n"), "", false},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "", false},
		{"TLS", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 more of it"), "", false},
		{"v2 version", v2(0x31, 0x11, four), "", false},
		{"v2 command", v2(0x22, 0x11, four), "", false},
		{"v2 family", v2(0x21, 0x41, four), "", false},
		{"v2 transport", v2(0x21, 0x13, four), "", false},
		{"v2 datagrams", v2(0x21, 0x12, four), "", false},
		{"v2 nobody in a header of somebody", v2(0x21, 0x00), "", false},
		{"v2 too short for its family", v2(0x21, 0x11, four[:11]), "", false},
		{"v2 extension cut short", v2(0x21, 0x11, four, tlv(4, 0, 0)[:4]), "", false},
		{"v2 extension without a length", v2(0x21, 0x11, four, []byte{4, 0}), "", false},
		{"v2 wrong checksum", v2(0x21, 0x11, four, tlv(3, 1, 2, 3, 4)), "", false},
		{"v2 two checksums", v2(0x21, 0x11, four, tlv(3, 1, 2, 3, 4), tlv(3, 1, 2, 3, 4)), "", false},
		{"v2 checksum of two bytes", v2(0x21, 0x11, four, tlv(3, 1, 2)), "", false},
		{"v2 TLS cut short", v2(0x21, 0x11, four, tlv(0x20, 1)), "", false},
		{"v2 too large", v2(0x21, 0x11, four, tlv(4, make([]byte, MaxHeader)...)), "", false},
	}
}

// told is what a header says, as headerCase has it.
func told(h Header) string {
	if !h.Source.IsValid() {
		return "-"
	}
	return h.Source.String() + ">" + h.Destination.String()
}

// scan gathers a header out of pieces: by Take of what size gives, or by what the header needs if size gives 0.
func scan(text []byte, size func() int) (header, rest []byte, err error) {
	var s Scanner
	for len(text) > 0 {
		n := size()
		if n == 0 {
			n = s.Need()
		}
		taken, whole, err := s.Take(text[:min(n, len(text))])
		text = text[taken:]
		if err != nil || whole {
			return s.Bytes(), text, err
		}
	}
	return s.Bytes(), nil, ErrHeader
}

func TestHeadersAreReadToTheirLastByteWhateverTheReads(t *testing.T) {
	const behind = "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"
	r := rand.New(rand.NewPCG(1, 2))
	sizes := map[string]func() int{
		"at once": func() int { return 1 << 20 }, "byte by byte": func() int { return 1 }, "as needed": func() int { return 0 },
		"at random": func() int { return 1 + r.IntN(40) },
	}
	for _, c := range headerCases() {
		for name, size := range sizes {
			b, rest, err := scan(append(bytes.Clone(c.text), behind...), size)
			var h Header
			if err == nil {
				h, err = ParseHeader(b)
			}
			switch {
			case c.want == "" && (err == nil || !errors.Is(err, ErrHeader)):
				t.Errorf("%s, %s: %v, want ErrHeader", c.name, name, err)
			case c.want == "":
			case err != nil:
				t.Errorf("%s, %s: %v", c.name, name, err)
			case told(h) != c.want || h.TLS != c.tls:
				t.Errorf("%s, %s: %s, TLS %v, want %s, %v", c.name, name, told(h), h.TLS, c.want, c.tls)
			case string(b) != string(c.text):
				t.Errorf("%s, %s: taken %q of %q", c.name, name, b, c.text)
			case size() != 0 && !strings.HasSuffix(behind, string(rest)):
				t.Errorf("%s, %s: %q was left", c.name, name, rest)
			}
		}
	}
}

func TestHeadersThatAreWrittenAreRead(t *testing.T) {
	for _, c := range []struct{ source, destination, want string }{
		{"192.0.2.1:4660", "198.51.100.1:80", "192.0.2.1:4660>198.51.100.1:80"},
		{"192.0.2.1:0", "198.51.100.1:80", "192.0.2.1:0>198.51.100.1:80"},
		{"[2001:db8::1]:1", "[2001:db8::2]:65535", "[2001:db8::1]:1>[2001:db8::2]:65535"},
		{"192.0.2.1:1", "[2001:db8::2]:2", "192.0.2.1:1>[2001:db8::2]:2"},
		{"[2001:db8::1]:1", "192.0.2.1:2", "[2001:db8::1]:1>192.0.2.1:2"},
		{"[fe80::1%eth0]:1", "[fe80::2%1]:2", "[fe80::1]:1>[fe80::2]:2"},
		{"[::ffff:192.0.2.1]:1", "192.0.2.2:2", "192.0.2.1:1>192.0.2.2:2"},
		{"192.0.2.1:1", "", "192.0.2.1:1>0.0.0.0:0"},
		{"", "192.0.2.2:2", "-"},
		{"", "", "-"},
	} {
		var p Pair
		if c.source != "" {
			p.Source = netip.MustParseAddrPort(c.source)
		}
		if c.destination != "" {
			p.Destination = netip.MustParseAddrPort(c.destination)
		}
		for version := 1; version <= 2; version++ {
			b := AppendHeader(nil, version, p)
			h, err := ParseHeader(b)
			if err != nil || told(h) != c.want {
				t.Errorf("%s to %s, version %d: %q: %s, %v", c.source, c.destination, version, b, told(h), err)
			}
		}
	}
}

// FuzzHeader holds that reads that are split otherwise take the same header, that nothing behind it is taken, and that no more than MaxHeader is kept.
func FuzzHeader(f *testing.F) {
	for i, c := range headerCases() {
		f.Add(c.text, uint64(i))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		whole, rest, err := scan(text, func() int { return 1 << 20 })
		if len(whole) > MaxHeader {
			t.Fatalf("%d bytes are kept", len(whole))
		}
		r := rand.New(rand.NewPCG(seed, 1))
		again, left, err2 := scan(text, func() int { return r.IntN(20) })
		if (err == nil) != (err2 == nil) || err == nil && (!bytes.Equal(whole, again) || len(rest) != len(left)) {
			t.Fatalf("%q: %q, %v at once; %q, %v in pieces", text, whole, err, again, err2)
		}
		if err != nil {
			return
		}
		if len(whole)+len(rest) != len(text) {
			t.Fatalf("%d bytes of %d are gone", len(text)-len(whole)-len(rest), len(text))
		}
		h, err := ParseHeader(whole)
		if err != nil {
			if !errors.Is(err, ErrHeader) {
				t.Fatal(err)
			}
			return
		}
		if h.Source.IsValid() {
			for version := 1; version <= 2; version++ {
				if back, err := ParseHeader(AppendHeader(nil, version, h.Pair)); err != nil || back.Pair != h.Pair {
					t.Fatalf("%v came back as %v, %v", h.Pair, back.Pair, err)
				}
			}
		}
	})
}
