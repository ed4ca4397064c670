package process

import (
	"net"
	"net/netip"
	"sync"
)

const (
	// adminConnections bounds the connections to the admin endpoint, adminPerAddress those from one address: nobody who
	// reaches the port may block probes or scrapers, or take the process's descriptors.
	adminConnections = 1024
	adminPerAddress  = 32
)

// boundedListener closes connections beyond the bounds.
type boundedListener struct {
	net.Listener

	mu   sync.Mutex
	all  int
	from map[netip.Addr]int // open connections
}

// Bounded returns a listener that closes connections beyond 1,024, and beyond 32 of one address.
func Bounded(l net.Listener) *boundedListener {
	return &boundedListener{Listener: l, from: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		var address netip.Addr
		if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			address = tcp.AddrPort().Addr().Unmap()
		}
		if b.enter(address) {
			return &boundedConn{Conn: c, leave: sync.OnceFunc(func() { b.leave(address) })}, nil
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

func (b *boundedListener) enter(address netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all >= adminConnections || b.from[address] >= adminPerAddress {
		return false
	}
	b.all++
	b.from[address]++
	return true
}

func (b *boundedListener) leave(address netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.from[address]--; b.from[address] == 0 {
		delete(b.from, address)
	}
}

type boundedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
