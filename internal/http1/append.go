package http1

import (
	"net/http"
	"strconv"
)

// The Append functions write their arguments without checking them. Callers pass parsed parts, or check with the Valid
// functions.

// AppendRequestLine appends "method target HTTP/1.1" CRLF.
func AppendRequestLine(dst []byte, method, target string) []byte {
	dst = append(dst, method...)
	dst = append(dst, ' ')
	dst = append(dst, target...)
	return append(dst, " HTTP/1.1\r\n"...)
}

// AppendStatusLine appends "HTTP/1.1 status reason" CRLF; an empty reason is replaced by the usual one, if there is one.
func AppendStatusLine(dst []byte, status int, reason string) []byte {
	if status == 200 && (reason == "" || reason == "OK") {
		return append(dst, "HTTP/1.1 200 OK\r\n"...)
	}
	if reason == "" {
		reason = http.StatusText(status)
	}
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, reason...)
	return append(dst, '\r', '\n')
}

// AppendEscaped appends a path or a query with escapes for the bytes that RFC 3986 does not allow there: <>[\]^`{|},
// double quotes, and each "%" that begins no escape.
func AppendEscaped(dst []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		c := s[i]
		if class[c]&classUnescaped != 0 || c == '%' && (len(s)-i < 3 || class[s[i+1]]&class[s[i+2]]&classHex == 0) {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// AppendField appends "name: value" CRLF.
func AppendField(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, ':', ' ')
	dst = append(dst, value...)
	return append(dst, '\r', '\n')
}

// AppendContentLength appends a Content-Length field line.
func AppendContentLength(dst []byte, n int64) []byte {
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '\r', '\n')
}

// AppendBody appends the field line that announces body: Content-Length, Transfer-Encoding, or nothing.
func AppendBody(dst []byte, body Body) []byte {
	switch body.Kind {
	case BodyLength:
		return AppendContentLength(dst, body.Length)
	case BodyChunked:
		return append(dst, "Transfer-Encoding: chunked\r\n"...)
	}
	return dst
}

// AppendEnd appends the empty line that ends a head.
func AppendEnd(dst []byte) []byte { return append(dst, '\r', '\n') }

// AppendChunk appends one chunk. It appends nothing for empty data, since that would end the body.
func AppendChunk(dst, data []byte) []byte {
	if len(data) == 0 {
		return dst
	}
	dst = AppendChunkHeader(dst, len(data))
	dst = append(dst, data...)
	return append(dst, '\r', '\n')
}

// AppendChunkHeader appends the size line of a chunk of n > 0 bytes; the bytes and a CRLF must follow.
func AppendChunkHeader(dst []byte, n int) []byte {
	dst = strconv.AppendUint(dst, uint64(n), 16)
	return append(dst, '\r', '\n')
}

// AppendLastChunk appends the end of a chunked body: the last chunk, the trailer fields and the empty line.
func AppendLastChunk(dst []byte, trailers []Field) []byte {
	dst = append(dst, '0', '\r', '\n')
	for i := range trailers {
		dst = AppendField(dst, trailers[i].Name, trailers[i].Value)
	}
	return append(dst, '\r', '\n')
}
