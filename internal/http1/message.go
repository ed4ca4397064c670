package http1

import "bytes"

// Limits bound a head. Zero fields mean the defaults.
type Limits struct {
	// Line is the longest first line in bytes, with its CRLF: beyond it a request is answered 414.
	Line int
	// Head is the longest head in bytes: beyond it 431.
	Head int
	// Fields is the largest number of field lines: beyond it 431.
	Fields int
}

const (
	DefaultLine   = 8 << 10
	DefaultHead   = 64 << 10
	DefaultFields = 128
)

func (l *Limits) fill() {
	if l.Line <= 0 {
		l.Line = DefaultLine
	}
	if l.Head <= 0 {
		l.Head = DefaultHead
	}
	if l.Fields <= 0 {
		l.Fields = DefaultFields
	}
}

// BodyKind is how a body is framed.
type BodyKind uint8

const (
	// BodyNone: the message has no body.
	BodyNone BodyKind = iota
	// BodyLength: Content-Length was given (it may be 0).
	BodyLength
	// BodyChunked: the chunked coding; see ChunkReader.
	BodyChunked
	// BodyUntilClose: a response that ends with its connection.
	BodyUntilClose
)

// Body is the framing of a message's body (RFC 9112 §6.3). A message is forwarded with framing fields written from it,
// not with the received ones.
type Body struct {
	Kind BodyKind
	// Length is set for BodyLength.
	Length int64
}

// Content is true if the message has content, or may have some.
func (b Body) Content() bool { return b.Kind > BodyLength || b.Length > 0 }

// head is the common part of reading the heads of requests and responses.
type head struct {
	scan scanner
	meta meta
}

// settle ends a call of Parse that came to n or f: both zero ask for more bytes.
func (h *head) settle(n int, f fault, errors *[faults]*Error) (int, error) {
	if n == 0 && f == faultNone {
		h.scan.waiting = true
		return 0, nil
	}
	h.scan = scanner{}
	if f != faultNone {
		return 0, errors[f]
	}
	return n, nil
}

// rest reads the fields behind a first line that ends at i of w, the bytes within the limit of a head.
func (h *head) rest(w []byte, i int, fields []Field, lim *Limits) (_ []Field, next int, f fault) {
	h.meta = meta{length: -1}
	fields, next, f = h.meta.parseFields(w, i, fields[:0], lim.Fields)
	if next == 0 && f == faultNone && len(w) == lim.Head {
		f = faultHead
	}
	return fields, next, f
}

// unended returns the fault of a first line without an end: line is the received part of it, w the received part of the
// head.
func (l *Limits) unended(w, line []byte) fault {
	switch {
	case len(line) == l.Line:
		return faultLine
	case len(w) == l.Head:
		return faultHead
	}
	return faultNone
}

// scanner remembers, while a head is incomplete, how far it was searched for line ends.
type scanner struct {
	waiting bool
	first   bool // the first line is complete
	seen    int  // bytes searched
	line    int  // where the incomplete line starts
}

// ready reports whether parsing may have a result: at the first call, when the first line became complete, when the
// head did, and when a line end or a limit is violated.
func (s *scanner) ready(buf []byte, lim *Limits) bool {
	if !s.waiting {
		return true
	}
	w := buf[:min(len(buf), lim.Head)]
	for s.seen < len(w) {
		j := bytes.IndexByte(w[s.seen:], '\n')
		if j < 0 {
			s.seen = len(w)
			break
		}
		start, end := s.line, s.seen+j
		s.seen, s.line = end+1, end+1
		switch {
		case end == start || w[end-1] != '\r':
			return true
		case end == start+1:
			if start > 0 {
				return true
			}
		case !s.first:
			s.first = true
			return true
		}
	}
	return len(buf) >= lim.Head || !s.first && len(buf)-s.line >= lim.Line
}
