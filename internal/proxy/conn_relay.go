package proxy

import "time"

// relayOn passes the connection's bytes on without understanding them, to its end. The connection is the relay's then.
func (c *conn) relayOn() {
	var early []byte
	if w := c.w; w != nil {
		early = append(early, w.rbuf[w.r:w.n]...)
		putWork(w)
		c.w = nil
	}
	c.headCame()
	c.giveBack()
	c.become(stateHandedOn)
	c.bind.forget(c)
	c.sock.SetReadDeadline(time.Time{})
	if t := c.contest; t != nil && t.kept(early) {
		return
	}
	r := c.newRelay()
	c.bind.relays.add(r)
	defer r.unlist()
	r.early = early
	r.serve()
	r.nc.Close()
	r.Finish()
}

// newRelay is a relay of the connection, which is not on the list of the bind's yet.
func (c *conn) newRelay() *relay {
	r := &relay{srv: c.srv, bind: c.bind, sock: c.sock, nc: c.nc, shard: c.shard, to: c.to, limit: c.srv.opt.StreamTimeout}
	r.Begin(c.srv.pipe, c.sock, c.shard)
	r.Peer.Port, r.Peer.Meant = c.bind.portOf(c.to), c.to
	if a := c.peer.Announced; a != nil {
		r.Announce(a.Header)
	}
	if c.tls != nil {
		r.within(c.tls)
	}
	return r
}
