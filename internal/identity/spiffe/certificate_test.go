package spiffe

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func key(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// sign makes a certificate from the template, for a new key; without a signer it signs itself.
func sign(t testing.TB, template *x509.Certificate, by *authority) *authority {
	t.Helper()
	k := key(t)
	template.SerialNumber = big.NewInt(1)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	if by == nil {
		by = &authority{template, k}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, k.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, k}
}

func newAuthority(t testing.TB, by *authority) *authority {
	return sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, by)
}

func uris(t testing.TB, all ...string) (out []*url.URL) {
	t.Helper()
	for _, s := range all {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

func pool(all ...*authority) *x509.CertPool {
	p := x509.NewCertPool()
	for _, a := range all {
		p.AddCert(a.cert)
	}
	return p
}

const (
	cart  = "spiffe://cluster.local/ns/shop/sa/cart"
	other = "spiffe://other.example/ns/shop/sa/cart"
)

// TestCertificates judges good and bad certificates of a good authority.
func TestCertificates(t *testing.T) {
	good, foreign := newAuthority(t, nil), newAuthority(t, nil)
	between := newAuthority(t, good)
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	leaf := func(edit func(*x509.Certificate)) *x509.Certificate {
		c := &x509.Certificate{URIs: uris(t, cart), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: both, BasicConstraintsValid: true}
		if edit != nil {
			edit(c)
		}
		return c
	}
	own, err := New(certificate(sign(t, leaf(nil), good)), pool(good))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		edit func(*x509.Certificate)
		by   *authority
		with []*authority
		want any    // nil: it is good
		text string // part of the error
	}{
		{name: "good"},
		{name: "by an intermediate", by: between, with: []*authority{between}},
		{name: "without the usages of TLS", edit: func(c *x509.Certificate) { c.ExtKeyUsage = nil }},
		{name: "with DNS names", edit: func(c *x509.Certificate) { c.DNSNames = []string{"cart.shop.svc", "*.example"} }},
		{name: "of another workload", edit: func(c *x509.Certificate) { c.URIs = uris(t, "spiffe://cluster.local/ns/x/sa/y") }},

		{name: "no URI", edit: func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"cart"} }, want: new(*CertificateError), text: "0 URIs"},
		{name: "two URIs", edit: func(c *x509.Certificate) { c.URIs = uris(t, cart, other) }, want: new(*CertificateError), text: "2 URIs"},
		{name: "the same URI twice", edit: func(c *x509.Certificate) { c.URIs = uris(t, cart, cart) }, want: new(*CertificateError), text: "2 URIs"},
		{name: "a SPIFFE ID and another URI", edit: func(c *x509.Certificate) { c.URIs = uris(t, cart, "https://a.example/") }, want: new(*CertificateError), text: "2 URIs"},
		{name: "another URI", edit: func(c *x509.Certificate) { c.URIs = uris(t, "https://cluster.local/ns") }, want: new(*CertificateError), text: "begin"},
		{name: "a path with dots", edit: func(c *x509.Certificate) { c.URIs = uris(t, "spiffe://cluster.local/a/../b") }, want: new(*CertificateError), text: `".."`},
		{name: "a query", edit: func(c *x509.Certificate) { c.URIs = uris(t, cart+"?a") }, want: new(*CertificateError), text: "'?'"},
		{name: "a percent-encoded path", edit: func(c *x509.Certificate) { c.URIs = uris(t, "spiffe://cluster.local/ns%2fshop") }, want: new(*CertificateError), text: "'%'"},
		{name: "a name only", edit: func(c *x509.Certificate) { c.URIs, c.Subject = nil, pkix.Name{CommonName: cart} }, want: new(*CertificateError), text: "0 URIs"},
		{name: "an authority", edit: func(c *x509.Certificate) { c.IsCA = true; c.KeyUsage |= x509.KeyUsageCertSign }, want: new(*CertificateError), text: "authority"},
		{name: "an authority that may not sign", edit: func(c *x509.Certificate) { c.IsCA = true }, want: new(*CertificateError), text: "authority"},
		{name: "a key for certificates", edit: func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign }, want: new(*CertificateError), text: "sign certificates"},
		{name: "a key for revocations", edit: func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }, want: new(*CertificateError), text: "revocations"},
		{name: "a key that signs nothing", edit: func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }, want: new(*CertificateError), text: "handshakes"},
		{name: "another trust domain", edit: func(c *x509.Certificate) { c.URIs = uris(t, other) }, want: new(*DomainError), text: "cluster.local"},
		{name: "a longer trust domain", edit: func(c *x509.Certificate) { c.URIs = uris(t, "spiffe://cluster.local.evil.example/ns/shop/sa/cart") }, want: new(*DomainError), text: "evil"},
		{name: "a foreign authority", by: foreign, with: []*authority{foreign}, want: new(x509.UnknownAuthorityError), text: cart},
		{name: "a missing intermediate", by: between, want: new(x509.UnknownAuthorityError), text: cart},
		{name: "expired", edit: func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
		}, want: new(x509.CertificateInvalidError), text: "expired"},
		{name: "not yet valid", edit: func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(time.Minute), time.Now().Add(time.Hour)
		}, want: new(x509.CertificateInvalidError), text: "not yet valid"},
		{name: "of a server only", edit: func(c *x509.Certificate) { c.ExtKeyUsage = both[:1] }, want: new(x509.CertificateInvalidError), text: "usage"},
		{name: "by a leaf", by: sign(t, leaf(nil), good), want: new(error), text: ""},
	} {
		by := c.by
		if by == nil {
			by = good
		}
		cert := sign(t, leaf(c.edit), by)
		chain := []*x509.Certificate{cert.cert}
		for _, w := range c.with {
			chain = append(chain, w.cert)
		}
		id, err := own.Verify(chain, x509.ExtKeyUsageClientAuth)
		switch {
		case c.want == nil:
			if err != nil || id.String() != cert.cert.URIs[0].String() {
				t.Errorf("%s: %s, %v", c.name, id, err)
			}
		case err == nil || !errors.As(err, c.want) || !strings.Contains(err.Error(), c.text) || !id.IsZero():
			t.Errorf("%s: %s, %v; want %T with %q", c.name, id, err, c.want, c.text)
		}
	}
	if _, err := own.Verify(nil, x509.ExtKeyUsageClientAuth); err == nil {
		t.Error("no certificate is good")
	}
	if _, err := own.Verify([]*x509.Certificate{good.cert}, x509.ExtKeyUsageClientAuth); err == nil {
		t.Error("the root itself is good")
	}
}

func certificate(a *authority) tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{a.cert.Raw}, PrivateKey: a.key}
}

func TestAnIdentityIsASoundCertificateWithRoots(t *testing.T) {
	root := newAuthority(t, nil)
	leaf := sign(t, &x509.Certificate{URIs: uris(t, cart), KeyUsage: x509.KeyUsageDigitalSignature}, root)
	id, err := New(certificate(leaf), pool(root))
	if err != nil || id.ID.String() != cart || !id.Certificate.Leaf.Equal(leaf.cert) {
		t.Errorf("%+v, %v", id, err)
	}
	broken := certificate(leaf)
	broken.Certificate = [][]byte{{1}}
	without := certificate(leaf)
	without.PrivateKey = nil
	for name, err := range map[string]error{
		"no certificate":  failed(New(tls.Certificate{}, pool(root))),
		"no key":          failed(New(without, pool(root))),
		"no roots":        failed(New(certificate(leaf), nil)),
		"no X.509":        failed(New(broken, pool(root))),
		"no SPIFFE ID":    failed(New(certificate(sign(t, &x509.Certificate{KeyUsage: x509.KeyUsageDigitalSignature}, root)), pool(root))),
		"of an authority": failed(New(certificate(root), pool(root))),
	} {
		if err == nil {
			t.Errorf("%s: made an identity", name)
		}
	}
}

func failed(_ *Identity, err error) error { return err }

// Whatever a certificate holds, Of does not fail in another way than by an error, and what it returns is what the
// certificate says.
func FuzzOf(f *testing.F) {
	root := newAuthority(f, nil)
	f.Add(root.cert.Raw)
	f.Add(sign(f, &x509.Certificate{URIs: uris(f, cart), KeyUsage: x509.KeyUsageDigitalSignature}, root).cert.Raw)
	f.Add(sign(f, &x509.Certificate{URIs: uris(f, cart, other)}, root).cert.Raw)
	f.Fuzz(func(t *testing.T, der []byte) {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		id, err := Of(c)
		if err != nil {
			if !id.IsZero() || !errors.As(err, new(*CertificateError)) {
				t.Fatalf("%s, %v", id, err)
			}
			return
		}
		if len(c.URIs) != 1 || c.URIs[0].String() != id.String() || c.IsCA {
			t.Fatalf("%s of %v, authority %t", id, c.URIs, c.IsCA)
		}
	})
}
