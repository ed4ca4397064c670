package upstream

import (
	"net"
	"sync"
	"time"
)

// http2CloseTime bounds how long closing waits to tell the other side so in TLS.
const http2CloseTime = 250 * time.Millisecond

// http2Wire is a connection in the transport's hands. It tells when the endpoint's settings were taken in and when the transport
// closes it.
type http2Wire struct {
	net.Conn          // TLS or wire
	wire     net.Conn // below TLS

	head    [3]byte // the first frame's length
	read    int     // bytes, until settled
	settled chan struct{}
	isSet   bool // settled is closed; only the transport's reader asks

	once   sync.Once
	done   chan struct{} // closed
	closed func()
}

// Read is called by the transport's only reader when it has used up everything read before. So when it comes back after the first frame,
// which must be the settings (RFC 9113 §3.4), these are in force.
func (w *http2Wire) Read(p []byte) (int, error) {
	if w.isSet {
		return w.Conn.Read(p)
	}
	if w.read >= 9+int(w.head[0])<<16+int(w.head[1])<<8+int(w.head[2]) {
		w.isSet = true
		close(w.settled)
		return w.Conn.Read(p)
	}
	n, err := w.Conn.Read(p)
	if w.read < len(w.head) {
		copy(w.head[w.read:], p[:n])
	}
	w.read += n
	return n, err
}

func (w *http2Wire) Close() error {
	t := time.AfterFunc(http2CloseTime, func() { w.wire.Close() })
	defer t.Stop()
	err := w.Conn.Close()
	w.once.Do(func() { close(w.done) })
	w.closed()
	return err
}
