package proxy

import (
	"crypto/tls"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/clock"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/upstream"
)

// Tunnel implements exchange.Tunneler. It ends when both directions have ended, when one breaks, or when neither moved
// a byte for the stream timeout.
func (c *conn) Tunnel(up *upstream.Conn) (in, out int64) {
	c.closing = true
	t := &tunnel{c: c, up: up, limit: c.srv.opt.StreamTimeout}
	t.moved.Store(clock.Instant(time.Now()))
	c.bind.tunnels.add(t)
	defer t.end()
	if snap, port := c.current(); snap != c.snap {
		t.rejudge(snap, port) // Apply may have come too early to see the tunnel
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.in = t.copy(t.fromClient, t.toEndpoint, up.CloseWrite)
	}()
	t.out = t.copy(t.fromEndpoint, t.toClient, c.closeWrite)
	<-done
	up.Close()
	c.broken = true // the connection ends without further bytes
	return t.in, t.out
}

// tunnel is the state that both directions share.
type tunnel struct {
	c       *conn
	up      *upstream.Conn
	limit   time.Duration
	moved   atomic.Int64 // when a byte was last moved, either way
	in, out int64

	mu   sync.Mutex // of rejudge
	over bool
}

// end takes the tunnel off the list. It waits for a rejudge under way, which reads the exchange.
func (t *tunnel) end() {
	t.c.bind.tunnels.remove(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}

// rejudge judges the tunnel by a configuration that has come into force, from any goroutine. port may be nil or of
// another protocol.
func (t *tunnel) rejudge(snap *snapshot, port *routing.Port) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if port != nil && !t.c.belongs(port) {
		port = nil
	}
	if !t.over && !t.c.w.ex.Rejudge(snap.Snapshot, port) {
		reset(t.c.sock)
		t.up.Reset()
	}
}

// copy moves bytes until read ends or either side fails. The end of read closes the writing side. A failure ends both
// connections.
func (t *tunnel) copy(read func([]byte) (int, error), write func([]byte) (int, error), end func() error) (total int64) {
	p := piecePool.Get().(*piece)
	defer piecePool.Put(p)
	for {
		n, err := read(p.b[:])
		if n > 0 {
			t.moved.Store(clock.Instant(time.Now()))
			if _, err := write(p.b[:n]); err != nil {
				t.abort()
				return total
			}
			t.moved.Store(clock.Instant(time.Now()))
			total += int64(n)
		}
		switch {
		case err == nil:
		case upstream.IsTimeout(err) && clock.Since(t.moved.Load()) < t.limit:
		case err == io.EOF:
			if end() != nil {
				t.abort()
			}
			return total
		default:
			t.abort()
			return total
		}
	}
}

func (t *tunnel) abort() {
	t.up.Abort()
	t.c.kill()
}

// fromClient first returns the bytes that came behind the request's head.
func (t *tunnel) fromClient(p []byte) (int, error) {
	if w := t.c.w; w.r < w.n {
		n := copy(p, w.rbuf[w.r:w.n])
		w.r += n
		return n, nil
	}
	t.c.readUntil(time.Now().Add(t.limit), t.limit/4)
	return t.c.nc.Read(p)
}

func (t *tunnel) toClient(p []byte) (int, error) {
	t.c.writeUntil(time.Now().Add(t.limit), t.limit/4)
	return t.c.nc.Write(p)
}

func (t *tunnel) toEndpoint(p []byte) (int, error) {
	t.up.WriteBy(time.Now().Add(t.limit), t.limit/4)
	return t.up.Write(p)
}

func (t *tunnel) fromEndpoint(p []byte) (int, error) {
	t.up.ReadBy(time.Now().Add(t.limit), t.limit/4)
	return t.up.Read(p)
}

// closeWrite tells the client that no more bytes follow.
func (c *conn) closeWrite() error {
	if t, ok := c.nc.(*tls.Conn); ok {
		return t.CloseWrite()
	}
	if c.tcp != nil {
		return c.tcp.CloseWrite()
	}
	return http.ErrNotSupported
}
