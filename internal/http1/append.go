package http1

// The Append functions write what they are given; they do not check it. Callers pass on parsed parts, or check with the Valid functions.

// AppendRequestLine appends "method target HTTP/1.1" CRLF.
func AppendRequestLine(dst []byte, method, target string) []byte { panic("http1: not yet") }

// AppendStatusLine appends "HTTP/1.1 status reason" CRLF; an empty reason is replaced by the usual one (see StatusText).
func AppendStatusLine(dst []byte, status int, reason string) []byte { panic("http1: not yet") }

// AppendField appends "name: value" CRLF.
func AppendField(dst []byte, name, value string) []byte { panic("http1: not yet") }

// AppendContentLength appends a Content-Length field line.
func AppendContentLength(dst []byte, n int64) []byte { panic("http1: not yet") }

// AppendEnd appends the empty line that ends a head.
func AppendEnd(dst []byte) []byte { return append(dst, '\r', '\n') }

// AppendChunk appends one chunk; for empty data nothing, since that would end the body.
func AppendChunk(dst, data []byte) []byte { panic("http1: not yet") }

// AppendChunkHeader appends the size line of a chunk of n > 0 bytes; the bytes and a CRLF must follow.
func AppendChunkHeader(dst []byte, n int) []byte { panic("http1: not yet") }

// AppendLastChunk appends the end of a chunked body: the last chunk, the trailer fields and the empty line.
func AppendLastChunk(dst []byte, trailers []Field) []byte { panic("http1: not yet") }

// StatusText is the reason phrase of a status, empty for one that is not registered.
func StatusText(status int) string { panic("http1: not yet") }
