package proxy

import (
	"bytes"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
)

// meshed are two pods of one service, each with a sidecar, and a proxy with an identity that knows both.
type meshed struct {
	*testServer
	came [2]atomic.Int32     // requests at each application
	apps [2]*httptest.Server // the applications
	says func(http.ResponseWriter, *http.Request)
}

func newMeshed(t *testing.T, says func(http.ResponseWriter, *http.Request), edit func(*model.Config), opt ...func(*Options)) *meshed {
	t.Helper()
	m := &meshed{says: says}
	var apps [2]string
	for i := range m.apps {
		app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			m.came[i].Add(1)
			m.says(w, r)
		}))
		app.Config.Protocols = new(http.Protocols)
		app.Config.Protocols.SetHTTP1(true)
		app.Config.Protocols.SetUnencryptedHTTP2(true)
		app.Start()
		t.Cleanup(app.Close)
		m.apps[i], apps[i] = app, app.Listener.Addr().String()
	}
	m.testServer = newMeshedTo(t, apps, plain, edit, opt...)
	return m
}

// newMeshedTo is a proxy with an identity that knows two pods of one service, each with an application and a sidecar.
func newMeshedTo(t *testing.T, apps [2]string, route func(addresses ...string) *model.Config, edit func(*model.Config), opt ...func(*Options)) *testServer {
	t.Helper()
	ca := peertest.NewAuthority(t)
	var addresses []string
	for _, app := range apps {
		cfg := route(app)
		edit(cfg)
		_, with := mutual(t, cfg, ca)
		beside := func(o *Options) { o.Beside, o.Pseudonym = true, "sidecar" }
		addresses = append(addresses, serve(t, cfg, append(opt, with, beside)...).addr())
	}
	cfg := route(addresses...)
	cfg.Services[0].TLS = &model.ServiceTLS{Hostname: "cart.shop", CAs: workload, Pods: []model.PodIdentity{{Address: "127.0.0.1", ID: cartID}}}
	cfg.Routes[0].ClientCertificate = workload
	edit(cfg)
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	source := &identities{}
	source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
	return serve(t, cfg, append(opt, func(o *Options) { o.Identities = source.of })...)
}

func http1s(*model.Config) {}

// shared has all requests to proxies of the mesh share connections, and not only many.
func shared(o *Options) { o.Upstream.ShareFrom = -1 }

// TestARequestThatASidecarCannotDeliverGoesElsewhere: an application has ended before its sidecar, as when a pod is ended.
func TestARequestThatASidecarCannotDeliverGoesElsewhere(t *testing.T) {
	h2c := func(c *model.Config) { c.Services[0].Protocol = model.H2C }
	always := []func(*Options){shared}
	for _, c := range []struct {
		name, method, body string
		edit               func(*model.Config)
		chunked            bool
		opt                []func(*Options)
	}{
		{"GET", "GET", "", http1s, false, nil},
		{"POST", "POST", "all of it", http1s, false, nil},
		{"POST of 60 kB", "POST", strings.Repeat("x", 60<<10), http1s, false, nil},
		{"POST in chunks", "POST", strings.Repeat("x", 9000), http1s, true, nil},
		{"GET over HTTP/2", "GET", "", h2c, false, nil},
		{"POST over HTTP/2", "POST", "all of it", h2c, false, nil},
		{"GET, shared", "GET", "", http1s, false, always},
		{"POST, shared", "POST", "all of it", http1s, false, always},
		{"POST of 60 kB, shared", "POST", strings.Repeat("x", 60<<10), http1s, false, always},
		{"POST in chunks, shared", "POST", strings.Repeat("x", 9000), http1s, true, always},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMeshed(t, func(w http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				if string(got) != c.body || err != nil {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				io.WriteString(w, "done")
			}, c.edit, c.opt...)
			client := newClient(t)
			const n = 40
			lost := int32(0)
			for i := range n {
				if i == n/4 {
					m.apps[0].CloseClientConnections()
					m.apps[0].Close() // its sidecar stays
				}
				var body io.Reader = strings.NewReader(c.body)
				if c.chunked {
					body = io.MultiReader(body) // of which nobody knows the length
				}
				r, err := http.NewRequest(c.method, "http://"+m.addr()+"/", body)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if c.method == "POST" && lost == 0 && i == n/4 && strings.HasPrefix(string(got), "backend_reset: ") {
					lost++ // it met the end of a connection, and might have arrived
					continue
				}
				if resp.StatusCode != 200 || string(got) != "done" {
					t.Fatalf("request %d: %s %q", i, resp.Status, got)
				}
			}
			if a, b := m.came[0].Load(), m.came[1].Load(); a == 0 || b < n*3/4-lost || a+b != n-lost {
				t.Errorf("%d and %d requests arrived, want %d together", a, b, n-lost)
			}
		})
	}
}

// TestWhatCannotBeDeliveredAnywhere is answered as without sidecars, and nothing that the mesh says to itself comes out.
func TestWhatCannotBeDeliveredAnywhere(t *testing.T) {
	var all []*meshed
	for _, opt := range [][]func(*Options){nil, {shared}} {
		m := newMeshed(t, nil, http1s, opt...)
		m.apps[0].Close()
		m.apps[1].Close()
		all = append(all, m, m)
	}
	for i, m := range all {
		size := i % 2 << 20 // none, or more than is kept to be sent again
		resp, err := newClient(t).Post("http://"+m.addr()+"/", "text/plain", bytes.NewReader(make([]byte, size)))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 502 || !strings.HasPrefix(string(got), "connect_failed: ") || resp.Header.Get("Weir-Undelivered") != "" {
			t.Errorf("%d bytes: %s %q %v", size, resp.Status, got, resp.Header)
		}
	}
}

// TestOnlyASidecarSaysThatNothingWasDelivered: neither an application nor a server outside of the mesh can.
func TestOnlyASidecarSaysThatNothingWasDelivered(t *testing.T) {
	claims := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Weir-Undelivered", "connect_failed")
		w.WriteHeader(503)
	}
	for name, at := range map[string]func() (addr string, came func() int32){
		"an application": func() (string, func() int32) {
			m := newMeshed(t, claims, http1s)
			return m.addr(), func() int32 { return m.came[0].Load() + m.came[1].Load() }
		},
		"an application of shared connections": func() (string, func() int32) {
			m := newMeshed(t, claims, http1s, shared)
			return m.addr(), func() int32 { return m.came[0].Load() + m.came[1].Load() }
		},
		"a server": func() (string, func() int32) {
			var came atomic.Int32
			count := func(w http.ResponseWriter, r *http.Request) { came.Add(1); claims(w, r) }
			return serve(t, plain(backend(t, count), backend(t, count))).addr(), came.Load
		},
	} {
		addr, came := at()
		resp, err := newClient(t).Get("http://" + addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 503 || resp.Header.Get("Weir-Undelivered") != "" || came() != 1 {
			t.Errorf("%s: %s, %v, arrived %d times, want once", name, resp.Status, resp.Header, came())
		}
	}
}

// TestWhoIsToldThatNothingWasDelivered: clients with an identity, of whom none needs to be of Weir.
func TestWhoIsToldThatNothingWasDelivered(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	ask := func(s *testServer, client *http.Client, scheme string) string {
		resp, err := client.Get(scheme + "://" + s.addr() + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.Header.Get("Weir-Undelivered")
	}
	if got := ask(serve(t, plain(gone.Addr().String())), newClient(t), "http"); got != "" {
		t.Errorf("a client without identity: %q", got)
	}
	ca := peertest.NewAuthority(t)
	cfg := plain(gone.Addr().String())
	_, with := mutual(t, cfg, ca)
	client := newClient(t)
	client.Transport.(*http.Transport).TLSClientConfig = as(ca.Workload(t, shopID, func(*x509.Certificate) {}))
	if got := ask(serve(t, cfg, with), client, "https"); got != "connect_failed" {
		t.Errorf("a client with an identity: %q", got)
	}
}
