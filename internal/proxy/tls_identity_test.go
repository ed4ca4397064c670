package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/size"
)

const (
	workload = "identity:workload"
	shopID   = "spiffe://cluster.test/ns/shop/sa/shop"
	cartID   = "spiffe://cluster.test/ns/shop/sa/cart"
)

// identities is a source that has one identity, which can be replaced.
type identities struct {
	now atomic.Pointer[spiffe.Identity]
}

func (s *identities) of(name string) *spiffe.Identity {
	if name != workload {
		return nil
	}
	return s.now.Load()
}

// have replaces the identity.
func (s *identities) have(t testing.TB, chain tls.Certificate, roots *x509.CertPool) {
	t.Helper()
	id, err := spiffe.New(chain, roots)
	if err != nil {
		t.Fatal(err)
	}
	s.now.Store(id)
}

// mutual gives the listener TLS and an identity, cartID.
func mutual(t testing.TB, cfg *model.Config, ca *peertest.Authority) (*identities, func(*Options)) {
	if cfg.Listeners[0].Protocol.Requests() {
		cfg.Listeners[0].Protocol = model.HTTPS
	} else {
		cfg.Listeners[0].Protocol = model.TLS
	}
	cfg.Listeners[0].TLS = &model.ListenerTLS{Certificates: []string{workload}}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	source := &identities{}
	source.have(t, ca.Workload(t, cartID, nil), ca.Pool())
	return source, func(o *Options) { o.Identities = source.of }
}

// as is the TLS of a client that presents a chain, and checks nothing.
func as(chains ...tls.Certificate) *tls.Config {
	return &tls.Config{ServerName: "cart.shop", InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if len(chains) == 0 {
			return &tls.Certificate{}, nil
		}
		return &chains[0], nil
	}}
}

// getOver sends a request over a new connection. The refusal of a client's certificate comes with the answer.
func getOver(t testing.TB, addr string, config *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	c := tls.Client(dial(t, addr), config)
	defer c.Close()
	if err := c.Handshake(); err != nil {
		return tls.ConnectionState{}, err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: cart.shop\r\nConnection: close\r\n\r\n"); err != nil {
		return tls.ConnectionState{}, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	return c.ConnectionState(), nil
}

func TestClientsProveTheirIdentity(t *testing.T) {
	arrived := make(chan struct{}, 1)
	looked := make(chan struct{})
	cfg := plain(backend(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-looked
	}))
	ca, foreign := peertest.NewAuthority(t), peertest.NewAuthority(t)
	_, with := mutual(t, cfg, ca)
	s := serve(t, cfg, with)
	second, _ := url.Parse("spiffe://cluster.test/ns/shop/sa/other")
	edited := func(edit func(*x509.Certificate)) *tls.Config { return as(ca.Workload(t, shopID, edit)) }
	old := edited(nil)
	old.MaxVersion = tls.VersionTLS12
	for name, config := range map[string]*tls.Config{
		"other trust domain":  as(ca.Workload(t, "spiffe://other.test/ns/shop/sa/shop", nil)),
		"a foreign authority": as(foreign.Workload(t, shopID, nil)),
		"expired":             edited(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
		"an authority":        edited(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, c.KeyUsage|x509.KeyUsageCertSign }),
		"two URIs":            edited(func(c *x509.Certificate) { c.URIs = append(c.URIs, second) }),
		"a name alone":        edited(func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"shop"} }),
		"a server":            edited(func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }),
		"no certificate":      as(),
		"TLS 1.2":             old,
	} {
		var op *net.OpError
		if _, err := getOver(t, s.addr(), config); !errors.As(err, &op) || op.Op != "remote error" {
			t.Errorf("%s: %v, want an alert", name, err)
		}
	}
	select {
	case <-arrived:
		t.Fatal("a request without an identity arrived")
	default:
	}
	chain := ca.Workload(t, shopID, nil)
	done := make(chan error, 1)
	go func() {
		cs, err := getOver(t, s.addr(), as(chain))
		if err == nil && (len(cs.PeerCertificates[0].URIs) != 1 || cs.PeerCertificates[0].URIs[0].String() != cartID) {
			err = errors.New("the listener presents another identity")
		}
		done <- err
	}()
	<-arrived
	seen := 0
	s.binds[0].each(func(c *conn) {
		if !c.is(stateServing) {
			return
		}
		seen++
		if p := c.peer.TLS; p.ID.String() != shopID || !p.Verified.Equal(chain.Leaf) || p.Auth.Identity != workload {
			t.Errorf("the peer is %s by %v", p.ID, p.Verified)
		}
	})
	close(looked)
	if err := <-done; err != nil || seen != 1 {
		t.Errorf("%d connections are served, %v", seen, err)
	}
	var reported []telemetry.Certificate
	s.expiries(func(c telemetry.Certificate) { reported = append(reported, c) })
	if len(reported) != 1 || reported[0].Name != workload || reported[0].Expiry.Before(time.Now()) {
		t.Errorf("reported %+v", reported)
	}
}

// A listener's certificate vouches for a name among its clients' names only if its listener has an identity.
func TestAListenerWithoutAnIdentityKnowsNoIDs(t *testing.T) {
	ca := peertest.NewAuthority(t)
	arrived, looked := make(chan struct{}), make(chan struct{})
	cfg := plain(backend(t, func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-looked
	}))
	secure(t, cfg, "shop.example")
	cfg.Listeners[0].TLS.ClientCAs = ca.PEM
	s := serve(t, cfg)
	done := make(chan error, 1)
	go func() {
		_, err := getOver(t, s.addr(), as(ca.Workload(t, shopID, nil)))
		done <- err
	}()
	<-arrived
	s.binds[0].each(func(c *conn) {
		if p := c.peer.TLS; c.is(stateServing) && (!p.ID.IsZero() || p.Verified == nil) {
			t.Errorf("the peer is %q, verified %t", p.ID, p.Verified != nil)
		}
	})
	close(looked)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A session brings in nobody: its client proves itself anew, by the roots of this moment.
func TestASessionDoesNotOutliveTheRootsOfItsClient(t *testing.T) {
	cfg := plain(backend(t, func(http.ResponseWriter, *http.Request) {}))
	ca, next := peertest.NewAuthority(t), peertest.NewAuthority(t)
	source, with := mutual(t, cfg, ca)
	s := serve(t, cfg, with)
	cache := &anySession{}
	client := as(ca.Workload(t, shopID, nil))
	client.ClientSessionCache = cache
	for range 2 {
		if cs, err := getOver(t, s.addr(), client); err != nil || cs.DidResume {
			t.Fatalf("resumed %t, %v", cs.DidResume, err)
		}
	}
	if cache.session != nil {
		t.Error("a ticket was issued")
	}
	// A session of another listener on the port, whose keys are the same, is of no use either.
	other := demands(t, "127.0.0.1:1", ca.PEM)
	other.Listeners[0].Hostname = "shop.example"
	other.Routes[0].Attachments[0].Hostnames = []string{"shop.example"}
	mesh := cfg.Listeners[0]
	mesh.Name, mesh.Hostname = "default/gw/mesh", "cart.shop"
	other.Listeners = append(other.Listeners, mesh)
	other.Routes[0].Attachments = append(other.Routes[0].Attachments, model.Attachment{Listener: mesh.Name, Hostnames: []string{"cart.shop"}})
	other.Services = cfg.Services
	if err := other.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(other); err != nil {
		t.Fatal(err)
	}
	if _, err := resume(t, s.addr(), "mtls.example", tls.VersionTLS13, cache, ca.Workload(t, shopID, nil)); err != nil || cache.session == nil {
		t.Fatal("no session of the other listener", err)
	}
	cache.frozen = true
	if cs, err := getOver(t, s.addr(), client); err != nil || cs.DidResume {
		t.Errorf("a session of another listener: resumed %t, %v", cs.DidResume, err)
	}
	// The roots change: whoever was let in before is not.
	source.have(t, next.Workload(t, cartID, nil), next.Pool())
	if _, err := getOver(t, s.addr(), client); err == nil {
		t.Error("a client was let in that the roots do not vouch for")
	}
	if _, err := getOver(t, s.addr(), as(next.Workload(t, shopID, nil))); err != nil {
		t.Error(err)
	}
	source.now.Store(nil)
	if _, err := getOver(t, s.addr(), as(next.Workload(t, shopID, nil))); err == nil {
		t.Error("a client was let in without an identity of the listener")
	}
}

func TestAProcessWithoutIdentitiesServesNoneOfTheirListeners(t *testing.T) {
	cfg := plain(backend(t, func(http.ResponseWriter, *http.Request) {}))
	ca := peertest.NewAuthority(t)
	mutual(t, cfg, ca)
	s := serve(t, cfg)
	if _, err := getOver(t, s.addr(), as(ca.Workload(t, shopID, nil))); err == nil {
		t.Error("a request was served")
	}
	if left := s.LeftOut(); len(left) != 1 || !strings.Contains(left[0].Reason, workload) || !strings.Contains(left[0].Reason, "no identity") {
		t.Errorf("left out %v", left)
	}
}

// meshBackend is a backend of an identity, which demands one of its clients.
func meshBackend(t *testing.T, source func() *spiffe.Identity) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		own := source()
		return &tls.Config{
			Certificates: []tls.Certificate{*own.Certificate}, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{"http/1.1"},
			VerifyConnection: func(cs tls.ConnectionState) error {
				_, err := own.Verify(cs.PeerCertificates, x509.ExtKeyUsageClientAuth)
				return err
			},
		}, nil
	}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// Certificates are renewed all the time, and roots are replaced, while requests come over old and new connections: the
// client's to the proxy, and the proxy's to the endpoint. No request fails.
func TestIdentitiesAreRenewedUnderLoad(t *testing.T) {
	ca := peertest.NewAuthority(t)
	source := &identities{}
	source.have(t, ca.Workload(t, cartID, nil), ca.Pool())
	cfg := plain(meshBackend(t, source.now.Load))
	cfg.Services[0].TLS = &model.ServiceTLS{Hostname: "cart.shop", CAs: workload, SubjectAltNames: []string{cartID}}
	cfg.Routes[0].ClientCertificate = workload
	mutual(t, cfg, ca)
	s := serve(t, cfg, func(o *Options) { o.Identities, o.Upstream.MaxIdlePerEndpoint = source.of, 2 })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	// The one thing that may not happen while a handshake is under way is that roots go whose certificates are in it.
	var handshakes sync.RWMutex
	var workers sync.WaitGroup
	var served, fresh atomic.Int64
	for n := range 4 {
		workers.Go(func() {
			config := &tls.Config{
				InsecureSkipVerify: true,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					return source.now.Load().Certificate, nil
				},
				VerifyConnection: func(cs tls.ConnectionState) error {
					_, err := source.now.Load().Verify(cs.PeerCertificates, x509.ExtKeyUsageServerAuth)
					return err
				},
			}
			tr := &http.Transport{TLSClientConfig: config, DisableKeepAlives: n%2 == 0, ForceAttemptHTTP2: n == 3}
			defer tr.CloseIdleConnections()
			client := &http.Client{Transport: tr, Timeout: patience}
			for ctx.Err() == nil {
				handshakes.RLock()
				resp, err := client.Post("https://"+s.addr()+"/", "text/plain", strings.NewReader("text"))
				if err == nil {
					var body []byte
					body, err = io.ReadAll(resp.Body)
					resp.Body.Close()
					if err == nil && (resp.StatusCode != 200 || string(body) != "text") {
						err = errors.New(resp.Status)
					}
				}
				handshakes.RUnlock()
				if err != nil {
					t.Errorf("after %d requests: %v", served.Load(), err)
					stop()
					return
				}
				if served.Add(1); n%2 == 0 {
					fresh.Add(1)
				}
			}
		})
	}
	rotations := size.Of(3, 20)
	for range rotations {
		next := peertest.NewAuthority(t)
		both := ca.Pool()
		both.AppendCertsFromPEM([]byte(next.PEM))
		for range 5 {
			before := fresh.Load()
			source.have(t, ca.Workload(t, cartID, nil), ca.Pool())
			for fresh.Load() == before && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
		}
		// All trust the new root, then it signs, then the old one goes.
		handshakes.Lock()
		source.have(t, ca.Workload(t, cartID, nil), both)
		handshakes.Unlock()
		source.have(t, next.Workload(t, cartID, nil), both)
		handshakes.Lock()
		source.have(t, next.Workload(t, cartID, nil), next.Pool())
		handshakes.Unlock()
		ca = next
	}
	stop()
	workers.Wait()
	if served.Load() < int64(5*rotations) {
		t.Errorf("only %d requests", served.Load())
	}
}
