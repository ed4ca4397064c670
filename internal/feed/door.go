package feed

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

const (
	// maxConnections bounds the connections of proxies that have shown their token.
	maxConnections = 8192
	// maxStrangers bounds the connections without a verified token, strangersPerAddress those from one address.
	maxStrangers        = 1024
	strangersPerAddress = 32
	// strangerTime is how long a connection may take from its beginning to the token. Verifying the token has its own
	// time.
	strangerTime = 10 * time.Second
	// leaveTime is how long a connection may take to read the answer after its stream has ended or was refused.
	leaveTime = time.Second
	// arrivals is how many connections from one address are accepted at once, arrivalRate how many more in each second
	// after that, whatever happens to them: each may cost a handshake and the verification of a token.
	arrivals    = 512
	arrivalRate = 32
	// maxAddresses bounds the addresses with separate accounts. Further ones share one account.
	maxAddresses = 4096
	// maxChecks bounds the tokens that are verified at the same time, checksPerAddress those from one address.
	maxChecks        = 16
	checksPerAddress = 2
)

// door accepts connections: only a few without a verified token, and of those only a few from one address, so that
// nobody who reaches the port can block others. A connection whose token was verified gives its place to others.
type door struct {
	handshakes chan struct{} // one place for each that uses a processor
	turned     atomic.Uint64 // connections that were turned away

	mu        sync.Mutex
	addresses map[netip.Addr]*address
	strangers int
	known     int // connections of proxies
}

// address is the account of one address that connections come from. door.mu guards its fields.
type address struct {
	strangers []*visitor // the longest there first
	arrivals  float64    // how many more are let in now
	counted   time.Time  // when that was computed
	checks    chan struct{}
}

func newDoor() *door {
	return &door{handshakes: make(chan struct{}, max(1, runtime.GOMAXPROCS(0))), addresses: map[netip.Addr]*address{}}
}

// visitor is a connection that was let in.
type visitor struct {
	net.Conn
	door *door
	from *address
	end  *time.Timer // closes it

	// computes means that the handshake holds a place, shaken that it is over. They belong to the goroutine of the
	// handshake.
	computes, shaken bool

	state   state // guarded by door.mu, as are the next two
	asked   bool  // the beginning of a stream has come
	streams int   // with a verified token
}

// state of a visitor.
type state int

const (
	stranger state = iota
	proven         // its token was found good
	gone
)

// admit lets a connection in, or returns nil if it is not to be.
func (d *door) admit(c net.Conn) *visitor {
	v, out := d.place(c)
	if out != nil {
		_ = out.Conn.Close()
	}
	return v
}

// place finds a place for a connection, and perhaps a connection that must end for it.
func (d *door) place(c net.Conn) (v, out *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	from := d.address(c.RemoteAddr(), time.Now())
	if len(from.strangers) >= strangersPerAddress || from.arrivals < 1 {
		d.turned.Add(1)
		return nil, nil
	}
	if d.strangers >= maxStrangers {
		most := d.most()
		if len(most.strangers) <= len(from.strangers)+1 && len(most.strangers) > 1 {
			d.turned.Add(1)
			return nil, nil
		}
		out = most.strangers[0]
		d.leave(out)
		d.turned.Add(1)
	}
	from.arrivals--
	v = &visitor{Conn: c, door: d, from: from}
	v.end = time.AfterFunc(strangerTime, func() { _ = v.Close() })
	from.strangers = append(from.strangers, v)
	d.strangers++
	return v, out
}

// address returns the account of one. d.mu is held.
func (d *door) address(of net.Addr, now time.Time) *address {
	var key netip.Addr
	if tcp, ok := of.(*net.TCPAddr); ok {
		key = tcp.AddrPort().Addr().Unmap()
	}
	a := d.addresses[key]
	if a == nil && len(d.addresses) >= maxAddresses {
		for k, old := range d.addresses {
			if old.refill(now); len(old.strangers) == 0 && len(old.checks) == 0 && old.arrivals >= arrivals {
				delete(d.addresses, k)
			}
		}
		if len(d.addresses) >= maxAddresses {
			key = netip.Addr{}
			a = d.addresses[key]
		}
	}
	if a == nil {
		a = &address{arrivals: arrivals, counted: now, checks: make(chan struct{}, checksPerAddress)}
		d.addresses[key] = a
	}
	a.refill(now)
	return a
}

func (a *address) refill(now time.Time) {
	a.arrivals = min(arrivals, a.arrivals+arrivalRate*now.Sub(a.counted).Seconds())
	a.counted = now
}

// most returns an address that has as many strangers as any. d.mu is held, and there are strangers.
func (d *door) most() (most *address) {
	for _, a := range d.addresses {
		if most == nil || len(a.strangers) > len(most.strangers) {
			most = a
		}
	}
	return most
}

// leave takes a visitor from the books. d.mu is held.
func (d *door) leave(v *visitor) {
	switch v.state {
	case stranger:
		d.strangers--
		v.from.strangers = slices.DeleteFunc(v.from.strangers, func(other *visitor) bool { return other == v })
	case proven:
		d.known--
	case gone:
		return
	}
	v.state = gone
	v.end.Stop()
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.door.mu.Lock()
	v.door.leave(v)
	v.door.mu.Unlock()
	return v.Conn.Close()
}

// arrived notes that the beginning of a stream has arrived. Its verification has its own time.
func (v *visitor) arrived() {
	v.door.mu.Lock()
	defer v.door.mu.Unlock()
	if v.state == stranger && !v.asked {
		v.end.Reset(2 * checkTime) // waiting and verifying take at most half of it
	}
	v.asked = true
}

var errFull = errors.New("too many proxies are connected")

// prove notes that a stream's token was verified.
func (v *visitor) prove() error {
	d := v.door
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case v.state == gone:
		return net.ErrClosed
	case v.state == stranger && d.known >= maxConnections:
		return errFull
	case v.state == stranger:
		d.leave(v)
		v.state = proven
		d.known++
	}
	v.end.Stop()
	v.streams++
	return nil
}

// ended notes that a verified stream is over. A connection without one is not kept.
func (v *visitor) ended() {
	v.door.mu.Lock()
	defer v.door.mu.Unlock()
	if v.streams--; v.streams == 0 && v.state == proven {
		v.end.Reset(leaveTime)
	}
}

// refuse notes that a stream was refused.
func (v *visitor) refuse() {
	v.door.mu.Lock()
	defer v.door.mu.Unlock()
	if v.state == stranger {
		v.end.Reset(leaveTime)
	}
}

// check waits until the token of a visitor may be verified. Call done afterwards.
func (s *Server) check(ctx context.Context, v *visitor) (done func(), err error) {
	var own chan struct{} // nil, and never ready, for streams that came by no door
	if v != nil {
		own = v.from.checks
		select {
		case own <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	leave := func() {
		if own != nil {
			<-own
		}
	}
	select {
	case s.checks <- struct{}{}:
		return func() { <-s.checks; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// Read implements net.Conn. During the handshake, only as many connections as there are processors work on what was
// read; waiting for the peer takes no place.
func (v *visitor) Read(p []byte) (int, error) {
	if v.shaken {
		return v.Conn.Read(p)
	}
	v.yield()
	n, err := v.Conn.Read(p)
	if n > 0 {
		v.door.handshakes <- struct{}{} // connections with a place are not delayed by their peers
		v.computes = true
	}
	return n, err
}

// Write implements net.Conn.
func (v *visitor) Write(p []byte) (int, error) {
	if !v.shaken {
		v.yield()
	}
	return v.Conn.Write(p)
}

func (v *visitor) yield() {
	if v.computes {
		v.computes = false
		<-v.door.handshakes
	}
}

// watched is a listener whose connections come by a door.
type watched struct {
	net.Listener
	door *door
	told func(from net.Addr) // called for a connection that was turned away
}

// Accept implements net.Listener.
func (w *watched) Accept() (net.Conn, error) {
	for {
		c, err := w.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if v := w.door.admit(c); v != nil {
			return v, nil
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // the system does not keep it either
		}
		from := c.RemoteAddr()
		_ = c.Close()
		w.told(from)
	}
}

// doorTLS is TLS for connections through a door. From the peer of a stream it finds the connection.
type doorTLS struct {
	credentials.TransportCredentials
}

func newDoorTLS(config *tls.Config) doorTLS { return doorTLS{credentials.NewTLS(config)} }

// come is the AuthInfo of a connection.
type come struct {
	credentials.TLSInfo
	by *visitor
}

// ServerHandshake implements credentials.TransportCredentials.
func (t doorTLS) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	v, ok := c.(*visitor)
	if !ok {
		return t.TransportCredentials.ServerHandshake(c)
	}
	secure, info, err := t.TransportCredentials.ServerHandshake(v)
	v.yield()
	v.shaken = true
	if err != nil {
		return nil, nil, err
	}
	of, ok := info.(credentials.TLSInfo)
	if !ok {
		_ = v.Close()
		return nil, nil, errors.New("feed: the library's credentials are not TLS credentials")
	}
	return secure, come{of, v}, nil
}

// Clone implements credentials.TransportCredentials.
func (t doorTLS) Clone() credentials.TransportCredentials {
	return doorTLS{t.TransportCredentials.Clone()}
}
