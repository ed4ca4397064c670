package proxy

import (
	"cmp"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

// handshakeConn carries the name and the auth of the chosen listener out of the handshake. It also holds the handshake's place at
// the gate: a handshake has a place except while it waits for the client.
type handshakeConn struct {
	net.Conn
	c        *conn
	auth     exchange.ClientAuth
	listener string
	raw      bool // what follows is a connection, not requests
	proved   proof
	gate     *handshakeGate // nil once the handshake has ended
	begun    bool           // bytes have arrived
	until    time.Time
	in       bool
	io       *socket.Stream // used after the handshake; nil if Conn must be used
	held     bool           // Read returns errHeld
	now      bool           // Read returns errHeld if it would have to wait, or the socket is drained
	drained  bool           // the last such read took all there was
	fd       uintptr        // for now
	records  socket.Records // what was read
	heads    int            // how many records came since beginNow
	hasty    bool           // Write does not wait: bytes that do not fit are lost
	relayed  bool           // the deadline of writes is the relay's, who sets it on the socket
	came     int            // handshake bytes from the client
	drawn    int            // how many of these bytes were drawn for
}

// errHeld is temporary, so that the TLS connection can be read again after it.
var errHeld net.Error = heldError{}

type heldError struct{}

func (heldError) Error() string   { return "the socket is not to be read" }
func (heldError) Timeout() bool   { return true }
func (heldError) Temporary() bool { return true }

func (h *handshakeConn) Read(p []byte) (int, error) {
	n, err := h.read(p)
	for p = p[:n]; len(p) > 0; {
		rest, header, _, _ := h.records.Next(p)
		if p = rest; header {
			h.heads++
		}
	}
	return n, err
}

func (h *handshakeConn) read(p []byte) (int, error) {
	if h.gate == nil {
		switch {
		case h.held || h.now && h.drained:
			return 0, errHeld
		case h.now:
			return h.readNow(p)
		}
		if h.io != nil {
			return h.io.Read(p)
		}
		return h.Conn.Read(p)
	}
	h.leave()
	n, err := h.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	if !h.hello(n) {
		return 0, errHandshakeRoom
	}
	if e := h.gate.enter(h.until, !h.begun); e != nil {
		return 0, e
	}
	h.begun, h.in = true, true
	return n, err
}

// beginNow has what TLS reads next be read without waiting, until now is unset.
func (h *handshakeConn) beginNow() {
	h.now, h.heads = true, 0
	if !h.records.Whole() {
		h.heads = 1 // whose rest is to come
	}
}

// gaveAll is true if TLS, after a read with now that gave less than there was room for, holds nothing: the read took one record, whole.
func (h *handshakeConn) gaveAll() bool { return h.drained && h.heads == 1 && h.records.Whole() }

// readNow reads what is there.
func (h *handshakeConn) readNow(p []byte) (int, error) {
	n, err := socket.Read(h.fd, p)
	h.drained = n < len(p)
	switch {
	case err == syscall.EAGAIN:
		return 0, errHeld
	case err == nil && n == 0:
		err = io.EOF
	}
	return n, err
}

// Write continues a write that a deadline cut short if the client gets more time. crypto/tls could not continue it.
func (h *handshakeConn) Write(p []byte) (n int, err error) {
	if h.hasty {
		return writeNow(h.Conn.(syscall.Conn), p)
	}
	h.leave()
	for {
		m, err := h.put(p[n:])
		if n += m; err == nil || !h.c.sending || !h.c.moreTime(err) {
			return n, err
		}
	}
}

// SetWriteDeadline implements net.Conn. The library allows a close_notify five seconds, in which a client need not take
// what came before. A relay would be cut for it.
func (h *handshakeConn) SetWriteDeadline(t time.Time) error {
	if h.relayed {
		return nil
	}
	return h.Conn.SetWriteDeadline(t)
}

func (h *handshakeConn) put(p []byte) (int, error) {
	if h.io != nil {
		return h.io.Write(p)
	}
	return h.Conn.Write(p)
}

// writeNow writes the bytes that fit, without waiting.
func writeNow(sc syscall.Conn, p []byte) (n int, err error) {
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Write(func(fd uintptr) bool {
		n, err = socket.Write(fd, p)
		return true
	})
	return n, cmp.Or(failed, err)
}

func (h *handshakeConn) leave() {
	if h.in {
		h.in = false
		h.gate.leave()
	}
}

// ended gives back the place at the gate for good.
func (h *handshakeConn) ended() {
	h.leave()
	h.gate = nil
}

// handshake sets up TLS for requests.
func (c *conn) handshake() bool {
	if reason, err := c.secure(); err != nil {
		c.srv.log.Debug("TLS handshake failed", "client", c.peer.Name(), "error", err)
		c.srv.opt.Metrics.Unrouted().Fail(c.shard, reason)
		return false
	}
	if !c.tls.sock.raw {
		c.stream()
	}
	return true
}

// stream has the socket below TLS be read and written by the poller's own steps, if that is possible.
func (c *conn) stream() {
	if c.tls.sock.io = socket.NewStream(c.socket); c.tls.sock.io != nil {
		c.wait = c.readableTLS
	}
}

// secure sets up TLS. If it fails, reason says whose fault that is.
func (c *conn) secure() (reason telemetry.Reason, err error) {
	c.become(stateHandshake)
	until := time.Now().Add(c.srv.opt.HandshakeTimeout)
	hc := &handshakeConn{Conn: c.nc, c: c, gate: c.srv.handshakes, until: until}
	defer hc.ended()
	t := tls.Server(hc, c.bind.config)
	c.nc.SetDeadline(until)
	c.headBegun(time.Now())
	err = t.Handshake()
	c.giveBack()
	if !c.headCame() {
		err = errHandshakeRoom
	}
	if err == nil {
		err = hc.replay()
	}
	if err != nil {
		if errors.Is(err, errHandshakeLine) || errors.Is(err, errHandshakeRoom) {
			return telemetry.Overload, err
		}
		return telemetry.ClientTLS, err
	}
	c.nc.SetDeadline(time.Time{})
	c.nc = t
	c.tls.conn, c.tls.sock = t, hc
	state := t.ConnectionState()
	c.tls.peer.Name = lowerHost(state.ServerName)
	c.tls.peer.Auth, c.tls.peer.Listener = hc.auth, hc.listener
	switch chains := state.VerifiedChains; {
	case hc.auth.Identity != "":
		c.tls.peer.Verified, c.tls.peer.ID = hc.proved.leaf, hc.proved.id
	case len(chains) > 0:
		c.tls.peer.Verified = chains[0][0]
	}
	return "", nil
}
