package proxy

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/clock"
	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// contest is between a client that has said nothing and the endpoint that was connected for it: who speaks first decides what
// the connection carries. The connection's goroutine listens to the client, another one connects and listens to the
// endpoint. If the connection becomes a relay, they move its bytes.
type contest struct {
	relay *relay
	c     *conn
	ready chan struct{} // closed when the endpoint is connected, or cannot be
	done  chan struct{} // closed when the endpoint's goroutine has ended
	said  [512]byte     // what the endpoint says first: the greetings of common protocols

	mu sync.Mutex
	is outcome
}

// outcome of a contest.
type outcome uint8

const (
	// contestOpen: nobody has spoken.
	contestOpen outcome = iota
	// contestRelay: the connection is a relay.
	contestRelay
	// contestRequests: the client sends requests, or is gone. Nobody needs the endpoint.
	contestRequests
	// contestAlone: the endpoint is not there for this client, who may still send requests; or it serves HTTP/2, and what it
	// said is for no client that is silent.
	contestAlone
)

// contend connects the endpoint. It returns true if the client has said what may be requests.
func (c *conn) contend() bool {
	t := &contest{relay: c.newRelay(), c: c, ready: make(chan struct{}), done: make(chan struct{})}
	t.relay.contest = t
	t.relay.Await()
	t.relay.moved.Store(clock.Instant(time.Now()))
	c.bind.relays.add(t.relay)
	c.contest = t
	c.bind.wg.Go(t.hearEndpoint)
	return c.hearClient(t)
}

// hearClient listens to the client until it is known what the connection carries. It returns true for requests.
func (c *conn) hearClient(t *contest) bool {
	never := time.Now().Add(forEver)
	until := never // the endpoint's goroutine watches over the stream timeout
	for {
		c.readBy = socket.LongAgo // the endpoint's goroutine may have set the deadline
		c.readUntil(until, 0)
		switch is := t.outcome(); {
		case is == contestRelay:
			c.opaque = true
			return false
		case is == contestAlone && until == never:
			until = time.Now().Add(c.srv.opt.HeaderTimeout)
			continue
		case c.w == nil && c.mustEnd(): // the deadline just replaced may have been the one that says so
			return t.withdraw() && c.silent(nil)
		}
		err := c.hear()
		switch {
		case err == nil:
			if c.detect() {
				return t.withdraw()
			}
			if c.opaque {
				return false
			}
			until = earlier(until, time.Now().Add(c.srv.opt.HeaderTimeout))
		case err == io.EOF:
			c.opaque = true
			return false
		case !upstream.IsTimeout(err):
			t.withdraw()
			return false
		case !time.Now().Before(until):
			c.opaque = true // its bytes were no request; or it is the endpoint's failure that ends it
			return false
		}
	}
}

// forEver is longer than any connection lasts.
const forEver = 100 * 365 * 24 * time.Hour

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (t *contest) outcome() outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.is
}

// decide decides the contest, unless it is decided, and returns its outcome. The client's goroutine is woken if it was the
// endpoint's that decided.
func (t *contest) decide(is outcome, wake bool) outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.is == contestOpen {
		if t.is = is; wake {
			t.c.sock.SetReadDeadline(socket.LongAgo)
		}
	}
	return t.is
}

// withdraw ends the contest for a client that sends requests, or is gone. It returns false if the endpoint spoke before: then
// the connection is a relay.
func (t *contest) withdraw() bool {
	switch t.decide(contestRequests, false) {
	case contestRelay:
		t.c.opaque = true
		return false
	case contestRequests:
		t.relay.Withdraw() // its goroutine discards it
	case contestAlone:
		t.discard()
	}
	t.c.contest = nil
	t.c.readBy = socket.LongAgo
	return true
}

// discard forgets the relay, which was none, once the endpoint's goroutine has ended.
func (t *contest) discard() {
	<-t.done
	t.relay.unlist()
	t.relay.Discard()
}

// hearEndpoint connects the endpoint and listens to it. In a relay it moves the endpoint's bytes to their end.
func (t *contest) hearEndpoint() {
	r := t.relay
	defer t.leave()
	defer r.caught()
	there := r.connect(r.bind.serving(r.to))
	close(t.ready)
	if !there {
		if f := r.Cause(); f != nil && f.Absent() {
			t.decide(contestRelay, true) // one that fails: a client that waits for the endpoint has to learn it
		}
		return
	}
	n, err := r.hear(t.said[:])
	switch {
	case isSettings(t.said[:n]) && t.decide(contestAlone, true) != contestRelay:
	case n > 0 || err == io.EOF:
		if t.decide(contestRelay, true) == contestRelay {
			r.out(t.said[:n])
		}
	case upstream.IsTimeout(err):
		r.Abort(errIdle)
		t.decide(contestRelay, true)
	default:
		r.abort(&exchange.Failure{Reason: telemetry.BackendReset})
	}
}

// isSettings reports whether bytes begin with an HTTP/2 SETTINGS frame (RFC 9113 §6.5), which a server may send before its
// client's preface has come.
func isSettings(b []byte) bool {
	const header = 9
	return len(b) >= header && bytes.Equal(b[3:header], []byte{4, 0, 0, 0, 0, 0}) && (int(b[0])<<16|int(b[1])<<8|int(b[2]))%6 == 0
}

// leave is the end of the endpoint's goroutine.
func (t *contest) leave() {
	if t.decide(contestAlone, true) == contestRequests {
		t.relay.unlist()
		t.relay.Discard()
	}
	close(t.done)
}

// kept makes a relay of the connection, with the bytes that the client has sent, and serves it to its end. It returns false
// if that needs a new one: the endpoint was not there for the silent client, which speaks now.
func (t *contest) kept(early []byte) bool {
	r := t.relay
	is := t.decide(contestRelay, false)
	if is == contestAlone && len(early) > 0 {
		t.discard()
		return false
	}
	defer r.unlist()
	r.Keep()
	select {
	case <-t.ready:
	case <-t.done:
	}
	if is == contestAlone || r.up == nil || r.Aborted() {
		reset(r.sock)
	} else {
		r.early = early
		r.forward()
	}
	<-t.done
	r.nc.Close()
	r.Finish()
	return true
}
