package main

import "strings"

// lengthSeeds are about Content-Length, and about how much content may be.
func lengthSeeds() (all []seed) {
	for _, c := range []string{"+5", "-5", "-0", "0x5", "1_0", "5.0", "5e0", "", "5 5", "5,5", "5, 5", "5;q=1", "\"5\"", "five", "5a", "a5", "\v5", "5\v", "5\x00", "\xb5", "٥",
		"9223372036854775808", "18446744073709551621", "99999999999999999999999999", "+0", "0+", "5\t5", "5\xa0", "NaN", "Infinity", "٠"} {
		all = append(all, seed{"6.3", "Content-Length " + c, 400, post("Content-Length: "+c+"\r\n", "hello")})
	}
	for _, c := range []struct {
		name        string
		want        int
		lines, body string
	}{
		{"length", 0, "Content-Length: 5\r\n", "hello"},
		{"length 0", 0, "Content-Length: 0\r\n", ""},
		{"leading zeros", 0, "Content-Length: 0005\r\n", "hello"},
		{"whitespace around", 0, "Content-Length: \t5 \t\r\n", "hello"},
		{"same length twice", 0, "Content-Length: 5\r\ncontent-length: 5\r\n", "hello"},
		{"two lengths", 400, "Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"},
		{"two spellings", 400, "Content-Length: 5\r\nContent-Length: 05\r\n", "hello"},
		{"second is empty", 400, "Content-Length: 5\r\nContent-Length:\r\n", "hello"},
		{"space before colon", 400, "Content-Length : 5\r\n", "hello"},
		{"folded", 400, "Content-Length:\r\n 5\r\n", "hello"},
		{"length in Connection", 0, "Connection: content-length\r\nContent-Length: 5\r\n", "hello"},
		{"request as content", 0, "Content-Length: 41\r\n", "GET /hidden HTTP/1.1\r\nHost: b.example\r\n\r\n"},
		{"no length but content", 400, "", "hello\r\n\r\n"},
		{"length and coding", 400, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", hello},
		{"coding and length", 400, "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", hello},
		{"length 0 and coding", 400, "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", hello},
		{"length and unknown coding", 400, "Content-Length: 5\r\nTransfer-Encoding: x\r\n", "hello"},
		{"length and empty coding", 400, "Content-Length: 5\r\nTransfer-Encoding:\r\n", "hello"},
		{"expect", 0, "Expect: 100-continue\r\nContent-Length: 5\r\n", "hello"},
		{"expect in capitals", 0, "Expect: 100-CONTINUE\r\nContent-Length: 5\r\n", "hello"},
		{"upgrade with content", 0, "Connection: upgrade\r\nUpgrade: foo\r\nContent-Length: 5\r\n", "hello"},
	} {
		all = append(all, seed{"6.3", c.name, c.want, post(c.lines, c.body)})
	}
	all = append(all, seed{"9110 15.5.14", "content too large", 413, post("Content-Length: 65537\r\n", "hello")},
		seed{"9110 15.5.14", "the largest length", 413, post("Content-Length: 9223372036854775807\r\n", "hello")},
		seed{"9110 15.5.14", "chunks too large", 413, chunks(strings.Repeat("10000\r\n"+strings.Repeat("x", 1<<16)+"\r\n", 8) + "0\r\n\r\n")},
		seed{"9110 15.5.14", "as much content as allowed", 0, post("Content-Length: 65536\r\n", strings.Repeat("x", 1<<16))})
	for _, c := range []string{"GET", "HEAD", "DELETE", "OPTIONS"} {
		all = append(all, seed{"9110 9.3", c + " with content", 0, c + " /c HTTP/1.1\r\n" + hostLine + "Content-Length: 5\r\n\r\nhello"})
	}
	return all
}

// codingSeeds are about Transfer-Encoding.
func codingSeeds() (all []seed) {
	for _, c := range []string{"", ",chunked", "chunked,", "chunked, chunked", "chunked,,", "identity", "gzip", "chunked, gzip", "chunked, identity", "xchunked", "chunkedx", "chunke",
		"chunked;a=b", "\"chunked\"", "'chunked'", "chunked chunked", "\vchunked", "chunked\v", "\fchunked", "chunked\x00", "\x00chunked", "\xa0chunked", "chunked\xa0", "chun\tked", "ch\xc3\xbcnked",
		"x, chunked, y", "chunked/1", "(chunked)", "=chunked", "chunked=", "0", "cow", "\u212ahunked"} {
		all = append(all, seed{"6.1", "Transfer-Encoding " + c, 400, post("Transfer-Encoding: "+c+"\r\n", hello)})
	}
	for _, c := range []string{"gzip, chunked", "deflate,chunked", "cow, chunked", "identity, chunked", "chunked ,chunked2, chunked3 , x, chunked"} {
		want := 501
		if strings.Count(c, "chunked ") > 0 {
			want = 400
		}
		all = append(all, seed{"6.1", "Transfer-Encoding " + c, want, post("Transfer-Encoding: "+c+"\r\n", hello)})
	}
	for _, c := range []struct {
		name  string
		want  int
		lines string
	}{
		{"chunked", 0, "Transfer-Encoding: chunked\r\n"},
		{"capitals", 0, "TRANSFER-ENCODING: CHUNKED\r\n"},
		{"tabs around", 0, "Transfer-Encoding:\tchunked\t\r\n"},
		{"two lines", 400, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"},
		{"two lines, the second unknown", 400, "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n"},
		{"two lines, the first unknown", 501, "Transfer-Encoding: cow\r\nTransfer-Encoding: chunked\r\n"},
		{"two lines, the first empty", 400, "Transfer-Encoding:\r\nTransfer-Encoding: chunked\r\n"},
		{"space before colon", 400, "Transfer-Encoding : chunked\r\n"},
		{"folded", 400, "Transfer-Encoding:\r\n chunked\r\n"},
		{"folded behind a field", 400, "X: y\r\n Transfer-Encoding: chunked\r\n"},
		{"bare LF before", 400, "X: y\nTransfer-Encoding: chunked\r\n"},
		{"bare CR before", 400, "X: y\rTransfer-Encoding: chunked\r\n"},
		{"underscore", 0, "Transfer-Encoding: chunked\r\nTransfer_Encoding: identity\r\n"},
		{"named in Connection", 0, "Transfer-Encoding: chunked\r\nConnection: transfer-encoding\r\n"},
		{"with TE", 0, "Transfer-Encoding: chunked\r\nTE: trailers\r\nConnection: TE\r\n"},
		{"with Trailer", 0, "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n"},
		{"with Trailer of a framing field", 0, "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n"},
		{"with expect", 0, "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n"},
		{"Content-Encoding is not it", 0, "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"},
	} {
		all = append(all, seed{"6.1", "Transfer-Encoding: " + c.name, c.want, post(c.lines, hello)})
	}
	all = append(all, seed{"6.1", "chunked in 1.0", 400, "POST / HTTP/1.0\r\n" + hostLine + "Transfer-Encoding: chunked\r\n\r\n" + hello},
		seed{"6.1", "chunked in 1.0 kept alive", 400, "POST / HTTP/1.0\r\n" + hostLine + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + hello})
	return all
}

// chunkSeeds are about chunks, their extensions and trailers.
func chunkSeeds() (all []seed) {
	for _, c := range []struct {
		section, name string
		want          int
		body          string
	}{
		{"7.1", "several chunks", 0, "1\r\nh\r\n4\r\nello\r\n0\r\n\r\n"},
		{"7.1", "leading zeros", 0, "005\r\nhello\r\n000\r\n\r\n"},
		{"7.1", "hexadecimal", 0, "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n"},
		{"7.1", "CRLF as data", 0, "2\r\n\r\n\r\n0\r\n\r\n"},
		{"7.1", "last chunk as data", 0, "5\r\n0\r\n\r\n\r\n0\r\n\r\n"},
		{"7.1", "request as data", 0, "29\r\nGET /hidden HTTP/1.1\r\nHost: b.example\r\n\r\n\r\n0\r\n\r\n"},
		{"7.1", "no size", 400, "\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "sign", 400, "+5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "negative", 400, "-5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "prefix", 400, "0x5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "underscore", 400, "0_5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "space before", 400, " 5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "space behind", 400, "5 \r\nhello\r\n0\r\n\r\n"},
		{"7.1", "tab behind", 400, "5\t\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "no number", 400, "g\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "two numbers", 400, "5 5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "comma", 400, "5,\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "NUL behind", 400, "5\x00\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "overflow of 64 bits", 400, "10000000000000005\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "overflow of 32 bits", -1, "100000005\r\nhello\r\n0\r\n\r\n" + strings.Repeat("x", 64)},
		{"7.1", "sixteen digits", 400, "0000000000000005\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "thousand zeros", 400, strings.Repeat("0", 1000) + "5\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "bare LF behind the size", 400, "5\nhello\r\n0\r\n\r\n"},
		{"7.1", "bare CR behind the size", 400, "5\rhello\r\n0\r\n\r\n"},
		{"7.1", "bare LF behind the data", 400, "5\r\nhello\n0\r\n\r\n"},
		{"7.1", "bare CR behind the data", 400, "5\r\nhello\r0\r\n\r\n"},
		{"7.1", "nothing behind the data", 400, "5\r\nhello0\r\n\r\n"},
		{"7.1", "data too long", 400, "5\r\nhello!\r\n0\r\n\r\n"},
		{"7.1", "data too short", 400, "6\r\nhello\r\n0\r\n\r\n"},
		{"7.1", "bare LF ends the body", 400, "5\r\nhello\r\n0\r\n\n"},
		{"7.1", "bare LF behind the last size", 400, "5\r\nhello\r\n0\n\r\n"},
		{"7.1", "CR ends the body", 400, "5\r\nhello\r\n0\r\n\rX"},
		{"7.1.1", "extension", 0, "5;a\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "extension with value", 0, "5;a=b;c=\"d;\\\"\\\\\"\r\nhello\r\n0;x\r\n\r\n"},
		{"7.1.1", "extension with whitespace", 0, "5 ; a = b\t;\tc\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "extension with a high byte in quotes", 0, "5;a=\"\xff\"\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "extension without name", 400, "5;\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "extension without value", 400, "5;a=\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "bare LF in an extension", 400, "5;a\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "bare LF and a size in an extension", 400, "5;\n05\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "bare CR in an extension", 400, "5;a\rX\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "LF in quotes", 400, "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "CRLF in quotes", 400, "5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "open quotes", 400, "5;a=\"b\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "NUL in an extension", 400, "5;\x00\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "text behind quotes", 400, "5;a=\"b\"c\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "extension too long", 400, "5;" + strings.Repeat("a", 5000) + "\r\nhello\r\n0\r\n\r\n"},
		{"7.1.1", "extensions without end", 400, strings.Repeat("1;"+strings.Repeat("a", 200)+"\r\nx\r\n", 100) + "0\r\n\r\n"},
		{"7.1.2", "trailers", 0, "5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n"},
		{"7.1.2", "trailers that are left out", 0, "5\r\nhello\r\n0\r\nContent-Length: 7\r\nTransfer-Encoding: gzip\r\nHost: b\r\nAuthorization: x\r\nX-Sum: 1\r\n\r\n"},
		{"7.1.2", "folded trailer", 400, "5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n"},
		{"7.1.2", "trailer without colon", 400, "5\r\nhello\r\n0\r\nX\r\n\r\n"},
		{"7.1.2", "trailer with bare LF", 400, "5\r\nhello\r\n0\r\nX: a\n\r\n"},
		{"7.1.2", "trailer with bare CR", 400, "5\r\nhello\r\n0\r\nX: a\rb\r\n\r\n"},
		{"7.1.2", "trailer with NUL", 400, "5\r\nhello\r\n0\r\nX: \x00\r\n\r\n"},
		{"7.1.2", "request as trailer", 400, "5\r\nhello\r\n0\r\nGET /hidden HTTP/1.1\r\nHost: b.example\r\n\r\n"},
		{"7.1.2", "trailer section too large", 400, "5\r\nhello\r\n0\r\nX: " + strings.Repeat("a", 9000) + "\r\n\r\n"},
		{"7.1.2", "too many trailers", 431, "5\r\nhello\r\n0\r\n" + strings.Repeat("X: a\r\n", 65) + "\r\n"},
	} {
		all = append(all, seed{c.section, c.name, c.want, chunks(c.body)})
	}
	return all
}

// pipelineSeeds are pipelines, and what is left when a request is refused or the connection ends.
func pipelineSeeds() []seed {
	return []seed{
		{"9.3.2", "two requests", 0, get("/one") + get("/two")},
		{"9.3.2", "request behind content", 0, post("Content-Length: 5\r\n", "hello") + get("/two")},
		{"9.3.2", "request behind chunks", 0, chunks(hello) + get("/two")},
		{"9.3.2", "empty line between", 0, post("Content-Length: 5\r\n", "hello") + "\r\n" + get("/two")},
		{"9.6", "request behind the last one", 0, with("Connection: close\r\n") + get("/two")},
		{"9.6", "request behind the last one of 1.0", 0, "GET / HTTP/1.0\r\n" + hostLine + "\r\n" + get("/two")},
		{"9.3.2", "request behind one that is refused", 400, with("X : y\r\n") + get("/two")},
		{"9.3.2", "refused behind a good one", 400, get("/one") + with("X : y\r\n")},
		{"6.3", "content that is too long", 400, post("Content-Length: 4\r\n", "hello\r\n\r\n")},
	}
}
