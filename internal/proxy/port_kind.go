package proxy

import (
	"net"
	"net/netip"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// portKind is how a port serves connections. The protocol of its listeners decides it.
type portKind struct {
	// plain: the port serves HTTP in cleartext. It accepts connections in batches, and answers a connection that it has
	// no place for.
	plain bool
	// begin starts to serve a new connection without waiting for it.
	begin func(b *bind, a accepted)
}

// accepted is a new connection.
type accepted struct {
	net.Conn
	shard uint32
	// to is the address that the client meant, if a redirect brought the connection.
	to netip.AddrPort
	// header says that the connection begins with a PROXY header.
	header bool
}

// portKinds has a row for each protocol of listeners.
var portKinds = map[model.Protocol]*portKind{
	model.HTTP:  {plain: true, begin: func(b *bind, a accepted) { b.beginHTTP(a, false) }},
	model.HTTPS: {begin: func(b *bind, a accepted) { b.beginHTTP(a, true) }},
	model.TCP:   {begin: func(b *bind, a accepted) { b.beginRelay(a, false) }},
	model.TLS:   {begin: func(b *bind, a accepted) { b.beginRelay(a, true) }},
}

// Kinds of ports that tell by a connection's first bytes how to serve it.
var (
	// either serves requests with TLS and without.
	either = &portKind{begin: func(b *bind, a accepted) { b.beginUnknown(a, true, known) }}
	// eitherAll serves requests and connections, with TLS and without, eitherRelay connections alone.
	eitherAll   = &portKind{begin: func(b *bind, a accepted) { b.beginUnknown(a, true, detectAll) }}
	eitherRelay = &portKind{begin: func(b *bind, a accepted) { b.beginUnknown(a, true, detectMesh) }}
	// plainAll serves requests and connections, in cleartext.
	plainAll = &portKind{begin: func(b *bind, a accepted) { b.beginUnknown(a, false, detectAll) }}
)

// kindFor is the kind of a port.
func kindFor(p *routing.Port) *portKind {
	tls := p.Protocol.TLS()
	switch {
	case p.Detect && p.Plain && tls:
		return eitherAll
	case p.Plain && tls && p.Protocol.Requests():
		return either
	case p.Plain && tls:
		return eitherRelay
	case p.Detect && !tls:
		return plainAll
	}
	return portKinds[p.Protocol]
}

// beginUnknown serves a connection that begins in cleartext. It may begin TLS if tls is true.
func (b *bind) beginUnknown(a accepted, tls bool, detects detection) {
	b.wg.Add(1)
	c := newConn(b, a.Conn, a.shard, a.to, false)
	c.either, c.detects = tls, detects
	b.greet(c, a.header)
}

// kindOf is the kind of one of the snapshot's ports.
func (s *snapshot) kindOf(p *routing.Port) *portKind { return s.kinds[p.Listeners[0].ID] }

// beginHTTP serves an HTTP connection, over TLS if secure is true.
func (b *bind) beginHTTP(a accepted, secure bool) {
	b.wg.Add(1)
	b.greet(newConn(b, a.Conn, a.shard, a.to, secure), a.header)
}

// greet begins to serve a connection, which has a PROXY header first if header is true.
func (b *bind) greet(c *conn, header bool) {
	if header {
		c.become(stateHeader)
	}
	b.serve(c)
}

// beginRelay relays a connection, inside TLS if secure is true.
func (b *bind) beginRelay(a accepted, secure bool) {
	b.wg.Go(func() {
		b.relay(a, secure)
		b.metrics.Closed(a.shard)
		b.srv.connections.Add(-1)
	})
}
