package http1

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httputil"
	"strings"
	"testing"
)

// decode reads a chunked body that arrives in steps of so many bytes; rest is what follows it.
func decode(body string, step int) (data []byte, trailers []Field, rest string, err error) {
	var c ChunkReader
	for at := 0; ; {
		end := min(at+step, len(body))
		buf := []byte(body[at:end])
		d, n, done, err := c.Next(buf)
		if err != nil {
			return data, nil, "", err
		}
		if n > len(buf) || n == 0 && len(buf) > 0 && !done {
			return nil, nil, "", fmt.Errorf("%d consumed of %d", n, len(buf))
		}
		data = append(data, d...)
		at += n
		if done {
			return data, c.Trailers(), body[at:], nil
		}
		if at == len(body) {
			return data, nil, "", io.ErrUnexpectedEOF
		}
	}
}

func TestChunkedBodyIsDecodedHoweverItArrives(t *testing.T) {
	for _, c := range []struct{ name, body, data, trailers string }{
		{"empty", "0\r\n\r\n", "", "[]"},
		{"several zeros", "000\r\n\r\n", "", "[]"},
		{"two chunks", "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world", "[]"},
		{"hexadecimal", "a\r\n0123456789\r\nA\r\n0123456789\r\n01F\r\n" + strings.Repeat("x", 31) + "\r\n0\r\n\r\n", "01234567890123456789" + strings.Repeat("x", 31), "[]"},
		{"CRLF as data", "2\r\n\r\n\r\n0\r\n\r\n", "\r\n", "[]"},
		{"extensions", "1;a\r\nx\r\n1;a=b;c=\"d\\\"; \t\xff\"\r\ny\r\n1 ; a = b\t;\tc\r\nz\r\n0;last\r\n\r\n", "xyz", "[]"},
		{"trailers", "1\r\nx\r\n0\r\nX-Sum: abc\r\nX-Empty:\r\n\r\n", "x", "[{X-Sum abc 0} {X-Empty  0}]"},
		{"forbidden trailers", "0\r\nContent-Length: 5\r\nX-A: b\r\nTransfer-Encoding: x\r\nHost: h\r\nAuthorization: c\r\nIf-Match: d\r\nX-Forwarded-For: e\r\nWeir-X: g\r\nWeir_X: h\r\nSet-Cookie: f\r\n\r\n",
			"", "[{X-A b 0}]"},
	} {
		for step := 1; step <= len(c.body)+4; step++ {
			data, trailers, rest, err := decode(c.body+"next", step)
			if err != nil || string(data) != c.data || rest != "next" || fmt.Sprint(trailers) != c.trailers {
				t.Fatalf("%s in steps of %d: %q %v %q %v", c.name, step, data, trailers, rest, err)
			}
		}
	}
}

func TestMalformedChunkedBodyIsRefusedHoweverItArrives(t *testing.T) {
	for _, c := range []struct{ name, body, data, want string }{
		{"no size", "\r\n", "", "invalid_chunk_size"},
		{"no size but an extension", ";a\r\n", "", "invalid_chunk_size"},
		{"signed size", "+1\r\nx\r\n", "", "invalid_chunk_size"},
		{"negative size", "-1\r\n", "", "invalid_chunk_size"},
		{"prefixed size", "0x1\r\nx\r\n", "", "invalid_chunk_size"},
		{"grouped size", "1_0\r\n", "", "invalid_chunk_size"},
		{"space before size", " 1\r\nx\r\n", "", "invalid_chunk_size"},
		{"space behind size", "1 \r\nx\r\n", "", "invalid_chunk_extension"},
		{"space in size", "1 1\r\n", "", "invalid_chunk_extension"},
		{"sixteen digits", "0000000000000001\r\nx\r\n", "", "invalid_chunk_size"},
		{"overflow", "fffffffffffffffff\r\n", "", "invalid_chunk_size"},
		{"bare LF behind size", "1\nx\r\n", "", "bare_lf"},
		{"bare CR behind size", "1\rx", "", "bare_cr"},
		{"bare LF behind extension", "1;a\nx\r\n", "", "bare_lf"},
		{"bare LF behind value", "1;a=b\nx\r\n", "", "bare_lf"},
		{"LF in quoted value", "1;a=\"\n\"\r\n", "", "invalid_chunk_extension"},
		{"CR in quoted value", "1;a=\"\r\n\"\r\n", "", "invalid_chunk_extension"},
		{"NUL in extension", "1;\x00\r\n", "", "invalid_chunk_extension"},
		{"extension without name", "1;\r\nx\r\n", "", "invalid_chunk_extension"},
		{"extension without value", "1;a=\r\nx\r\n", "", "invalid_chunk_extension"},
		{"text behind quoted value", "1;a=\"b\"c\r\n", "", "invalid_chunk_extension"},
		{"two values", "1;a=b=c\r\n", "", "invalid_chunk_extension"},
		{"extension too long", "1;" + strings.Repeat("a", 300) + "\r\n", "", "invalid_chunk_extension"},
		{"data too long", "1\r\nxy\r\n", "x", "invalid_chunk_end"},
		{"data ended by LF", "1\r\nx\n", "x", "invalid_chunk_end"},
		{"data ended by CR", "1\r\nx\r0", "x", "invalid_chunk_end"},
		{"bare LF at the end", "1\r\nx\r\n0\r\n\n", "x", "bare_lf"},
		{"bare CR at the end", "1\r\nx\r\n0\r\n\rx", "x", "bare_cr"},
		{"bare LF behind trailer", "0\r\nX: y\n\r\n", "", "bare_lf"},
		{"folded trailer", "0\r\nX: y\r\n z\r\n\r\n", "", "folded_field"},
		{"no colon in trailer", "1\r\nx\r\n0\r\nabc\r\n\r\n", "x", "invalid_field_name"},
		{"control byte in trailer", "0\r\nX: \x00\r\n\r\n", "", "invalid_field_value"},
		{"request as trailer", "0\r\nGET / HTTP/1.1\r\n\r\n", "", "space_before_colon"},
		{"trailer too large", "0\r\n" + strings.Repeat("X: "+strings.Repeat("y", 100)+"\r\n", 90) + "\r\n", "", "trailer_too_large"},
		{"too many trailers", "0\r\n" + strings.Repeat("X: y\r\n", 65) + "\r\n", "", "too_many_fields"},
		{"too much chunk framing", strings.Repeat("1;"+strings.Repeat("a", 200)+"\r\nx\r\n", 60), strings.Repeat("x", 43), "excessive_chunk_overhead"},
	} {
		for _, step := range []int{1, 2, 3, 7, 100, 1 << 20} {
			data, _, _, err := decode(c.body, step)
			want := "400 " + c.want
			if c.want == "too_many_fields" {
				want = "431 " + c.want
			}
			if err == nil || reason(err) != want || string(data) != c.data {
				t.Fatalf("%s in steps of %d: %q %v", c.name, step, data, err)
			}
		}
	}
}

func TestUnfinishedChunkedBodyIsNotDone(t *testing.T) {
	const body = "3;a=\"b\"\r\nabc\r\n0\r\nX: y\r\n\r\n"
	for i := range body {
		if _, _, _, err := decode(body[:i], 1<<20); err != io.ErrUnexpectedEOF {
			t.Fatalf("%q: %v", body[:i], err)
		}
	}
}

func TestChunkReaderStaysAtItsEndUntilReset(t *testing.T) {
	var c ChunkReader
	body := []byte("1\r\nx\r\n0\r\nA: b\r\n\r\nmore")
	for done := false; !done; {
		var n int
		var err error
		if _, n, done, err = c.Next(body); err != nil {
			t.Fatal(err)
		}
		body = body[n:]
	}
	if d, n, done, err := c.Next(body); d != nil || n != 0 || !done || err != nil || string(body) != "more" {
		t.Fatal(d, n, done, err)
	}
	c.Reset()
	if len(c.Trailers()) != 0 {
		t.Fatal("trailers outlive Reset")
	}
	if _, _, _, err := c.Next([]byte("z")); err == nil {
		t.Fatal("accepted z")
	}
	if _, _, _, err := c.Next([]byte("1\r\n")); err == nil {
		t.Fatal("an error is not final")
	}
	c.Reset()
	if d, n, done, err := c.Next([]byte("2\r\nab\r\n0\r\n\r\n")); string(d) != "ab" || n != 12 || !done || err != nil {
		t.Fatal(d, n, done, err)
	}
}

func TestSerialisedChunksAreReadBack(t *testing.T) {
	b := AppendChunk(nil, []byte("hello"))
	b = AppendChunk(b, nil)
	b = append(AppendChunkHeader(b, 300), bytes.Repeat([]byte("x"), 300)...)
	b = append(b, "\r\n"...)
	b = AppendLastChunk(b, []Field{{Name: "X-Sum", Value: "1"}})
	data, trailers, rest, err := decode(string(b), len(b))
	if err != nil || string(data) != "hello"+strings.Repeat("x", 300) || rest != "" || fmt.Sprint(trailers) != "[{X-Sum 1 0}]" {
		t.Fatalf("%q %v %v", data, trailers, err)
	}
	if got, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(b))); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("net/http reads %q, %v", got, err)
	}
}
