package socket

import "encoding/binary"

// recordHead is the size of a TLS record's header: type, version, length (RFC 8446 §5.1).
const recordHead = 5

// Records follows the records of TLS through the bytes that one side sends, from the connection's beginning.
type Records struct {
	head [recordHead]byte
	have int // bytes of head
	left int // bytes to come of the record
}

// Next goes up to the end of a record's header, or of p. It returns the bytes behind that, and, if there is a header, the record's type and its
// length without the header.
func (r *Records) Next(p []byte) (rest []byte, header bool, kind byte, length int) {
	n := min(r.left, len(p))
	r.left -= n
	p = p[n:]
	n = copy(r.head[r.have:], p)
	p = p[n:]
	if r.have += n; r.have < recordHead {
		return p, false, 0, 0
	}
	r.have = 0
	r.left = int(binary.BigEndian.Uint16(r.head[3:]))
	return p, true, r.head[0], r.left
}

// Whole is true if no record has come in part.
func (r *Records) Whole() bool { return r.have == 0 && r.left == 0 }
