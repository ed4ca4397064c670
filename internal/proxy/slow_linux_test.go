package proxy

import (
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// TestARequestLeavesAnEndpointThatDoesNotAccept for one that does, long before connecting would be given up, whatever its method: nothing
// was sent. Where no other takes it, it waits for the rest of the time.
func TestARequestLeavesAnEndpointThatDoesNotAccept(t *testing.T) {
	silent, live := peertest.Unaccepting(t), newReplica(t)
	live.start()
	defer live.stop(t)
	cfg := plain(silent)
	cfg.Services[0].Endpoints = append(cfg.Services[0].Endpoints, model.Endpoint{Address: live.Listener.Addr().String()})
	s := serve(t, cfg, func(o *Options) { o.Upstream.ConnectTimeout = time.Hour })
	endpoint := s.state.Load().Service(&upstream.Service{Name: serviceName}).Endpoints()[0]
	for endpoint.Stats().DialFails == 0 { // requests are shared out: one of the first meets it
		k := newTalk(t, s.addr())
		k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
		if resp, _ := k.answer("POST"); resp.StatusCode != 200 {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}

	cfg = plain(silent)
	cfg.Services[0].Endpoints = append(cfg.Services[0].Endpoints, model.Endpoint{Address: peertest.Refusing(t)})
	s = serve(t, cfg, func(o *Options) { o.Upstream.ConnectTimeout = 2 * time.Second })
	began := time.Now()
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 502 && resp.StatusCode != 504 {
		t.Errorf("status %d after %v", resp.StatusCode, time.Since(began))
	}
}

// TestARequestLeavesTheOnlyEndpointForOneThatComes while it is being connected: a pod that is gone may drop what is sent to its address.
func TestARequestLeavesTheOnlyEndpointForOneThatComes(t *testing.T) {
	live := newReplica(t)
	live.start()
	defer live.stop(t)
	s := serve(t, plain(peertest.Unaccepting(t)), func(o *Options) { o.Upstream.ConnectTimeout = time.Hour })
	k := newTalk(t, s.addr())
	k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
	var load telemetry.Load
	for s.pipe.Load(&load); load.InFlight == 0; s.pipe.Load(&load) {
		time.Sleep(time.Millisecond)
	}
	if err := s.Apply(plain(live.Listener.Addr().String())); err != nil {
		t.Fatal(err)
	}
	if resp, _ := k.answer("POST"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}
