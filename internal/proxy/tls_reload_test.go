package proxy

import (
	"bufio"
	"crypto/tls"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/size"
)

// TestCertificatesRotateUnderLoad changes the certificate a hundred times while clients connect. No handshake fails.
// The newest certificate is presented once it is applied, and open connections stay open.
func TestCertificatesRotateUnderLoad(t *testing.T) {
	t.Parallel()
	const workers = 3
	rotations := size.Of(10, 100)
	addr := backend(t, func(http.ResponseWriter, *http.Request) {})
	cfg := plain(addr)
	secure(t, cfg, "shop.example")
	s := serve(t, cfg)
	old := tls.Client(dial(t, s.addr()), &tls.Config{ServerName: "shop.example", InsecureSkipVerify: true})
	lasting := &talk{Conn: old, t: t, r: bufio.NewReader(old)}

	var over atomic.Bool
	var served atomic.Int64
	var wait sync.WaitGroup
	for i := range workers {
		wait.Go(func() {
			cache := &anySession{} // half of the handshakes resume
			for n := 0; !over.Load(); n++ {
				if n%2 == 0 {
					cache = &anySession{}
				}
				if _, err := resume(t, s.addr(), "shop.example", bothVersions[i%2], cache); err != nil {
					t.Errorf("after %d: %v", served.Load(), err)
					return
				}
				served.Add(1)
			}
		})
	}
	for range rotations {
		next := plain(addr)
		pool := secure(t, next, "shop.example")
		before := served.Load()
		if err := s.Apply(next); err != nil {
			t.Error(err)
			break
		}
		// The certificate is from an authority that no other one uses.
		k := newTLSTalk(t, s.addr(), pool, "shop.example")
		k.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
		k.answer("GET")
		k.Close()
		lasting.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
		if resp, _ := lasting.answer("GET"); resp.StatusCode != 200 {
			t.Errorf("on the connection that lasts: status %d", resp.StatusCode)
		}
		for served.Load() == before && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
	}
	over.Store(true)
	wait.Wait()
	if n := s.failures(telemetry.ClientTLS); n != 0 {
		t.Errorf("%d handshakes failed", n)
	}
	t.Logf("%d connections during %d rotations", served.Load(), rotations)
}
