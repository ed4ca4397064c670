package proxy

import (
	"crypto/tls"
	"net/http"
	"testing"

	"github.com/weirmesh/weir/internal/peertest"
)

// TestAPeerIsWhoItsVerifiedCertificateSays: a client certificate that no authority of the listener signed does not
// identify the client. This holds even where a certificate is optional.
func TestAPeerIsWhoItsVerifiedCertificateSays(t *testing.T) {
	clients, strangers := peertest.NewAuthority(t), peertest.NewAuthority(t)
	for _, test := range []struct {
		name     string
		optional bool
		issuer   *peertest.Authority
		want     string
	}{{"demanded", false, clients, "client.example"}, {"optional, of a stranger", true, strangers, ""}} {
		t.Run(test.name, func(t *testing.T) {
			arrived, looked := make(chan struct{}), make(chan struct{})
			cfg := plain(backend(t, func(http.ResponseWriter, *http.Request) {
				close(arrived)
				<-looked
			}))
			pool := secure(t, cfg, "shop.example")
			cfg.Listeners[0].TLS.ClientCAs, cfg.Listeners[0].TLS.ClientOptional = clients.PEM, test.optional
			s := serve(t, cfg)
			chain, key := test.issuer.Issue(t, "client.example")
			pair, err := tls.X509KeyPair([]byte(chain), []byte(key))
			if err != nil {
				t.Fatal(err)
			}
			c, err := tls.Dial("tcp", s.addr(), &tls.Config{RootCAs: pool, ServerName: "shop.example", Certificates: []tls.Certificate{pair}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			<-arrived
			defer close(looked)
			seen := 0
			s.binds[0].each(func(c *conn) {
				if !c.is(stateServing) {
					return
				}
				seen++
				got := ""
				if cert := c.peer.TLS.Verified; cert != nil {
					got = cert.Subject.CommonName
				}
				if got != test.want || c.peer.TLS.Name != "shop.example" {
					t.Errorf("it is %q, who asked for %q; want %q", got, c.peer.TLS.Name, test.want)
				}
			})
			if seen != 1 {
				t.Errorf("%d connections are served", seen)
			}
		})
	}
}
