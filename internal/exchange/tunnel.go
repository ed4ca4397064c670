package exchange

import (
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/upstream"
)

// tunnel passes bytes of the client's connection in both directions, after a protocol switch (RFC 9110 §7.8) or a
// granted CONNECT.
func (ex *Exchange) tunnel(up *upstream.Conn) error {
	c, ok := ex.from.Client.(Tunneler)
	if !ok {
		up.Close()
		return failInterim
	}
	if err := ex.headOfTunnel(ex.resp.Upgrade); err != nil {
		up.Close()
		return err
	}
	in, out := c.Tunnel(up)
	ex.in += in
	ex.out += out
	return nil
}

// Rejudge judges an exchange that has become a tunnel again, by a later configuration and the head of its request. It
// returns false if the tunnel must be cut, which is then counted and logged as access_denied. The Tunneler calls it from
// any goroutine, one at a time, and not after it has returned from Tunnel. port is nil if the client's port is gone.
func (ex *Exchange) Rejudge(snap *Snapshot, port *routing.Port) bool {
	a := asked{time.Now(), nil, &ex.req, &ex.match, (*endToEnd)(ex)}
	if port != nil {
		a.listener = port.Listener(ex.req.host)
	}
	if ex.reason != "" || snap.again(&ex.judged, ex.from.Peer, ex.from.Shard, a) {
		return true
	}
	ex.reason = failDenied.Reason
	return false
}

// headOfTunnel sends the answer's head.
func (ex *Exchange) headOfTunnel(upgrade string) error {
	ex.answerFields()
	r := &ex.resp
	ex.answer = Answer{Status: r.Status, Reason: r.Reason, Fields: r.Fields, Upgrade: upgrade, Body: http1.Body{Kind: http1.BodyNone}}
	ex.status = r.Status
	if err := ex.beginAnswer(); err != nil {
		return err
	}
	return ex.from.Client.Flush()
}
