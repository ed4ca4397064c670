package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
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

// mesh is a set whose endpoints must prove cartID, and which presents shopID.
func mesh(t testing.TB, ca *peertest.Authority, address string, opt Options) (*Endpoint, *identities) {
	t.Helper()
	source := &identities{}
	source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
	opt.Identities = source.of
	return presenting(t, newSet(t, opt), address, cartTLS, workload), source
}

var cartTLS = model.ServiceTLS{Hostname: "cart.shop", CAs: workload, SubjectAltNames: []string{"spiffe://cluster.test/ns/shop/sa/next", cartID}}

// cart is the TLS of an endpoint that demands a certificate of its clients.
func cart(chain tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{chain}, NextProtos: []string{"h2", "http/1.1"}, ClientAuth: tls.RequireAnyClientCert}
}

func TestEndpointsProveTheirIdentity(t *testing.T) {
	ca, foreign := peertest.NewAuthority(t), peertest.NewAuthority(t)
	edited := func(edit func(*x509.Certificate)) tls.Certificate { return ca.Workload(t, cartID, edit) }
	second, _ := url.Parse("spiffe://cluster.test/ns/shop/sa/other")
	old := cart(edited(nil))
	old.MaxVersion = tls.VersionTLS12
	for name, c := range map[string]struct {
		server *tls.Config
		want   TLSReason
	}{
		"the identity":        {cart(edited(nil)), ""},
		"another identity":    {cart(ca.Workload(t, shopID, nil)), TLSWrongName},
		"a longer identity":   {cart(ca.Workload(t, cartID+"/x", nil)), TLSWrongName},
		"other trust domain":  {cart(ca.Workload(t, "spiffe://other.test/ns/shop/sa/cart", nil)), TLSWrongName},
		"a foreign authority": {cart(foreign.Workload(t, cartID, nil)), TLSUnknownAuthority},
		"expired":             {cart(edited(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })), TLSExpired},
		"an authority":        {cart(edited(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, c.KeyUsage|x509.KeyUsageCertSign })), TLSBadCertificate},
		"two URIs":            {cart(edited(func(c *x509.Certificate) { c.URIs = append(c.URIs, second) })), TLSBadCertificate},
		"a name alone":        {cart(edited(func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"cart.shop"} })), TLSBadCertificate},
		"a client":            {cart(edited(func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] })), TLSBadCertificate},
		"TLS 1.2":             {old, TLSRefused},
	} {
		t.Run(name, func(t *testing.T) {
			srv := tlsEcho(t, c.server)
			e, _ := mesh(t, ca, srv.address(), Options{})
			for range 2 { // a session is not resumed
				conn, err := e.Dial(time.Time{})
				if c.want == "" {
					if err != nil {
						t.Fatal(err)
					}
					exchange(t, conn, "over TLS")
					if cs := conn.net.(*tls.Conn).ConnectionState(); cs.DidResume || cs.Version != tls.VersionTLS13 {
						t.Errorf("resumed %t, %s", cs.DidResume, tls.VersionName(cs.Version))
					}
					conn.Close()
					continue
				}
				var te *TLSError
				if !errors.As(err, &te) || te.Reason != c.want {
					t.Fatalf("got %v, want reason %s", err, c.want)
				}
			}
		})
	}
}

// seen notes the identities of clients, by the connection.
type seen struct {
	mu  sync.Mutex
	all []*x509.Certificate
}

func (s *seen) watch(c *tls.Config) *tls.Config {
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, cs.PeerCertificates[0])
		return nil
	}
	return c
}

func (s *seen) last(t testing.TB) *x509.Certificate {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		t.Fatal("no client came")
	}
	return s.all[len(s.all)-1]
}

func TestARenewedIdentityCutsNoConnection(t *testing.T) {
	ca := peertest.NewAuthority(t)
	var clients seen
	srv := tlsEcho(t, clients.watch(cart(ca.Workload(t, cartID, nil))))
	e, source := mesh(t, ca, srv.address(), Options{})
	first, _, err := e.Get(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, first, "with the first certificate")
	shown := source.now.Load().Certificate.Leaf
	if !clients.last(t).Equal(shown) {
		t.Error("another certificate was presented")
	}
	e.Put(first)

	source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
	kept, reused, err := e.Get(time.Time{})
	if err != nil || !reused || kept != first {
		t.Fatalf("reused %t, %v: the first connection is lost", reused, err)
	}
	exchange(t, kept, "still with the first")
	next, err := e.Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, next, "with the second certificate")
	if got := clients.last(t); got.Equal(shown) || !got.Equal(source.now.Load().Certificate.Leaf) {
		t.Error("a new connection does not present the renewed certificate")
	}
	// The same configuration keeps the endpoint: its key is the identity's name.
	cfg := config(srv.address())
	cfg.Services[0].TLS = &cartTLS
	snap, err := e.set.ApplyFor(cfg, model.Presented{"ns/svc:80": {workload}})
	if err != nil || snap.Service("ns/svc:80", workload).Endpoints()[0] != e {
		t.Errorf("the endpoint was replaced, %v", err)
	}
	next.Close()
	kept.Close()
}

func TestAnIdentityCountsAsSoonAsItIsThere(t *testing.T) {
	ca := peertest.NewAuthority(t)
	srv := tlsEcho(t, cart(ca.Workload(t, cartID, nil)))
	e, source := mesh(t, ca, srv.address(), Options{EjectAfter: 1})
	source.now.Store(nil)
	var te *TLSError
	if _, err := e.Dial(time.Time{}); !errors.As(err, &te) || te.Reason != TLSConfig {
		t.Fatalf("without an identity: %v, want reason %s", err, TLSConfig)
	}
	if st := e.Stats(); st.Failures != 0 || !st.Healthy {
		t.Errorf("the endpoint is blamed for it: %+v", st)
	}
	// Roots that do not vouch for the endpoint, then those that do.
	source.have(t, ca.Workload(t, shopID, nil), peertest.NewAuthority(t).Pool())
	if _, err := e.Dial(time.Time{}); !errors.As(err, &te) || te.Reason != TLSUnknownAuthority {
		t.Fatalf("with other roots: %v", err)
	}
	source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
	c, err := e.Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, c, "with an identity")
	c.Close()
}

func TestServicesWithoutSoundIdentitiesAreNotReached(t *testing.T) {
	for name, st := range map[string]model.ServiceTLS{
		"no name":        {Hostname: "cart.shop", CAs: workload},
		"a host name":    {Hostname: "cart.shop", CAs: workload, SubjectAltNames: []string{"cart.shop"}},
		"no SPIFFE ID":   {Hostname: "cart.shop", CAs: workload, SubjectAltNames: []string{cartID, "spiffe://td/../x"}},
		"another source": {Hostname: "cart.shop", CAs: "identity:other", SubjectAltNames: []string{cartID}},
	} {
		source := &identities{}
		ca := peertest.NewAuthority(t)
		source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
		e := presenting(t, newSet(t, Options{Identities: source.of}), "127.0.0.1:1", st, "")
		var te *TLSError
		if _, err := e.Dial(time.Time{}); !errors.As(err, &te) || te.Reason != TLSConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := presenting(t, newSet(t, Options{}), "127.0.0.1:1", cartTLS, workload)
	var te *TLSError
	if _, err := e.Dial(time.Time{}); !errors.As(err, &te) || te.Reason != TLSConfig {
		t.Errorf("without a source: %v", err)
	}
}

// piped is a network of pipes whose other ends speak TLS and HTTP/1.1 by hand: they read what comes.
func piped(t *testing.T, config *tls.Config, serve func(*tls.Conn)) func(context.Context, string, string) (net.Conn, error) {
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		all.Go(func() {
			defer far.Close()
			c := tls.Server(far, config)
			if c.Handshake() == nil {
				serve(c)
			}
		})
		return near, nil
	}
}

// Until its certificates end, a connection is used; then no exchange begins on it. Either side's certificate counts.
func TestConnectionsEndWithTheirCertificates(t *testing.T) {
	for name, life := range map[string][2]time.Duration{
		"the own one first":        {10 * time.Minute, time.Hour},
		"the endpoint's one first": {time.Hour, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := peertest.NewAuthority(t)
				lasting := func(id string, d time.Duration) tls.Certificate {
					return ca.Workload(t, id, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(d) })
				}
				server := lasting(cartID, life[1])
				config := cart(tls.Certificate{})
				config.Certificates = nil
				config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &server, nil }
				e, source := mesh(t, ca, "10.0.0.1:443", Options{
					IdleTimeout: time.Hour, dial: piped(t, config, func(c *tls.Conn) { c.Read(make([]byte, 1)) }),
				})
				source.have(t, lasting(shopID, life[0]), ca.Pool())
				get := func() (*Conn, bool) {
					t.Helper()
					c, reused, err := e.Get(time.Time{})
					if err != nil {
						t.Fatal(err)
					}
					return c, reused
				}
				idle, _ := get()
				used, _ := get()
				e.Put(idle)
				source.have(t, lasting(shopID, 2*time.Hour), ca.Pool())
				server = lasting(cartID, 2*time.Hour)
				time.Sleep(9 * time.Minute)
				if c, reused := get(); !reused || c != idle {
					t.Fatal("a connection whose certificates are good was not used")
				}
				e.Put(idle)
				time.Sleep(2 * time.Minute) // a sweep closes it
				synctest.Wait()
				if st := e.Stats(); st.Idle != 0 || st.Open != 1 {
					t.Errorf("%d idle, %d open, want the used one", st.Idle, st.Open)
				}
				e.Put(used)
				if st := e.Stats(); st.Idle != 0 || st.Open != 0 {
					t.Errorf("%d idle, %d open after the used one's end", st.Idle, st.Open)
				}
				c, reused := get()
				if reused {
					t.Error("a connection was reused whose certificate had ended")
				}
				c.Close()
				e.set.Close()
			})
		})
	}
}

// The streams of an HTTP/2 connection end by themselves when a certificate of it has ended, and no others begin.
func TestHTTP2ConnectionsEndWithTheirCertificates(t *testing.T) {
	ca := peertest.NewAuthority(t)
	server := cart(ca.Workload(t, cartID, nil))
	release := make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{TLSConfig: server, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("From", r.RemoteAddr)
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		if r.URL.Path == "/long" {
			<-release
		}
		io.WriteString(w, "whole")
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.ServeTLS(l, "", "")
	}()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
	e, source := mesh(t, ca, l.Addr().String(), Options{})
	source.have(t, ca.Workload(t, shopID, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(10 * time.Minute) }), ca.Pool())
	long, _, err := e.Open(head("GET", "/long"), nil, true, &Waiting{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := long.AwaitHead(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	first := (&answer{fields: h.Fields}).get("from")
	source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
	e.retire(time.Now().Add(9 * time.Minute))
	if a := mustAsk(t, e, "GET", "/"); a.get("from") != first {
		t.Error("a connection whose certificates are good takes no stream")
	}
	e.retire(time.Now().Add(11 * time.Minute))
	if a := mustAsk(t, e, "GET", "/"); a.get("from") == first {
		t.Error("a stream began on a connection whose certificate had ended")
	}
	close(release)
	var body []byte
	for {
		p, err := long.Next(time.Time{})
		body = append(body, p...)
		if err != nil {
			if err != io.EOF || string(body) != "whole" {
				t.Errorf("the stream under way was cut: %q, %v", body, err)
			}
			break
		}
	}
	long.Close()
	eventually(t, "the first connection ends", func() bool { return e.Stats().HTTP2 == 1 })
}

// TestEachPodProvesToBeItself has one service with pods of both kinds: those that have an identity, of which each must be
// the one that was meant, and one that has none.
func TestEachPodProvesToBeItself(t *testing.T) {
	ca := peertest.NewAuthority(t)
	as := func(pod string) *tls.Config {
		config := cart(ca.Workload(t, cartID, func(c *x509.Certificate) {
			x, err := claim.Claims{Pod: pod}.Extension()
			if err != nil {
				t.Fatal(err)
			}
			c.ExtraExtensions = append(c.ExtraExtensions, x)
		}))
		config.NextProtos = nil // of relayed connections nothing is known
		return config
	}
	itself, another, plain := tlsEcho(t, as("cart-1")), tlsEcho(t, as("cart-2")), echoServer(t)
	at := func(address, host string) string { // each pod has an address of its own
		_, port, _ := net.SplitHostPort(address)
		return net.JoinHostPort(host, port)
	}
	source := &identities{}
	source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
	s := newSet(t, Options{Identities: source.of, dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at(address, "127.0.0.1"))
	}})
	for _, meant := range []bool{false, true} {
		cfg := config(at(itself.address(), "10.0.0.1"), at(another.address(), "10.0.0.2"), at(plain.address(), "10.0.0.3"), at(itself.address(), "::ffff:10.0.0.4"))
		cfg.Services[0].TLS = &model.ServiceTLS{Hostname: "cart.shop", CAs: workload, Pods: []model.PodIdentity{
			{Address: "10.0.0.1", ID: cartID, Pod: "cart-1"}, {Address: "10.0.0.2", ID: cartID, Pod: "cart-1"}, {Address: "10.0.0.4", ID: shopID},
		}}
		addresses := cfg.Services[0].Endpoints
		if meant {
			cfg.Services[0].Endpoints, cfg.Services[0].Meant = nil, true
		}
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		snap, err := s.ApplyFor(cfg, model.Presented{"ns/svc:80": {workload}})
		if err != nil {
			t.Fatal(err)
		}
		service := snap.Service("ns/svc:80", workload)
		for i, want := range []TLSReason{"", TLSWrongName, "cleartext", TLSWrongName} {
			var e *Endpoint
			if meant {
				e = service.At(addresses[i].Address)
			} else {
				e = service.Endpoints()[i]
			}
			conn, err := e.DialRelay(clientaddr.Pair{})
			var te *TLSError
			switch {
			case err == nil:
				exchange(t, conn, "hello")
				if _, secure := conn.net.(*tls.Conn); secure != (want == "") || want != "" && want != "cleartext" {
					t.Errorf("meant %t, %s: TLS %t, want %q", meant, e.Address, secure, want)
				}
				conn.Close()
			case !errors.As(err, &te) || te.Reason != want:
				t.Errorf("meant %t, %s: %v, want %q", meant, e.Address, err, want)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.endpoints) != 0 {
		t.Errorf("%d endpoints are kept of what clients meant", len(s.endpoints))
	}
}

// TestAServiceKnownByIdentityIsShownThatIdentity has a route present nothing, or the certificate that is for other services.
func TestAServiceKnownByIdentityIsShownThatIdentity(t *testing.T) {
	ca := peertest.NewAuthority(t)
	for _, presented := range []string{"", "ns/client"} {
		var seen atomic.Pointer[string]
		config := cart(ca.Workload(t, cartID, nil))
		config.VerifyConnection = func(s tls.ConnectionState) error {
			if len(s.PeerCertificates[0].URIs) > 0 {
				seen.Store(new(s.PeerCertificates[0].URIs[0].String()))
			}
			return nil
		}
		srv := tlsEcho(t, config)
		source := &identities{}
		e := presenting(t, newSet(t, Options{Identities: source.of}), srv.address(), cartTLS, presented)
		if _, err := e.Dial(time.Time{}); !errors.Is(err, ErrNoIdentity) {
			t.Errorf("%q without an identity: %v", presented, err)
		}
		source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
		c, err := e.Dial(time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, c, "with an identity")
		c.Close()
		if got := seen.Load(); got == nil || *got != shopID {
			t.Errorf("%q: the endpoint is shown %v", presented, got)
		}
	}
}
