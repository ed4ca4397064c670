package upstream

import (
	"crypto/tls"
	"net"
	"time"
)

// http2CloseTime bounds how long closing waits to tell the other side so in TLS.
const http2CloseTime = 250 * time.Millisecond

// http2Wire is a TLS connection whose end does not wait for long.
type http2Wire struct {
	*tls.Conn
	wire net.Conn // below
}

func (w *http2Wire) Close() error {
	t := time.AfterFunc(http2CloseTime, func() { w.wire.Close() })
	defer t.Stop()
	return w.Conn.Close()
}
