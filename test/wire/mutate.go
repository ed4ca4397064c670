package main

import (
	"bytes"
	"math/rand/v2"
)

// bytes and words that a mutation puts in.
var spices = []string{"\r", "\n", "\r\n", "\n\n", "\r\r\n", " ", "\t", "  ", "\v", "\f", "\x00", "\x01", "\x0b", "\x1f", "\x7f", "\x80", "\x85", "\xa0", "\xff", "\xc0\xaf", "\xe2\x80\xa8",
	":", ";", ",", "\"", "'", "\\", "/", "//", "?", "#", "%", "%00", "%0d%0a", "%2e", "..", "../", "@", "*", "+", "-", "_", "0", "00", "1", "9", "f", "0x", "(", ")", "[", "]", "{", "}", "<", ">", "|", "^", "=",
	"chunked", "identity", "close", "HTTP/1.1", "HTTP/1.0", "Host: b.example\r\n", "Content-Length: 3\r\n", "Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: x\r\n",
	"Connection: close\r\n", "Connection: content-length, host\r\n", "X: y\r\n", " X: y\r\n", "\r\n ", "\n ", "\r\n\t", "\r\n\r\n", "0\r\n\r\n", "GET / HTTP/1.1\r\n"}

// where a mutation likes to happen: at these bytes.
const seams = " :\r\n/;,=?%0123456789"

// mutate changes one thing. gentle mutations use visible characters only: more of them stay requests.
func mutate(r *rand.Rand, b []byte, base []seed, gentle bool) []byte {
	if len(b) == 0 {
		return b
	}
	at := r.IntN(len(b))
	if r.IntN(4) > 0 { // go on to a seam
		if i := bytes.IndexAny(b[at:], seams); i >= 0 {
			at += i + r.IntN(2)
		}
	}
	at = min(at, len(b)-1)
	spice := spices[r.IntN(len(spices))]
	if r.IntN(8) == 0 {
		spice = string([]byte{byte(r.IntN(256))})
	}
	if gentle {
		const visible = "!\"#$%&'()*+,-./0123456789:;<=>?@AZ[\\]^_`az{|}~"
		spice = string(visible[r.IntN(len(visible))])
	}
	splice := func(from, to int, s string) []byte {
		return append(append(append([]byte(nil), b[:from]...), s...), b[to:]...)
	}
	kind := r.IntN(12)
	if gentle {
		kind %= 7
	}
	switch kind {
	case 0, 1, 2, 3:
		return splice(at, at, spice)
	case 4, 5:
		return splice(at, at+1, spice)
	case 6:
		return splice(at, min(len(b), at+1+r.IntN(3)), "")
	case 7: // a line twice, or in another place
		lines := bytes.SplitAfter(b, []byte("\r\n"))
		i, j := r.IntN(len(lines)), r.IntN(len(lines)+1)
		line := bytes.Clone(lines[i])
		if r.IntN(2) == 0 {
			lines[i] = nil
		}
		return bytes.Join(append(append(append([][]byte(nil), lines[:j]...), line), lines[j:]...), nil)
	case 8: // a line of another seed
		other := bytes.SplitAfter([]byte(base[r.IntN(len(base))].bytes), []byte("\r\n"))
		line := other[r.IntN(len(other))]
		if len(line) > 1000 {
			return splice(at, at, spice)
		}
		if i := bytes.IndexByte(b[at:], '\n'); i >= 0 {
			return splice(at+i+1, at+i+1, string(line))
		}
		return splice(at, at, string(line))
	case 9: // the case of a letter, or another bit
		c := bytes.Clone(b)
		c[at] ^= 1 << r.IntN(8)
		return c
	case 10: // the end is missing
		return b[:at+1]
	}
	// A line ends in another way.
	ends := bytes.Count(b, []byte("\r\n"))
	if ends == 0 {
		return splice(at, at, spice)
	}
	which := r.IntN(ends)
	i := 0
	for ; which >= 0; which-- {
		i += bytes.Index(b[i:], []byte("\r\n")) + 2
	}
	return splice(i-2, i, []string{"\n", "\r", "\r\r\n", "\n\r", " \r\n", "\t\r\n", "\x00\r\n", "\r\n ", "\r\n\r\n", ""}[r.IntN(10)])
}
