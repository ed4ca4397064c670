package proxy

import (
	"io"
	"net/http"
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
	for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			silent, live := peertest.Unaccepting(t), h2cBackend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
			to := func(addresses ...string) *model.Config {
				cfg := plain(addresses...)
				cfg.Services[0].Protocol = protocol
				return cfg
			}
			s := serve(t, to(silent, live), func(o *Options) { o.Upstream.ConnectTimeout = time.Hour })
			endpoint := s.state.Load().Service(&upstream.Service{Name: serviceName}).Endpoints()[0]
			for endpoint.Stats().Dials == 0 { // requests are shared out: one of the first meets it
				k := newTalk(t, s.addr())
				k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
				if resp, _ := k.answer("POST"); resp.StatusCode != 200 {
					t.Fatalf("status %d", resp.StatusCode)
				}
			}

			s = serve(t, to(silent, peertest.Refusing(t)), func(o *Options) { o.Upstream.ConnectTimeout = 2 * time.Second })
			began := time.Now()
			k := newTalk(t, s.addr())
			k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if resp, _ := k.answer("GET"); resp.StatusCode != 502 && resp.StatusCode != 504 {
				t.Errorf("status %d after %v", resp.StatusCode, time.Since(began))
			}
		})
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
