//go:build linux

package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirmesh/weir/test/weirtest"
)

// sidecarPeers calls f with each peer that is installed.
func sidecarPeers(t *testing.T, f func(t *testing.T, peer string)) {
	for _, peer := range daemons {
		t.Run(peer, func(t *testing.T) {
			if _, ok := debian[peer]; ok {
				if _, err := lookPath(peer); err != nil {
					t.Skip(peer, "is not installed")
				}
			}
			f(t, peer)
		})
	}
}

// TestTheCallersSidecarProvesItselfAndVerifiesTheApplications has servers in the place of the application's sidecar: the right one requires the
// caller's certificate, and connections to it must be kept; the others are not who they should be.
func TestTheCallersSidecarProvesItselfAndVerifiesTheApplications(t *testing.T) {
	b := newBench(t)
	b.weir = weirtest.Path(t)
	other, err := issue(b.trust.dir, "other", "other.bench.svc")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := issue(filepath.Join(b.dir, "elsewhere"), application, hostname)
	if err != nil {
		t.Fatal(err)
	}
	sidecarPeers(t, func(t *testing.T, peer string) {
		for name, c := range map[string]struct {
			file string
			want bool
		}{"application": {b.trust.server, true}, "other name": {other, false}, "other authority": {elsewhere, false}} {
			requests := 20
			if !c.want {
				requests = 1 // HAProxy tries for seconds
			}
			var asked, conns atomic.Int32
			server := tlsServer(t, b, c.file, &asked, &conns)
			s := setting{Backend: roleFast, Sidecars: 2}
			places, err := s.places()
			if err != nil {
				t.Fatal(err)
			}
			places[0].next = server
			p := &proxy{contender: contender{label: peer, peer: peer, setting: s}, places: places[:1], port: places[0].port}
			if err := b.startPlace(p, places[0]); err != nil {
				t.Fatal(err)
			}
			statuses := ask(t, b, p, requests)
			b.stop(p.processes...)
			ok := func(status int) bool { return status == http.StatusOK }
			if c.want != slices.ContainsFunc(statuses, ok) || c.want && slices.ContainsFunc(statuses, func(s int) bool { return !ok(s) }) {
				t.Errorf("%s: answers %v", name, statuses)
			}
			if n := int(asked.Load()); c.want && n != requests || !c.want && n != 0 {
				t.Errorf("%s: it got %d requests", name, n)
			}
			if n := conns.Load(); n == 0 || c.want && n != 1 {
				t.Errorf("%s: %d connections", name, n)
			}
		}
	})
}

// tlsServer serves in the place of the application's sidecar, with a certificate, and requires the caller's. It counts requests and connections.
func tlsServer(t *testing.T, b *bench, file string, asked, conns *atomic.Int32) (port int) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if id := r.TLS.PeerCertificates[0].URIs[0].String(); r.ProtoMajor != 1 || !strings.HasSuffix(id, "/sa/"+caller) || tls.CipherSuiteName(r.TLS.CipherSuite) != cipher {
			http.Error(w, r.Proto+" "+id, http.StatusTeapot)
		}
	}))
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: b.trust.roots, MinVersion: tls.VersionTLS13,
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// ask sends requests one after the other, once the proxy listens, and is the statuses of their answers.
func ask(t *testing.T, b *bench, p *proxy, n int) (statuses []int) {
	t.Helper()
	client, err := b.client(p.setting)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	listening(t, p)
	for range n {
		req, err := http.NewRequestWithContext(b.ctx, http.MethodGet, "http://"+address(p.port)+requestPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = hostname
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("%v: %s", err, p.output())
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		statuses = append(statuses, resp.StatusCode)
	}
	return statuses
}

// TestASidecarThatTakesAnybodyIsRefused holds the harness's own check to proxies that demand less, or judge nothing.
func TestASidecarThatTakesAnybodyIsRefused(t *testing.T) {
	b := newBench(t)
	b.weir = weirtest.Path(t)
	one := func(peer string, rules int) (*proxy, error) {
		s := inbound
		s.Rules = rules
		return b.startProxy(contender{label: peer, peer: peer, setting: s})
	}
	t.Run("nginx", func(t *testing.T) {
		if _, err := lookPath("nginx"); err != nil {
			t.Skip("nginx is not installed")
		}
		p, err := one("nginx", 0)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(p.dir, "nginx.conf")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b.stop(p.processes...)
		for _, lax := range []string{"ssl_verify_client optional_no_ca;", "ssl_verify_client off;"} {
			if _, err := writeFile(p.dir, "nginx.conf", strings.Replace(string(text), "ssl_verify_client on;", lax, 1)); err != nil {
				t.Fatal(err)
			}
			command := append([]string{}, p.processes[0].cmd.Args[3:]...)
			if p.processes[0], err = b.start("nginx", b.proxyCPU, nil, command...); err != nil {
				t.Fatal(err)
			}
			listening(t, p)
			if err := b.checkSidecars(p); err == nil || !strings.Contains(err.Error(), "is answered 200") {
				t.Errorf("with %s: %v\n%s", lax, err, p.output())
			}
			b.stop(p.processes...)
		}
	})
	t.Run("weir without its policy", func(t *testing.T) {
		p, err := one("weir", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.stop(p.processes...)
		p.setting.Rules = 1
		if err := b.checkSidecars(p); err == nil || !strings.Contains(err.Error(), "no rule allows is answered 200") {
			t.Error(err)
		}
	})
}

// listening waits until something listens on the proxy's port.
func listening(t *testing.T, p *proxy) {
	t.Helper()
	for !p.ended() {
		if c, err := net.Dial("tcp", address(p.port)); err == nil {
			c.Close()
			return
		}
	}
	t.Fatal(p.output())
}

// TestTwoProxiesInARowAreMeasuredTogether compares the sum with what the kernel tells of each.
func TestTwoProxiesInARowAreMeasuredTogether(t *testing.T) {
	b := newBench(t)
	b.weir = weirtest.Path(t)
	p, err := b.startProxy(contender{label: "weir", peer: "weir", setting: setting{Backend: roleFast, Sidecars: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.stop(p.processes...)
	if _, err := b.generate(p.port, 1000, b.duration, 0, plainRequest()); err != nil {
		t.Fatal(err)
	}
	b.stop(p.processes[0]) // what is left no longer grows with requests, and the stopped one is not known any more
	if _, err := p.cpu(); err == nil {
		t.Error("the time of two processes was told, of which one has ended")
	}
	alone, err := p.processes[1].cpu()
	if err != nil || alone <= 0 {
		t.Fatal(alone, err)
	}
	p.processes = []*process{p.processes[1], p.processes[1]}
	if both, err := p.cpu(); err != nil || both < 2*alone {
		t.Errorf("%v of two is less than twice %v: %v", both, alone, err)
	}
}

func TestTheTrustDomainVouchesForThePods(t *testing.T) {
	b := newBench(t)
	for file, want := range map[string]bool{b.trust.server: true, b.trust.client: true, b.trust.stranger: false} {
		pair, err := tls.LoadX509KeyPair(file, file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: b.trust.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if (err == nil) != want {
			t.Errorf("%s: %v", file, err)
		}
	}
}
