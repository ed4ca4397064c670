package proxy

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

// brittle is a connection that the proxy does not see as TCP. Its writes may panic.
type brittle struct {
	net.Conn
	panics *atomic.Bool
}

func (c brittle) Write(p []byte) (int, error) {
	if c.panics.Load() {
		panic("write")
	}
	return c.Conn.Write(p)
}

type brittleListener struct {
	net.Listener
	panics *atomic.Bool
}

func (l brittleListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return brittle{c, l.panics}, nil
}

func TestPanicCostsItsConnectionOnly(t *testing.T) {
	var panics atomic.Bool
	addr, _ := wire(t, okResponse)
	s := serve(t, plain(addr), func(o *Options) {
		o.Listen = func(network, _ string) (socket.Bound, error) {
			ln, err := net.Listen(network, "127.0.0.1:0")
			return socket.Bound{Stream: brittleListener{ln, &panics}}, err
		}
	})
	other := newTalk(t, s.addr())
	k := newTalk(t, s.addr())
	for range 3 {
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, body := k.answer("GET"); body != "ok" {
			t.Errorf("body %q", body)
		}
	}
	panics.Store(true)
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	k.closed()
	panics.Store(false)
	other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, body := other.answer("GET"); body != "ok" {
		t.Errorf("body %q", body)
	}
	if n := s.upstreamInFlight(); n != 0 {
		t.Errorf("%d connections to the endpoint are lost", n)
	}
	if s.failures(telemetry.Internal) != 1 {
		t.Error("not counted")
	}
}

// A relay that panics gives back its places, and is counted.
func TestPanicCostsItsRelayOnly(t *testing.T) {
	var panics atomic.Bool
	s := serve(t, toAddresses(echo(t, "!")), func(o *Options) {
		o.Upstream.MaxRelays = 1
		o.Listen = func(network, _ string) (socket.Bound, error) {
			ln, err := net.Listen(network, "127.0.0.1:0")
			return socket.Bound{Stream: brittleListener{ln, &panics}}, err
		}
	})
	panics.Store(true)
	if err := greeting(s.addr()); err == nil {
		t.Error("a byte came from a relay that panicked")
	}
	panics.Store(false)
	until(t, "the place is not given back", func() bool { return greeting(s.addr()) == nil })
	until(t, "a connection to the endpoint is lost", func() bool { return s.upstreamInFlight() == 0 })
	if n := s.failures(telemetry.Internal); n != 1 {
		t.Errorf("counted %d times, want once", n)
	}
}
