package proxy

import (
	"net"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// portKind is what a port does, by the protocol of its listeners.
type portKind struct {
	// plain: the port is one for HTTP in cleartext. Connections are taken in batches, and one that finds no place is told so.
	plain bool
	// begin serves a new connection without waiting for it; header says that it begins with a PROXY header.
	begin func(b *bind, nc net.Conn, shard uint32, header bool)
}

// portKinds has a row for each protocol of listeners.
var portKinds = map[model.Protocol]*portKind{
	model.HTTP:  {plain: true, begin: func(b *bind, nc net.Conn, shard uint32, header bool) { b.beginHTTP(nc, shard, false, header) }},
	model.HTTPS: {begin: func(b *bind, nc net.Conn, shard uint32, header bool) { b.beginHTTP(nc, shard, true, header) }},
	model.TCP:   {begin: (*bind).beginRelay},
}

// kindOf is what a port of the snapshot does.
func (s *snapshot) kindOf(p *routing.Port) *portKind { return s.kinds[p.Listeners[0].ID] }

// beginHTTP serves a connection of HTTP, over TLS if it is secure.
func (b *bind) beginHTTP(nc net.Conn, shard uint32, secure, header bool) {
	b.wg.Add(1)
	c := newConn(b, nc, shard, secure)
	if header {
		c.become(stateHeader)
	}
	b.serve(c)
}

// beginRelay relays a connection.
func (b *bind) beginRelay(nc net.Conn, shard uint32, header bool) {
	b.wg.Go(func() {
		b.relay(nc, shard, header)
		b.metrics.Closed(shard)
		b.srv.connections.Add(-1)
	})
}
