package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

// headerPiece is how many bytes are examined in one step of reading a PROXY header.
const headerPiece = 536

// readProxyHeader reads the PROXY header at the beginning of a connection and not a byte more. All later bytes are read
// from the socket as if the connection had begun there. It returns io.EOF if the connection ended without a byte.
func readProxyHeader(nc net.Conn) (h clientaddr.Header, err error) {
	var s clientaddr.Scanner
	if sc, ok := nc.(syscall.Conn); ok && socket.CanPeek {
		if raw, rerr := sc.SyscallConn(); rerr == nil {
			err = scanSocket(raw, &s)
			return parseScanned(&s, err)
		}
	}
	var piece [headerPiece]byte
	for whole := false; !whole && err == nil; {
		var n int
		n, err = nc.Read(piece[:min(s.Need(), headerPiece)])
		if n > 0 {
			_, whole, err = s.Take(piece[:n])
		}
	}
	return parseScanned(&s, err)
}

func parseScanned(s *clientaddr.Scanner, err error) (h clientaddr.Header, _ error) {
	switch {
	case err == nil:
		return clientaddr.ParseHeader(s.Bytes())
	case len(s.Bytes()) > 0 && err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return h, err
}

// scanSocket peeks at the available bytes and then consumes only those that belong to the header.
func scanSocket(raw syscall.RawConn, s *clientaddr.Scanner) (err error) {
	var piece [headerPiece]byte
	failed := raw.Read(func(fd uintptr) bool {
		for {
			var n, taken int
			var whole bool
			if n, err = socket.Peek(fd, piece[:]); err != nil {
				if err == syscall.EAGAIN {
					err = nil
					return false
				}
				err = os.NewSyscallError("recvfrom", err)
				return true
			}
			if n == 0 {
				err = io.EOF
				return true
			}
			taken, whole, err = s.Take(piece[:n])
			if terr := socket.Take(fd, piece[:taken]); err == nil {
				err = terr
			}
			if whole || err != nil {
				return true
			}
		}
	})
	if failed != nil {
		return failed
	}
	return err
}

// mayKnock is false for a connection from an untrusted address to a port of the PROXY protocol. It closes and counts
// such a connection.
func (b *bind) mayKnock(f *exchange.Front, nc net.Conn, shard uint32) bool {
	if f == nil || !f.Header || f.Trust.Contains(clientaddr.AddrPort(nc.RemoteAddr()).Addr()) {
		return true
	}
	b.strange(nc, shard, errNotTrusted)
	nc.Close()
	return false
}

var errNotTrusted = errors.New("the address is not a trusted proxy")

// strange counts a connection that brought no PROXY header. It logs at most one warning a second, and the other
// connections at debug level.
func (b *bind) strange(nc net.Conn, shard uint32, err error) {
	s := b.srv
	s.opt.Metrics.Unrouted().Fail(shard, telemetry.ProxyHeader)
	if suppressed, ok := s.strangers.Allow(""); ok {
		s.log.Warn("connection closed: no valid PROXY header",
			loglimit.Args(suppressed, "address", b.ln.Addr().String(), "peer", nc.RemoteAddr().String(), "error", err)...)
		return
	}
	if s.log.Enabled(context.Background(), slog.LevelDebug) {
		s.log.Debug("connection closed: no valid PROXY header", "peer", nc.RemoteAddr().String(), "error", err)
	}
}

// awaitHeader reads the PROXY header of a new connection. It returns false if the connection must be closed. The
// connection counts as idle until the header is complete.
func (c *conn) awaitHeader() bool {
	c.sock.SetReadDeadline(time.Now().Add(c.srv.opt.HeaderTimeout))
	if c.bind.phase.Load() == phaseClose || c.shed.Load() {
		return false
	}
	h, err := readProxyHeader(c.sock)
	if err != nil {
		if err != io.EOF && c.bind.phase.Load() != phaseClose && !c.shed.Load() {
			c.bind.strange(c.sock, c.shard, err)
		}
		return false
	}
	c.sock.SetReadDeadline(time.Time{})
	c.readBy = time.Time{}
	c.peer.Become(exchange.NewAnnounced(h))
	return true
}
