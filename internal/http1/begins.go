package http1

import "bytes"

// Beginning is what a connection's first bytes are, where it is not known whether it carries requests.
type Beginning uint8

const (
	// BeginsOpen: more bytes are needed to tell.
	BeginsOpen Beginning = iota
	// BeginsRequest: a request line, valid or not, or an HTTP/2 preface.
	BeginsRequest
	// BeginsOther: something else.
	BeginsOther
)

// longestMethod bounds the word that is taken for a method. The longest registered one has 17 letters.
const longestMethod = 32

// Begins reports whether a connection that begins with b carries requests: its first line has three words or more, the
// first of at most 32 bytes of a token (RFC 9110 §5.6.2), the last beginning with "HTTP/". Such a line is a request even
// where Request.Parse refuses it. A connection for which Begins wants more bytes than its caller keeps is one of requests,
// with a long target.
func Begins(b []byte) Beginning {
	if len(b) > 0 && b[0] == '\r' { // one empty line may come first (RFC 9112 §2.2)
		if len(b) > 1 && b[1] != '\n' {
			return BeginsOther
		}
		b = b[min(2, len(b)):]
	}
	i := 0
	for i < len(b) && class[b[i]]&classToken != 0 {
		i++
	}
	switch {
	case i > longestMethod:
		return BeginsOther
	case i == len(b):
		return BeginsOpen
	case i == 0 || b[i] != ' ':
		return BeginsOther
	}
	rest := b[i+1:]
	line, _, ended := bytes.Cut(rest, []byte("\n"))
	if ended {
		line = bytes.TrimSuffix(line, []byte("\r"))
	} else if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1] // its line feed may follow
	}
	for _, c := range line {
		if c < ' ' || c == 0x7f {
			return BeginsOther
		}
	}
	if !ended {
		return BeginsOpen
	}
	space := bytes.LastIndexByte(line, ' ')
	if space <= 0 || !bytes.HasPrefix(line[space+1:], []byte("HTTP/")) {
		return BeginsOther
	}
	return BeginsRequest
}
