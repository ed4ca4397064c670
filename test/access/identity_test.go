package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/folder"
)

// stranger makes a certificate that an authority of its own signed, or itself without one.
func stranger(t *testing.T, id string, own bool, extensions ...pkix.Extension) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{u}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, ExtraExtensions: extensions, Subject: pkix.Name{CommonName: "web", Organization: []string{"Deployment"}},
	}
	issuer, signer := leaf, key
	if own {
		issuer = &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "weir"}}
		if signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, issuer, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// handshake is how a client comes to a port.
type handshake struct {
	name   string
	port   string
	change func(*tls.Config)
	before string // in front of the handshake
}

func TestNoIdentityIsBelievedThatIsNotProved(t *testing.T) {
	f := start(t)
	claims, err := claim.Claims{Pod: "web", Owners: deployment("web")}.Extension()
	if err != nil {
		t.Fatal(err)
	}
	const id = "spiffe://cluster.local/ns/shop/sa/apps"
	expired, err := folder.Make(filepath.Join(f.dir, "trust"), "", "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	path, _, err := expired.Pod(folder.Pod{Namespace: "shop", Name: "web-old", Account: "apps", Owners: deployment("web")}, time.Hour, time.Now().Add(-3*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	old, err := tls.LoadX509KeyPair(path, path)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := folder.Make(filepath.Join(f.dir, "elsewhere"), "", "cluster.local", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if path, _, err = elsewhere.Pod(folder.Pod{Namespace: "shop", Name: "web", Account: "apps", Owners: deployment("web")}, time.Hour, time.Now()); err != nil {
		t.Fatal(err)
	}
	foreign, err := tls.LoadX509KeyPair(path, path)
	if err != nil {
		t.Fatal(err)
	}
	report := f.issue(t, folder.Pod{Namespace: "shop", Name: "report", Account: "apps", Owners: deployment("report")}, time.Hour)
	with := func(c tls.Certificate) func(*tls.Config) {
		return func(o *tls.Config) {
			o.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
		}
	}
	joined := func(first, second tls.Certificate) tls.Certificate {
		first.Certificate = append(append([][]byte(nil), first.Certificate...), second.Certificate...)
		return first
	}
	sni := func(name string) func(*tls.Config) {
		return func(o *tls.Config) { with(report)(o); o.ServerName = name }
	}
	web := with(f.web)
	sessions := tls.NewLRUClientSessionCache(8)
	all := []handshake{
		{name: "without a certificate", change: func(*tls.Config) {}},
		{name: "self-signed", change: with(stranger(t, id, false))},
		{name: "self-signed with claims", change: with(stranger(t, id, false, claims))},
		{name: "another authority", change: with(stranger(t, id, true, claims))},
		{name: "another folder of the same trust domain", change: with(foreign)},
		{name: "self-signed with a proved one behind", change: with(joined(stranger(t, id, false, claims), f.web))},
		{name: "report's with web's behind", change: with(joined(report, f.web))},
		{name: "expired", change: with(old)},
		{name: "of another Deployment with the same ServiceAccount", change: with(report)},
		{name: "without claims", change: with(f.issue(t, folder.Pod{Namespace: "shop", Name: "nobody", Account: "apps"}, time.Hour))},
		{name: "of another namespace", change: with(f.issue(t, folder.Pod{Namespace: "other", Name: "web", Account: "apps", Owners: deployment("web")}, time.Hour))},
		{name: "of another kind", change: with(f.issue(t, folder.Pod{Namespace: "shop", Name: "w", Account: "apps", Owners: []claim.Owner{{Kind: "StatefulSet", Name: "web"}}}, time.Hour))},
		{name: "name in another case", change: with(f.issue(t, folder.Pod{Namespace: "shop", Name: "Web", Account: "apps", Owners: deployment("WEB")}, time.Hour))},
		{name: "names of web as DNS names", change: with(f.issue(t, folder.Pod{Namespace: "shop", Name: "x", Account: "apps", DNSNames: []string{"web.shop", "web.shop.svc"}, Owners: deployment("report")}, time.Hour))},
		{name: "of the server itself", change: with(f.issue(t, folder.Pod{Namespace: "shop", Name: "cart2", Account: "cart", Owners: deployment("cart")}, time.Hour))},
		{name: "web's claims for a node", change: with(stranger(t, "spiffe://cluster.local/node/web", true, claims))},
		{name: "TLS 1.2", change: func(o *tls.Config) { web(o); o.MaxVersion = tls.VersionTLS12 }},
		{name: "TLS 1.2 with renegotiation", change: func(o *tls.Config) {
			web(o)
			o.MaxVersion, o.Renegotiation = tls.VersionTLS12, tls.RenegotiateFreelyAsClient
		}},
		{name: "a port without rules", port: "other", change: web},
		{name: "a port without rules, by the name of the other", port: "other", change: func(o *tls.Config) { web(o); o.ServerName = "cart.shop" }},
		{name: "a session of web, without a certificate", change: func(o *tls.Config) { o.ClientSessionCache = sessions }},
		{name: "a PROXY header", change: web, before: "PROXY TCP4 127.0.0.1 127.0.0.1 1 8080\r\n"},
		{name: "a PROXY header of version 2", change: web, before: "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01\x00\x01\x1f\x90"},
		{name: "plain text in front of TLS", change: web, before: head("GET /public/a")},
		{name: "STARTTLS", change: web, before: "STARTTLS\r\n"},
		{name: "for web, by name cart", change: sni("cart")}, {name: "for web, by name web.shop", change: sni("web.shop")}, {name: "for web, by an ID", change: sni("spiffe://cluster.local/ns/shop/sa/apps")},
		{name: "for web, by a path", change: sni("cart/public/a")}, {name: "for web, by a long name", change: sni("a.cart.shop.svc.cluster.local")}, {name: "for web, by localhost", change: sni("localhost")},
	}
	// A session that web began is not one that others go on with, and it is none at all for web.
	for range 2 {
		c, err := dial(f.main, "http/1.1", f.web)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&way{bytes: head("GET /public/a")}).send(c); err != nil || c.ConnectionState().DidResume {
			t.Fatalf("%v, resumed %t", err, c.ConnectionState().DidResume)
		}
		c.Close()
		if n := f.judge(t, "web", 1); n != 1 {
			t.Fatalf("web's request reached the backend %d times", n)
		}
	}
	for _, protocol := range []string{"http/1.1", "h2"} {
		f.come(t, handshake{name: "web", change: web}, protocol)
		if n := f.judge(t, "web", 2); n != 2 {
			t.Fatalf("over %s, %d of web's requests reached the backend", protocol, n)
		}
	}
	for _, h := range all {
		for _, protocol := range []string{"http/1.1", "h2"} {
			f.come(t, h, protocol)
			if n := f.judge(t, h.name, 0); n > 0 {
				t.Errorf("%s over %s: %d requests reached the backend", h.name, protocol, n)
			}
		}
	}
	for _, plain := range []string{head("GET /public/a"), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "CONNECT cart:8080 HTTP/1.1\r\nHost: cart\r\n\r\n", "\x00", "SSH-2.0-x\r\n"} {
		for _, at := range []string{f.main, f.other} {
			c, err := net.DialTimeout("tcp", at, patience)
			if err != nil {
				t.Fatal(err)
			}
			talk(t, c, plain+last)
			if requests, _, _ := f.take(); len(requests) > 0 {
				t.Errorf("plain %q: the backend got %v", plain, requests)
			}
		}
	}
}

// talk writes, ends its side and reads to the end.
func talk(t *testing.T, c net.Conn, bytes string) {
	t.Helper()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, bytes); err != nil {
		return
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	if _, err := io.ReadAll(c); isTimeout(err) {
		t.Errorf("%.60q: the connection stays open", bytes)
	}
}

// come comes to a port with a handshake and asks for what web may have.
func (f *field) come(t *testing.T, h handshake, protocol string) {
	t.Helper()
	at := f.main
	if h.port == "other" {
		at = f.other
	}
	raw, err := net.DialTimeout("tcp", at, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(raw, h.before); err != nil {
		return
	}
	o := &tls.Config{NextProtos: []string{protocol}, InsecureSkipVerify: true}
	h.change(o)
	c := tls.Client(raw, o)
	if err := c.Handshake(); err != nil {
		if isTimeout(err) {
			t.Errorf("%s: %v", h.name, err)
		}
		return
	}
	if protocol == "h2" {
		if err := (&way2{streams: []stream{usual("GET", "/public/a"), usual("POST", "/upload")}}).send(c); err != nil {
			t.Errorf("%s: %v", h.name, err)
		}
		return
	}
	talk(t, c, head("GET /public/a")+head("POST /upload", "Content-Length: 0", "X-Forwarded-Client-Cert: URI=spiffe://cluster.local/ns/shop/sa/apps")+last)
}
