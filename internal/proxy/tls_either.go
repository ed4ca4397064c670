package proxy

import (
	"errors"
	"net"

	"github.com/weirmesh/weir/internal/socket"
)

// recordHandshake begins a client's first TLS record (RFC 8446 §5.1). No request begins with it.
const recordHandshake = 22

// errEarly ends a handshake before whose end the client sent more than a handshake has.
var errEarly = errors.New("the client sent more than its handshake")

// replayed is a socket whose first bytes were read before TLS was known to be there.
type replayed struct {
	net.Conn
	early []byte
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.early) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.early)
	r.early = r.early[n:]
	return n, nil
}

// turnsToTLS reports whether the client, whom the port also serves in cleartext, has begun with TLS. The connection is
// one of TLS then, before its handshake.
func (c *conn) turnsToTLS() bool {
	w := c.w
	if !c.either || c.detects != known || !c.first || !c.is(stateHead) || w == nil || w.r == w.n || w.rbuf[w.r] != recordHandshake {
		return false
	}
	c.nc = &replayed{c.sock, append([]byte(nil), w.rbuf[w.r:w.n]...)}
	putWork(w)
	c.w = nil
	c.giveBack()
	c.either, c.tcp, c.wait, c.push = false, nil, nil, nil
	c.readBy, c.writeBy = socket.LongAgo, socket.LongAgo // a handshake sets deadlines of its own
	c.tls = &tlsSession{}
	c.peer.Secure(&c.tls.peer)
	return true
}

// replay has the handshake read the socket itself from now on. It fails if bytes are left of those that came before.
func (h *handshakeConn) replay() error {
	r, ok := h.Conn.(*replayed)
	if !ok {
		return nil
	}
	if len(r.early) > 0 {
		return errEarly
	}
	h.Conn = r.Conn
	return nil
}
