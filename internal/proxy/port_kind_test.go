package proxy

import (
	"errors"
	"net/http"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/socket"
)

func TestEachProtocolHasAKindOfPort(t *testing.T) {
	for _, p := range model.ListenerProtocols() {
		if k := portKinds[p]; k == nil || k.begin == nil || k.plain != (p.Requests() && !p.TLS()) {
			t.Errorf("protocol %q: %+v", p, k)
		}
	}
	if len(portKinds) != len(model.ListenerProtocols()) {
		t.Errorf("%d kinds of ports for %q", len(portKinds), model.ListenerProtocols())
	}
}

// TestSocketsAreOpenedAndNamedByNetwork checks what a handover needs: sockets are opened, passed on and taken by
// network and address.
func TestSocketsAreOpenedAndNamedByNetwork(t *testing.T) {
	var asked []socket.Name
	s := serve(t, plain(backend(t, nil)), func(o *Options) {
		o.Listen = func(network, address string) (socket.Bound, error) {
			asked = append(asked, socket.Name{Network: network, Address: address})
			return socket.Open(network, "127.0.0.1:0")
		}
	})
	want := socket.Name{Network: "tcp", Address: ":80"}
	if len(asked) != 1 || asked[0] != want {
		t.Errorf("asked for %v, want %v", asked, want)
	}
	addr := s.Addrs()[0]
	var passed []socket.Name
	if err := s.Sockets(func(n socket.Name, b socket.Bound) error {
		if b.Addr().String() != addr.Bound.String() {
			t.Errorf("socket %v", b.Addr())
		}
		passed = append(passed, n)
		return nil
	}); err != nil || len(passed) != 1 || passed[0] != want {
		t.Errorf("passed %v, %v, want %v", passed, err, want)
	}
	if addr.Protocol != model.HTTP {
		t.Errorf("the protocol is %q", addr.Protocol)
	}
	stop := errors.New("stop")
	if err := s.Sockets(func(socket.Name, socket.Bound) error { return stop }); err != stop {
		t.Errorf("error %v, want %v", err, stop)
	}
	s.Taken([]socket.Name{{Network: "udp", Address: ":80"}})
	if s.binds[0].shared.Load() {
		t.Error("the socket of another network counts as taken")
	}
	s.Taken(passed)
	if !s.binds[0].shared.Load() {
		t.Error("the socket does not count as taken")
	}
}

// TestAConnectionHasNothingOnAPortOfAnotherProtocol has an HTTP connection that stays open while its port changes to
// TCP.
func TestAConnectionHasNothingOnAPortOfAnotherProtocol(t *testing.T) {
	s := serve(t, plain(backend(t, func(http.ResponseWriter, *http.Request) {})))
	k := newTalk(t, s.addr())
	request := "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	k.send(request)
	if status, _ := k.answer("GET"); status.StatusCode != 200 {
		t.Fatalf("status %d", status.StatusCode)
	}
	if err := s.Apply(toAddresses(echo(t, "raw"))); err != nil {
		t.Fatal(err)
	}
	k.send(request)
	if resp, _ := k.answer("GET"); resp.StatusCode != 404 {
		t.Errorf("status %d, want 404", resp.StatusCode)
	}
}
