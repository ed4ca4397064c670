package upstream

import (
	"crypto/tls"
	"io"
	"net"
	"syscall"

	"github.com/weirmesh/weir/internal/socket"
)

// records is the connection below TLS of an HTTP/1.1 connection. It counts the records that the library reads, to know
// how many bytes the library holds beyond those it has given out: the library reads as much as it can, and does not
// report it.
//
// Nothing is held if the library has given out all that the records read so far can contain, and the last of them is
// complete. Otherwise (records that are padded, or of TLS itself, such as tickets) the library is asked, by a read that
// gets nothing from the socket or only what is there: see Conn.drain.
type records struct {
	net.Conn
	raw syscall.RawConn // nil if it is no TCP connection
	io  *socket.Stream  // after the handshake, instead of Conn; nil if it cannot be used

	socket.Records
	overhead int   // least number of bytes in a record of application data that are not data
	most     int64 // bytes of application data in the records begun so far, at most

	mode     recordsMode
	in       []byte // of readNow
	n        int
	err      error
	readStep func(fd uintptr)
}

// applicationData is the type of a record that may hold application data; in TLS 1.3 it hides the true one.
const applicationData = 23

type recordsMode uint8

const (
	recordsWait recordsMode = iota // Read waits, as usual
	recordsNow                     // Read returns what is there, or errNothing; Write does not wait either
	recordsHeld                    // Read gives errNothing
)

// errNothing is temporary, so that TLS can be read again after it.
var errNothing net.Error = nothingError{}

type nothingError struct{}

func (nothingError) Error() string   { return "nothing to be read without waiting" }
func (nothingError) Timeout() bool   { return true }
func (nothingError) Temporary() bool { return true }

func newRecords(nc net.Conn) *records {
	r := &records{Conn: nc}
	if sc, ok := nc.(syscall.Conn); ok && socket.CanPoll {
		r.raw, _ = sc.SyscallConn()
	}
	return r
}

// begin uses the result of the handshake.
func (r *records) begin(cs *tls.ConnectionState) {
	r.io = socket.NewStream(r.raw)
	switch {
	case cs.Version == tls.VersionTLS13:
		r.overhead = 16 + 1 // tag, type (RFC 8446 §5.2)
	case cs.CipherSuite == tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, cs.CipherSuite == tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256:
		r.overhead = 16 // tag (RFC 7905 §2)
	case cs.Version == tls.VersionTLS12:
		r.overhead = 8 + 16 // explicit nonce, tag (RFC 5288 §3): CipherSuites has no others
	}
}

// Read implements net.Conn.
func (r *records) Read(p []byte) (n int, err error) {
	switch r.mode {
	case recordsHeld:
		return 0, errNothing
	case recordsNow:
		n, err = r.readNow(p)
	default:
		if r.io != nil {
			n, err = r.io.Read(p)
		} else {
			n, err = r.Conn.Read(p)
		}
	}
	r.count(p[:n])
	return n, err
}

// count follows the records through p.
func (r *records) count(p []byte) {
	for len(p) > 0 {
		rest, header, kind, length := r.Next(p)
		if header {
			r.most += int64(max(length-r.overhead, 1)) // a record without content differs from no record
			if kind != applicationData {
				r.most++
			}
		}
		p = rest
	}
}

// readNow reads what is there, if that is possible.
func (r *records) readNow(p []byte) (int, error) {
	if r.raw == nil || len(p) == 0 {
		return 0, errNothing
	}
	if r.readStep == nil {
		r.readStep = func(fd uintptr) { r.n, r.err = socket.Read(fd, r.in) }
	}
	r.in, r.n, r.err = p, 0, nil
	err := r.raw.Control(r.readStep)
	r.in = nil
	switch {
	case err != nil:
		return 0, err
	case r.err == syscall.EAGAIN:
		return 0, errNothing
	case r.err != nil:
		return 0, r.err
	case r.n == 0:
		return 0, io.EOF
	}
	return r.n, nil
}

// Write implements net.Conn.
func (r *records) Write(p []byte) (int, error) {
	switch {
	case r.mode != recordsWait:
		return r.writeNow(p)
	case r.io != nil:
		return r.io.Write(p)
	}
	return r.Conn.Write(p)
}

// writeNow sends TLS's answers to what it reads, such as KeyUpdate, if that needs no waiting.
func (r *records) writeNow(p []byte) (n int, err error) {
	if r.raw == nil {
		return 0, errNothing
	}
	if failed := r.raw.Control(func(fd uintptr) { n, err = socket.Write(fd, p) }); failed != nil {
		return n, failed
	}
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}

// settled is true if TLS holds nothing that was read from the socket. A partial record counts as held; it may be
// anything.
func (c *Conn) settled() bool {
	r := c.records
	return r == nil || r.Whole() && (r.most == c.given || c.drain(recordsHeld))
}

// mayHold is true if TLS may hold bytes that were read from the socket and not given out. Unlike settled it does not ask
// TLS, and so takes nothing from it. A connection that has given nothing yet has no answer to hold.
func (c *Conn) mayHold() bool {
	r := c.records
	return r != nil && c.given > 0 && (!r.Whole() || r.most != c.given)
}

// drain lets TLS process the records it holds, with recordsNow also those in the socket. It returns true if they were
// only TLS's own messages: servers may send tickets and KeyUpdate (RFC 8446 §4.6) at any time, and the library bounds
// them.
func (c *Conn) drain(mode recordsMode) bool {
	r := c.records
	r.mode = mode
	n, err := c.net.Read(c.one[:])
	r.mode = recordsWait
	if n > 0 || err != errNothing || !r.Whole() {
		return false
	}
	r.most = c.given
	return true
}
