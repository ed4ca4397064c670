package mirror

import "sync"

const (
	// firstPart is how much of a copy is gathered in one buffer, which one write sends. It holds most requests whole.
	firstPart = 32 << 10
	// keepSize is the largest buffer that is kept for the next copy: the buffer doubles as it grows.
	keepSize = 2 * firstPart
	// copyPieceSize is how many of the following bytes are taken and written at once.
	copyPieceSize = 32 << 10
)

// copyPiece is a part of a copy after the first.
type copyPiece struct {
	b [copyPieceSize]byte
	n int
}

var copyPiecePool = sync.Pool{New: func() any { return new(copyPiece) }}

// copyQueue holds the bytes of a copy that were gathered and not sent: a first part, which begins with the head, and
// pieces. A copy that falls far behind takes pieces from a pool instead of a buffer that doubles. So nothing is moved
// as it grows, and sent pieces are free at once. The zero value is usable.
type copyQueue struct {
	first  []byte
	pieces []*copyPiece
	at     int // pieces[:at] were taken

	// taken is the piece of the worker, valid until it takes more.
	taken *copyPiece
	spare []byte
}

// put appends a copy of p.
func (q *copyQueue) put(p []byte) {
	if q.at == len(q.pieces) && len(q.first)+len(p) <= firstPart {
		q.first = append(q.first, p...)
		return
	}
	for len(p) > 0 {
		if n := len(q.pieces); q.at == n || q.pieces[n-1].n == copyPieceSize {
			q.grow()
		}
		tail := q.pieces[len(q.pieces)-1]
		n := copy(tail.b[tail.n:], p)
		tail.n += n
		p = p[n:]
	}
}

// grow appends an empty piece.
func (q *copyQueue) grow() {
	if q.at > 16 && q.at > len(q.pieces)/2 {
		n := copy(q.pieces, q.pieces[q.at:])
		clear(q.pieces[n:])
		q.pieces, q.at = q.pieces[:n], 0
	}
	p := copyPiecePool.Get().(*copyPiece)
	p.n = 0
	q.pieces = append(q.pieces, p)
}

// long reports whether the queue holds more than the first part.
func (q *copyQueue) long() bool { return len(q.pieces) > 0 }

// take returns the next part, valid until the next take; nil if there is none. more reports that another one follows.
func (q *copyQueue) take() (p []byte, more bool) {
	q.drop()
	if len(q.first) > 0 {
		p = q.first
		q.first, q.spare = q.spare[:0], p
	} else if q.at < len(q.pieces) {
		q.taken = q.pieces[q.at]
		q.pieces[q.at] = nil
		p = q.taken.b[:q.taken.n]
		if q.at++; q.at == len(q.pieces) {
			q.pieces, q.at = q.pieces[:0], 0
		}
	}
	return p, q.at < len(q.pieces)
}

// drop releases the last part taken, except a reusable buffer.
func (q *copyQueue) drop() {
	if q.taken != nil {
		copyPiecePool.Put(q.taken)
		q.taken = nil
	}
	if cap(q.spare) > keepSize {
		q.spare = nil
	}
}

// reset forgets everything.
func (q *copyQueue) reset() {
	q.drop()
	for _, p := range q.pieces[q.at:] {
		copyPiecePool.Put(p)
	}
	clear(q.pieces)
	q.pieces, q.at = q.pieces[:0], 0
	if cap(q.first) > keepSize {
		q.first = nil
	}
	q.first = q.first[:0]
}
