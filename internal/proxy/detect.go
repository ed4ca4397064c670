package proxy

import (
	"io"
	"time"

	"github.com/weirmesh/weir/internal/clienthello"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/upstream"
)

// detection is what a connection in cleartext may turn out to carry, until its first bytes say it.
type detection uint8

const (
	// known: the port says it.
	known detection = iota
	// detectAll: requests or other bytes (model.Listener.Detect).
	detectAll
	// detectMesh: TLS of the mesh, or other bytes.
	detectMesh
)

// carried is what a connection carries.
type carried uint8

const (
	carriesUnknown carried = iota
	carriesRequests
	// carriesMesh: the client begins TLS that ends here.
	carriesMesh
	// carriesOther: bytes that are not understood, an application's own TLS among them.
	carriesOther
)

const (
	// quietTime is how long a client may be silent before its endpoint is connected, to see whether that speaks first.
	quietTime = 5 * time.Millisecond
	// meshQuietTime is quietTime where the client may be another sidecar, which begins TLS: it comes over the network, and its
	// processor may be taken from it for longer than quietTime. What an endpoint says first would end its handshake.
	meshQuietTime = 100 * time.Millisecond
)

// carries reports what the connection carries whose first bytes are buf.
func (c *conn) carries(buf []byte) carried {
	full := len(buf) >= readSize // no more is looked at
	hello, begins := clienthello.Other, http1.BeginsOther
	switch {
	case buf[0] == recordHandshake && c.either:
		hello = clienthello.Look(buf, model.MeshProtocol)
	case c.detects == detectAll:
		begins = http1.Begins(buf)
	}
	switch {
	case hello == clienthello.Offered:
		return carriesMesh
	case begins == http1.BeginsRequest || begins == http1.BeginsOpen && full:
		return carriesRequests
	case !full && (hello == clienthello.More || begins == http1.BeginsOpen):
		return carriesUnknown
	}
	return carriesOther
}

// detect looks at what has come of a connection, if it is not known what that carries. It returns false if more must come,
// or if the connection is to be relayed.
func (c *conn) detect() bool {
	switch c.carries(c.w.rbuf[c.w.r:c.w.n]) {
	case carriesUnknown:
		return false
	case carriesOther:
		c.opaque = true
		return false
	}
	c.detects = known
	return true
}

// mayAwait reports whether the endpoint may be connected before the client has said anything.
func (c *conn) mayAwait() bool {
	snap, port := c.bind.serving(c.to)
	return snap.MayAwait(&c.peer, port)
}

// awaitFirst waits for the first bytes of a client that may be silent until its endpoint speaks. It returns true if bytes
// have come that may be requests.
func (c *conn) awaitFirst() bool {
	c.become(stateIdle)
	if c.mustEnd() {
		return c.silent(nil)
	}
	quiet := c.srv.opt.quiet
	if c.either {
		quiet = meshQuietTime
	}
	c.readUntil(time.Now().Add(quiet), 0)
	err := c.hear()
	switch {
	case err == nil:
		return true
	case upstream.IsTimeout(err) && !c.mustEnd():
		return c.contend()
	}
	return c.silent(err)
}

// mustEnd is true once others need the place of a connection that waits.
func (c *conn) mustEnd() bool { return c.bind.phase.Load() == phaseClose || c.shed.Load() }

// silent handles a client that has said nothing, and will not: it sent the end of its side, or its connection has to end or is
// broken.
func (c *conn) silent(err error) bool {
	switch {
	case c.mustEnd():
		if c.lastLook() {
			return true
		}
		c.become(stateOver)
	case err == io.EOF:
		c.opaque = true // it may still listen
	}
	return false
}

// hear reads what the client sends, behind what came before. It waits until the deadline that is set.
func (c *conn) hear() error {
	if w := c.w; w != nil {
		n, err := c.nc.Read(w.rbuf[w.n:])
		if w.n += n; n > 0 {
			return nil
		}
		return err
	}
	if c.wait == nil {
		n, err := c.nc.Read(c.one[:])
		if n > 0 {
			c.takeFirst()
			return nil
		}
		return err
	}
	if err := c.socket.Read(c.wait); err != nil {
		return err
	}
	return c.readErr
}
