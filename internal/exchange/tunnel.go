package exchange

import (
	"github.com/weirmesh/weir/internal/http1"
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
