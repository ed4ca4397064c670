package proxy

import (
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/upstream"
)

// WaitsToBegin implements exchange.Client.
func (c *conn) WaitsToBegin() bool {
	return c.w.req.Expect100 && c.w.req.Minor > 0 && !c.in.continued.Load() && !c.in.begun.Load()
}

// Watch implements exchange.Client. An HTTP/1.1 client must be polled instead, see Gone.
func (c *conn) Watch(*upstream.Call) {}

// Unwatch implements exchange.Client.
func (c *conn) Unwatch() bool { return true }

// Waited implements exchange.Client.
func (c *conn) Waited() (age time.Duration, left, known bool) {
	if c.socket == nil {
		return 0, false, false
	}
	return socket.DataAge(c.socket)
}

// TurnAway implements exchange.Client. No other exchange waits behind an HTTP/1.1 request.
func (c *conn) TurnAway() bool { return false }

// Splices implements exchange.Splicer.
func (c *conn) Splices() bool { return c.tcp != nil }

// BeginSplice implements exchange.Splicer.
func (c *conn) BeginSplice() { c.guard.start(c) }

// EndSplice implements exchange.Splicer.
func (c *conn) EndSplice() { c.guard.stop() }

// Splice implements exchange.Splicer.
func (c *conn) Splice(call *upstream.Call, most int64) (n int64, err error) {
	now, limit := time.Now(), c.srv.opt.StreamTimeout
	c.writeUntil(now.Add(limit), limit/4)
	n, err = call.Splice(c.tcp, most, now)
	switch {
	case err == nil:
		return n, nil
	case c.guard.tripped():
		return n, exchange.WriteFailure(err)
	case upstream.IsTimeout(err) && (n > 0 || time.Now().Before(c.writeBy)):
		return n, upstream.ErrTimeout
	case upstream.IsTimeout(err) || c.Gone():
		return n, exchange.WriteFailure(err)
	}
	return n, err
}
