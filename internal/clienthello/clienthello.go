// Package clienthello finds out, from a connection's first bytes, whether its client begins TLS and offers a protocol by
// its name (RFC 7301). It answers nobody and ends no TLS: crypto/tls reads the same bytes again. Package proxy uses it
// where connections of the mesh share a port with an application's own TLS.
package clienthello

// Found is what the bytes are so far.
type Found uint8

const (
	// More bytes are needed to tell.
	More Found = iota
	// Offered: they begin TLS, and the client offers the name.
	Offered
	// Other: they are no beginning of TLS, or the client does not offer the name.
	Other
)

const (
	recordHandshake = 22      // RFC 8446 §5.1
	maxFragment     = 1 << 14 // bytes of a record
	messageHello    = 1       // RFC 8446 §4
	extensionALPN   = 16      // RFC 7301 §3.1
	randomSize      = 32
)

// Look looks for the name among the protocols that the client offers. b is all that has come of the connection. A hello
// may be split into records in any way. Look allocates nothing. Its cost is linear in the bytes that have come,
// whatever lengths they announce.
func Look(b []byte, name string) Found {
	r := reader{b: b, message: 4}
	if r.uint(1) != messageHello {
		return r.or(Other)
	}
	r.message = r.uint(3)
	r.skip(2 + randomSize)
	r.skip(r.uint(1)) // session
	r.skip(r.uint(2)) // cipher suites
	r.skip(r.uint(1)) // compression
	if r.uint(2) != r.message {
		return r.or(Other)
	}
	for !r.stuck && r.message > 0 {
		kind, n := r.uint(2), r.uint(2)
		if kind == extensionALPN {
			return r.names(n, name)
		}
		r.skip(n)
	}
	return r.or(Other)
}

// names looks for the name in an extension of n bytes.
func (r *reader) names(n int, name string) Found {
	left := r.uint(2)
	if left != n-2 {
		return r.or(Other)
	}
	for left > 0 && !r.stuck {
		size := r.uint(1)
		if left -= 1 + size; size == 0 || left < 0 {
			return r.or(Other)
		}
		same := size == len(name)
		for i := range size {
			c := byte(r.uint(1))
			same = same && c == name[i]
			if r.stuck {
				return r.found
			}
		}
		if same {
			return Offered
		}
	}
	return r.or(Other)
}

// reader reads a handshake message through the records that carry it.
type reader struct {
	b       []byte // not read yet
	record  int    // bytes left of the current record
	message int    // bytes left of the message
	// stuck means that nothing can be read any more, and found says why: More or Other. Numbers are 0 then.
	stuck bool
	found Found
}

// or is what was found if the reader is stuck, else f.
func (r *reader) or(f Found) Found {
	if r.stuck {
		return r.found
	}
	return f
}

func (r *reader) stop(f Found) {
	if !r.stuck {
		r.stuck, r.found = true, f
	}
}

// uint reads a number of size bytes.
func (r *reader) uint(size int) (n int) {
	for range size {
		if !r.next(1) {
			return 0
		}
		n = n<<8 | int(r.b[0])
		r.take(1)
	}
	return n
}

// skip reads n bytes.
func (r *reader) skip(n int) {
	if n > r.message {
		r.stop(Other)
	}
	for n > 0 && r.next(n) {
		some := min(n, r.record, len(r.b))
		r.take(some)
		n -= some
	}
}

func (r *reader) take(n int) {
	r.b, r.record, r.message = r.b[n:], r.record-n, r.message-n
}

// next reports whether a byte of the message can be read, of which n follow. It begins a record where one ends.
func (r *reader) next(n int) bool {
	if r.stuck {
		return false
	}
	if n > r.message {
		r.stop(Other)
		return false
	}
	if r.record == 0 && !r.begin() {
		return false
	}
	if len(r.b) == 0 {
		r.stop(More)
		return false
	}
	return true
}

// begin reads the head of a record: its type, the version 3.x, and its length.
func (r *reader) begin() bool {
	b := r.b
	switch {
	case len(b) > 0 && b[0] != recordHandshake, len(b) > 1 && b[1] != 3:
		r.stop(Other)
		return false
	case len(b) < 5:
		r.stop(More)
		return false
	}
	r.record = int(b[3])<<8 | int(b[4])
	if r.record == 0 || r.record > maxFragment {
		r.stop(Other)
		return false
	}
	r.b = b[5:]
	return true
}
