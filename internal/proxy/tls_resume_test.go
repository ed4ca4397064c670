package proxy

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
)

// anySession is a cache that offers its only session to every server. An attacker in the middle can make a client do
// that.
type anySession struct {
	mu      sync.Mutex
	session *tls.ClientSessionState
	frozen  bool // keep the stored session
}

func (a *anySession) Get(string) (*tls.ClientSessionState, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.session, a.session != nil
}

func (a *anySession) Put(_ string, s *tls.ClientSessionState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.frozen && s != nil {
		a.session = s
	}
}

// resume sends a request under a server name. It reports whether the cache's session was resumed.
func resume(t testing.TB, addr, name string, version uint16, cache *anySession, certs ...tls.Certificate) (resumed bool, err error) {
	t.Helper()
	c := tls.Client(dial(t, addr), &tls.Config{
		ServerName: name, InsecureSkipVerify: true, MinVersion: version, MaxVersion: version, ClientSessionCache: cache, Certificates: certs,
	})
	defer c.Close()
	if err := c.Handshake(); err != nil {
		return false, err
	}
	// With TLS 1.3 the ticket, or the refusal, comes after the client's handshake.
	k := &talk{Conn: c, t: t, r: bufio.NewReader(c)}
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: " + cmp.Or(name, "shop.example") + "\r\n\r\n")); err != nil {
		return false, err
	}
	if _, err := k.r.Peek(1); err != nil {
		return false, err
	}
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("%s: status %d", name, resp.StatusCode)
	}
	return c.ConnectionState().DidResume, nil
}

var bothVersions = []uint16{tls.VersionTLS12, tls.VersionTLS13}

func TestSessionsOutliveReloads(t *testing.T) {
	addr, _ := wire(t, okResponse)
	cfg := plain(addr)
	secure(t, cfg, "shop.example")
	s := serve(t, cfg)
	for _, version := range bothVersions {
		cache := &anySession{}
		for i := range 4 {
			if i == 2 {
				next := plain(addr)
				secure(t, next, "shop.example")
				if err := s.Apply(next); err != nil {
					t.Fatal(err)
				}
			}
			resumed, err := resume(t, s.addr(), "shop.example", version, cache)
			if err != nil || resumed != (i > 0) {
				t.Errorf("%s, handshake %d: resumed %t, %v", tls.VersionName(version), i, resumed, err)
			}
		}
	}
}

// demands has two ports. The first has four listeners. The one for any name needs no certificate. mtls.example requires
// client certificates of an authority, optional.example asks for them. other.example needs none. The second port has
// one listener for any name.
func demands(t testing.TB, addr, authorities string) *model.Config {
	cfg := plain(addr)
	secure(t, cfg, "shop.example", "more.example")
	for _, name := range []string{"mtls", "optional", "other"} {
		l := cfg.Listeners[0]
		l.Name, l.Hostname = "default/gw/"+name, name+".example"
		l.TLS = &model.ListenerTLS{Certificates: l.TLS.Certificates}
		if name != "other" {
			l.TLS.ClientCAs, l.TLS.ClientOptional = authorities, name == "optional"
		}
		cfg.Listeners = append(cfg.Listeners, l)
		cfg.Routes[0].Attachments = append(cfg.Routes[0].Attachments, model.Attachment{Listener: l.Name, Hostnames: []string{l.Hostname}})
	}
	second := cfg.Listeners[0]
	second.Name, second.Port = "default/gw/second", 81
	cfg.Listeners = append(cfg.Listeners, second)
	cfg.Routes[0].Attachments = append(cfg.Routes[0].Attachments, model.Attachment{Listener: second.Name, Hostnames: []string{"*"}})
	return cfg
}

func TestSessionsAreGoodOnlyWhereTheyBegan(t *testing.T) {
	t.Parallel()
	addr := backend(t, func(http.ResponseWriter, *http.Request) {})
	clients, strangers := peertest.NewAuthority(t), peertest.NewAuthority(t)
	pair := func(a *peertest.Authority) tls.Certificate {
		chain, key := a.Issue(t, "client.example")
		c, err := tls.X509KeyPair([]byte(chain), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	cfg := demands(t, addr, clients.PEM)
	s := serve(t, cfg)
	first, second := s.addr(), s.Addr("default/gw/second").String()
	names := []string{"shop.example", "more.example", "other.example", "mtls.example", "optional.example", ""}
	for _, version := range bothVersions {
		for _, from := range names {
			cache := &anySession{}
			certs := []tls.Certificate{pair(clients)}
			if _, err := resume(t, first, from, version, cache, certs...); err != nil {
				t.Fatal(err)
			}
			cache.frozen = true
			for _, to := range names {
				resumed, err := resume(t, first, to, version, cache, certs...)
				if err != nil || resumed != (from == to) {
					t.Errorf("%s: a session of %q resumed at %q: %t, %v", tls.VersionName(version), from, to, resumed, err)
				}
			}
			if resumed, err := resume(t, second, from, version, cache); err != nil || resumed {
				t.Errorf("%s: a session of %q resumed on another port: %t, %v", tls.VersionName(version), from, resumed, err)
			}
		}

		// A client without a certificate has a session from a name that asks for none, or for an optional one. This
		// session opens nothing.
		for _, from := range []string{"shop.example", "optional.example"} {
			cache := &anySession{}
			if _, err := resume(t, first, from, version, cache, pair(strangers)); err != nil {
				t.Fatal(err)
			}
			if resumed, err := resume(t, first, "mtls.example", version, cache); err == nil {
				t.Errorf("%s: a session of %s let a client without certificate in, resumed %t", tls.VersionName(version), from, resumed)
			}
		}

		// If a session began before the listener asked for certificates, its client is asked for one.
		unasked := demands(t, addr, clients.PEM)
		for i := range unasked.Listeners {
			unasked.Listeners[i].TLS.ClientCAs, unasked.Listeners[i].TLS.ClientOptional = "", false
		}
		if err := s.Apply(unasked); err != nil {
			t.Fatal(err)
		}
		early := &anySession{}
		for _, want := range []bool{false, true} {
			if resumed, err := resume(t, first, "optional.example", version, early); err != nil || resumed != want {
				t.Errorf("%s: before the change: resumed %t, %v", tls.VersionName(version), resumed, err)
			}
		}
		if err := s.Apply(cfg); err != nil {
			t.Fatal(err)
		}
		if resumed, err := resume(t, first, "optional.example", version, early); err != nil || resumed {
			t.Errorf("%s: a session was not asked for its certificate: resumed %t, %v", tls.VersionName(version), resumed, err)
		}

		// A session that began under another authority opens nothing either.
		cache := &anySession{}
		if _, err := resume(t, first, "mtls.example", version, cache, pair(clients)); err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(demands(t, addr, strangers.PEM)); err != nil {
			t.Fatal(err)
		}
		if _, err := resume(t, first, "mtls.example", version, cache, pair(clients)); err == nil {
			t.Errorf("%s: a session outlived the authority of its client", tls.VersionName(version))
		}
		if err := s.Apply(cfg); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTicketKeysRotate(t *testing.T) {
	addr, _ := wire(t, okResponse)
	cfg := plain(addr)
	secure(t, cfg, "shop.example")
	var hours atomic.Int64
	begin := time.Now()
	s := serve(t, cfg, func(o *Options) {
		o.Now = func() time.Time { return begin.Add(time.Duration(hours.Load()) * time.Hour) }
	})
	cache := &anySession{}
	for _, test := range []struct {
		hour    int64
		resumed bool
	}{{0, false}, {1, true}, {25, true}, {6 * 24, true}, {8*24 + 1, false}} {
		hours.Store(test.hour)
		// A new key begins each day.
		if _, err := resume(t, s.addr(), "shop.example", tls.VersionTLS13, &anySession{}); err != nil {
			t.Fatal(err)
		}
		if resumed, err := resume(t, s.addr(), "shop.example", tls.VersionTLS13, cache); err != nil || resumed != test.resumed {
			t.Errorf("after %d hours: resumed %t, %v", test.hour, resumed, err)
		}
		cache.frozen = true
	}
}
