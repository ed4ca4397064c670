package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

func newTLSTalk(t testing.TB, addr string, pool *x509.CertPool, name string) *talk {
	t.Helper()
	c := tls.Client(dial(t, addr), &tls.Config{RootCAs: pool, ServerName: name})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return &talk{Conn: c, t: t, r: bufio.NewReader(c)}
}

// presented is the first name in the certificate that the proxy presents for a server name.
func presented(t testing.TB, addr, name string) string {
	t.Helper()
	c := tls.Client(dial(t, addr), &tls.Config{ServerName: name, InsecureSkipVerify: true})
	defer c.Close()
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c.ConnectionState().PeerCertificates[0].DNSNames[0]
}

func TestHTTPSIsServed(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("X-Forwarded-Proto")) })
	cfg := plain(addr)
	pool := secure(t, cfg, "shop.example")
	s := serve(t, cfg)
	k := newTLSTalk(t, s.addr(), pool, "shop.example")
	for range 3 {
		k.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
		if resp, body := k.answer("GET"); resp.StatusCode != 200 || body != "https" {
			t.Errorf("status %d, body %q", resp.StatusCode, body)
		}
	}
	big := string(body(100000))
	k.send("POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 100000\r\n\r\n" + big)
	if resp, _ := k.answer("POST"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// twoNames has two HTTPS listeners on one port, and a third certificate on the first.
func twoNames(t testing.TB, addr string) (*model.Config, *x509.CertPool) {
	cfg := plain(addr)
	a := peertest.NewAuthority(t)
	for i, names := range [][]string{{"one.example"}, {"*.wild.example"}, {"two.example"}} {
		chain, key := a.Issue(t, names...)
		cfg.Certificates = append(cfg.Certificates, model.Certificate{Name: fmt.Sprintf("default/c%d", i), Chain: chain, Key: model.Secret(key)})
	}
	cfg.Listeners[0].Protocol = model.HTTPS
	cfg.Listeners[0].TLS = &model.ListenerTLS{Certificates: []string{"default/c0", "default/c1"}}
	second := cfg.Listeners[0]
	second.Name, second.Hostname = "default/gw/two", "two.example"
	second.TLS = &model.ListenerTLS{Certificates: []string{"default/c2"}}
	cfg.Listeners = append(cfg.Listeners, second)
	cfg.Routes[0].Attachments = append(cfg.Routes[0].Attachments, model.Attachment{Listener: second.Name, Hostnames: []string{"two.example"}})
	return cfg, a.Pool()
}

func TestCertificateIsChosenByName(t *testing.T) {
	cfg, _ := twoNames(t, "127.0.0.1:1")
	s := serve(t, cfg)
	for name, want := range map[string]string{
		"one.example": "one.example", "a.wild.example": "*.wild.example", "two.example": "two.example", "TWO.example": "two.example",
		"a.b.wild.example": "one.example", "other.example": "one.example", "": "one.example",
	} {
		if got := presented(t, s.addr(), name); got != want {
			t.Errorf("for %q the certificate of %s, want %s", name, got, want)
		}
	}
}

func TestRequestForAnotherListenerIsMisdirected(t *testing.T) {
	addr, _ := wire(t, okResponse)
	cfg, pool := twoNames(t, addr)
	s := serve(t, cfg)
	for _, test := range []struct {
		sni, host string
		status    int
	}{
		{"one.example", "one.example", 200},
		{"one.example", "third.example", 200},
		{"one.example", "two.example", 421},
		{"two.example", "two.example:443", 200},
		{"two.example", "one.example", 421},
		{"TWO.example", "two.EXAMPLE.", 200},
		{"one.example", "two.example.", 421},
	} {
		k := newTLSTalk(t, s.addr(), pool, test.sni)
		k.send("GET / HTTP/1.1\r\nHost: " + test.host + "\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != test.status {
			t.Errorf("name %s, host %s: status %d, want %d", test.sni, test.host, resp.StatusCode, test.status)
		}
	}
	// A host that no listener serves is not found.
	cfg.Listeners[0].Hostname = "one.example"
	cfg.Routes[0].Attachments[0].Hostnames = []string{"one.example"}
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	k := newTLSTalk(t, s.addr(), pool, "two.example")
	k.send("GET / HTTP/1.1\r\nHost: third.example\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 404 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if s.failures(telemetry.Misdirected) != 3 || s.failures(telemetry.NoListener) != 1 {
		t.Error("not counted")
	}
}

// TestAConnectionWithoutANameReachesItsListenerAlone: the client saw the certificate of one listener, and the demands of
// that listener on clients were met; even if the configuration changes.
func TestAConnectionWithoutANameReachesItsListenerAlone(t *testing.T) {
	addr, _ := wire(t, okResponse)
	cfg, _ := twoNames(t, addr)
	s := serve(t, cfg)
	unnamed := func() *talk {
		c := tls.Client(dial(t, s.addr()), &tls.Config{InsecureSkipVerify: true})
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		return &talk{Conn: c, t: t, r: bufio.NewReader(c)}
	}
	want := func(k *talk, host string, status int) {
		t.Helper()
		k.send("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != status {
			t.Errorf("host %s: status %d, want %d", host, resp.StatusCode, status)
		}
	}
	k := unnamed() // the listener of any host takes it
	want(k, "one.example", 200)
	want(k, "two.example", 421)
	want(k, "one.example", 200)

	// No listener is of any host: the first takes it.
	named := *cfg
	named.Listeners = slices.Clone(cfg.Listeners)
	named.Listeners[0].Hostname = "one.example"
	named.Routes = slices.Clone(cfg.Routes)
	named.Routes[0].Attachments = slices.Clone(cfg.Routes[0].Attachments)
	named.Routes[0].Attachments[0].Hostnames = []string{"one.example"}
	if err := s.Apply(&named); err != nil {
		t.Fatal(err)
	}
	want(k, "two.example", 421)
	k = unnamed()
	want(k, "one.example", 200)
	want(k, "two.example", 421)
	other := named
	other.Listeners = slices.Clone(named.Listeners)
	slices.Reverse(other.Listeners) // another is the first now
	if err := s.Apply(&other); err != nil {
		t.Fatal(err)
	}
	want(k, "two.example", 421)
	want(k, "one.example", 200)
	want(unnamed(), "two.example", 200)
}

// TestMisdirectionIsJudgedByTheMostSpecificListener: the listeners share a certificate, which clients need to reuse
// connections. Their hostnames overlap.
func TestMisdirectionIsJudgedByTheMostSpecificListener(t *testing.T) {
	addr, _ := wire(t, okResponse)
	cfg := plain(addr)
	pool := secure(t, cfg, "any.example", "one.example", "a.wild.example", "b.wild.example", "other.example")
	any := cfg.Listeners[0]
	cfg.Routes[0].Attachments[0].Hostnames = []string{"any.example"}
	for _, hostname := range []string{"one.example", "*.wild.example", "b.wild.example"} {
		l := any
		l.Name, l.Hostname = "default/gw/"+hostname, hostname
		cfg.Listeners = append(cfg.Listeners, l)
		cfg.Routes[0].Attachments = append(cfg.Routes[0].Attachments, model.Attachment{Listener: l.Name, Hostnames: []string{hostname}})
	}
	s := serve(t, cfg)
	for _, test := range []struct {
		sni, host string
		status    int
	}{
		{"any.example", "any.example", 200},
		{"any.example", "one.example", 421},
		{"any.example", "other.example", 404},
		{"one.example", "one.example", 200},
		{"one.example", "any.example", 421},
		{"one.example", "other.example", 421},
		{"a.wild.example", "a.wild.example", 200},
		{"a.wild.example", "c.wild.example", 200},
		{"a.wild.example", "b.wild.example", 421},
		{"a.wild.example", "other.example", 421},
		{"b.wild.example", "b.wild.example", 200},
		{"b.wild.example", "a.wild.example", 421},
		{"other.example", "any.example", 200},
		{"other.example", "other.example", 404},
	} {
		k := newTLSTalk(t, s.addr(), pool, test.sni)
		k.send("GET / HTTP/1.1\r\nHost: " + test.host + "\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != test.status {
			t.Errorf("name %s, host %s: status %d, want %d", test.sni, test.host, resp.StatusCode, test.status)
		}
	}
}

func TestCertificatesAreSwappedWithoutClosingConnections(t *testing.T) {
	addr, _ := wire(t, okResponse)
	cfg := plain(addr)
	pool := secure(t, cfg, "shop.example")
	s := serve(t, cfg)
	k := newTLSTalk(t, s.addr(), pool, "shop.example")
	k.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	k.answer("GET")
	next := plain(addr)
	secure(t, next, "fresh.example")
	if err := s.Apply(next); err != nil {
		t.Fatal(err)
	}
	if got := presented(t, s.addr(), "shop.example"); got != "fresh.example" {
		t.Errorf("certificate of %s", got)
	}
	k.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestUnusableCertificateLeavesTheOldOneAndTheRestIsServed(t *testing.T) {
	addr, _ := wire(t, okResponse)
	cfg := plain(addr)
	pool := secure(t, cfg, "shop.example")
	s := serve(t, cfg)
	bad := plain(addr)
	secure(t, bad, "shop.example")
	bad.Certificates[0].Key = "nonsense"
	bad.Routes[0].Rules[0].Matches[0].Path.Value = "/new"
	if err := s.Apply(bad); err != nil {
		t.Error(err)
	}
	if left := s.LeftOut(); len(left) != 1 || left[0].Ref.Name != bad.Certificates[0].Name || !strings.Contains(left[0].Reason, "the one before it") {
		t.Errorf("left out %v, want the certificate", left)
	}
	k := newTLSTalk(t, s.addr(), pool, "shop.example")
	k.send("GET /new HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// TestListenerThatCannotBeServedIsClosedAndTheOthersAreServed: a listener may have an unusable certificate or invalid
// demands on clients. Then it takes no connection, not even one opened for another name. Less specific listeners do not
// take over its names. The other listeners on its port are served.
func TestListenerThatCannotBeServedIsClosedAndTheOthersAreServed(t *testing.T) {
	for name, breakIt := range map[string]func(*model.Config, *model.Listener){
		"certificate": func(c *model.Config, l *model.Listener) {
			c.Certificates = append(c.Certificates, model.Certificate{Name: "broken", Chain: "x", Key: "y"})
			l.TLS.Certificates = []string{"broken"}
		},
		"no certificate":     func(_ *model.Config, l *model.Listener) { l.TLS.Certificates = nil },
		"no TLS":             func(_ *model.Config, l *model.Listener) { l.TLS = nil },
		"client authorities": func(_ *model.Config, l *model.Listener) { l.TLS.ClientCAs = "none" },
	} {
		t.Run(name, func(t *testing.T) {
			addr, _ := wire(t, okResponse)
			cfg := plain(addr)
			pool := secure(t, cfg, "shop.example")
			closed := cfg.Listeners[0]
			own := *closed.TLS
			closed.TLS, closed.Name, closed.Hostname = &own, "closed", "closed.example"
			breakIt(cfg, &closed)
			cfg.Listeners = append(cfg.Listeners, closed)
			cfg.Routes[0].Attachments = append(cfg.Routes[0].Attachments, model.Attachment{Listener: "closed", Hostnames: []string{"closed.example"}})
			s := serve(t, cfg)
			if left := s.LeftOut(); len(left) == 0 || !strings.Contains(left[len(left)-1].Reason, "listener closed: ") {
				t.Errorf("left out %v", left)
			}
			k := newTLSTalk(t, s.addr(), pool, "shop.example")
			k.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
			if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
				t.Errorf("status %d", resp.StatusCode)
			}
			k.send("GET / HTTP/1.1\r\nHost: closed.example\r\n\r\n")
			if resp, _ := k.answer("GET"); resp.StatusCode != 421 {
				t.Errorf("status %d of a request that came over another listener's connection", resp.StatusCode)
			}
			if c, err := tls.Dial("tcp", s.addr(), &tls.Config{ServerName: "closed.example", InsecureSkipVerify: true}); err == nil {
				c.Close()
				t.Error("the closed listener takes a connection")
			}
		})
	}
}

func TestClientCertificates(t *testing.T) {
	addr, _ := wire(t, okResponse)
	cfg := plain(addr)
	pool := secure(t, cfg, "shop.example")
	clients, strangers := peertest.NewAuthority(t), peertest.NewAuthority(t)
	cfg.Listeners[0].TLS.ClientCAs = clients.PEM
	s := serve(t, cfg)
	pair := func(a *peertest.Authority) []tls.Certificate {
		chain, key := a.Issue(t, "client.example")
		c, err := tls.X509KeyPair([]byte(chain), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{c}
	}
	ask := func(certs []tls.Certificate) (int, error) {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "shop.example", Certificates: certs}, DisableKeepAlives: true}
		req, _ := http.NewRequest("GET", "https://"+s.addr()+"/", nil)
		req.Host = "shop.example"
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		return resp.StatusCode, nil
	}
	if status, err := ask(pair(clients)); status != 200 {
		t.Errorf("status %d, %v", status, err)
	}
	if status, err := ask(nil); err == nil {
		t.Errorf("without a certificate: status %d", status)
	}
	if status, err := ask(pair(strangers)); err == nil {
		t.Errorf("with another authority's certificate: status %d", status)
	}

	// A connection that was admitted without a certificate must end once one is demanded.
	optional := plain(addr)
	optional.Certificates = cfg.Certificates
	optional.Listeners[0].Protocol = model.HTTPS
	optional.Listeners[0].TLS = &model.ListenerTLS{Certificates: []string{"default/cert"}, ClientCAs: clients.PEM, ClientOptional: true}
	if err := s.Apply(optional); err != nil {
		t.Fatal(err)
	}
	k := newTLSTalk(t, s.addr(), pool, "shop.example")
	k.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	k.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 421 {
		t.Errorf("status %d after certificates were demanded", resp.StatusCode)
	}
	if n := s.failures(telemetry.ClientTLS); n != 2 {
		t.Errorf("%d handshakes failed", n)
	}
}
