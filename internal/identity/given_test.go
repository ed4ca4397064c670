package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"maps"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/peertest"
)

const sample = "spiffe://td/ns/a/sa/b"

// ca is an authority as a user has it.
type ca struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newCA makes one, signed by another or itself.
func newCA(t testing.TB, by *ca, key crypto.Signer, now time.Time, edit func(*x509.Certificate)) *ca {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "a user's"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(90 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if edit != nil {
		edit(template)
	}
	if by == nil {
		by = &ca{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &ca{cert, key}
}

// secretOf is the data of the Secret that cert-manager writes for the first of the authorities, which the others signed.
func secretOf(t testing.TB, kind string, root *ca, path ...*ca) map[string][]byte {
	t.Helper()
	var der []byte
	var err error
	switch kind {
	case "EC PRIVATE KEY":
		der, err = x509.MarshalECPrivateKey(path[0].key.(*ecdsa.PrivateKey))
	case "RSA PRIVATE KEY":
		der = x509.MarshalPKCS1PrivateKey(path[0].key.(*rsa.PrivateKey))
	default:
		der, err = x509.MarshalPKCS8PrivateKey(path[0].key)
	}
	if err != nil {
		t.Fatal(err)
	}
	var certs []*x509.Certificate
	for _, c := range path {
		certs = append(certs, c.cert)
	}
	return map[string][]byte{"tls.crt": encodeCertificates(certs), "tls.key": encodePEM(kind, der), "ca.crt": encodeCertificates([]*x509.Certificate{root.cert})}
}

func given(t testing.TB, data map[string][]byte, now time.Time) *Given {
	t.Helper()
	g, err := ParseGiven(data, sample, now)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// leaf signs a workload's certificate.
func leaf(t testing.TB, a *Authority, now time.Time) (chain []*x509.Certificate) {
	t.Helper()
	all, err := a.Workload(Workload{ID: sample, Life: 24 * time.Hour}, peertest.Key(t).Public(), now)
	if err != nil {
		t.Fatal(err)
	}
	for _, der := range all {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		chain = append(chain, c)
	}
	return chain
}

// believes judges what a peer presents, as one who has a bundle.
func believes(bundle []byte, chain []*x509.Certificate, now time.Time) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

func TestAGivenAuthoritySigns(t *testing.T) {
	root := newCA(t, nil, peertest.Key(t), start, nil)
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaCA := newCA(t, root, weak, start, nil)
	middle := newCA(t, root, peertest.Key(t), start, func(c *x509.Certificate) { c.NotAfter = start.Add(5 * time.Hour) })
	lowest := newCA(t, middle, peertest.Key(t), start, nil)
	for name, c := range map[string]struct {
		data map[string][]byte
		sent int
		ends time.Time
	}{
		"a root, PKCS #8":        {secretOf(t, "PRIVATE KEY", root, root), 1, start.Add(24 * time.Hour)},
		"a root, SEC 1":          {secretOf(t, "EC PRIVATE KEY", root, root), 1, start.Add(24 * time.Hour)},
		"intermediate, PKCS #1":  {secretOf(t, "RSA PRIVATE KEY", root, rsaCA), 2, start.Add(24 * time.Hour)},
		"two, one ends early":    {secretOf(t, "EC PRIVATE KEY", root, lowest, middle), 3, start.Add(5 * time.Hour)},
		"the root behind it too": {secretOf(t, "PRIVATE KEY", root, rsaCA, root), 2, start.Add(24 * time.Hour)},
	} {
		a := given(t, c.data, start).Take()
		for range 2 { // the second time as it is kept
			chain := leaf(t, a, start)
			if err := believes(c.data["ca.crt"], chain, start); err != nil || len(chain) != c.sent || !chain[0].NotAfter.Equal(c.ends) {
				t.Errorf("%s: %v, %d certificates, until %s", name, err, len(chain), chain[0].NotAfter)
			}
			if !bytes.Equal(a.Bundle(), c.data["ca.crt"]) {
				t.Errorf("%s: another bundle than ca.crt", name)
			}
			kept, err := a.Secret()
			if err != nil {
				t.Fatal(err)
			}
			if a, err = Parse(kept); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := a.Rotate(start.Add(80 * 24 * time.Hour)); err != nil || b != a {
			t.Errorf("%s: it was replaced by a root of our own: %v", name, err)
		}
	}
}

func TestGivenAuthoritiesThatAreRefused(t *testing.T) {
	root := newCA(t, nil, peertest.Key(t), start, nil)
	none := newCA(t, root, peertest.Key(t), start, func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature })
	short := newCA(t, nil, peertest.Key(t), start, func(c *x509.Certificate) { c.MaxPathLenZero = true })
	below := newCA(t, short, peertest.Key(t), start, nil)
	mute := newCA(t, root, peertest.Key(t), start, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature })
	elsewhere := newCA(t, nil, peertest.Key(t), start, func(c *x509.Certificate) {
		c.PermittedURIDomains, c.PermittedDNSDomainsCritical = []string{"other"}, true
	})
	good := secretOf(t, "PRIVATE KEY", root, root)
	with := func(key, value string) map[string][]byte {
		d := maps.Clone(good)
		d[key] = []byte(value)
		return d
	}
	for name, c := range map[string]struct {
		data map[string][]byte
		at   time.Time
		why  []string
	}{
		"no ca.crt":          {with("ca.crt", ""), start, []string{"ca.crt: is missing"}},
		"no key":             {with("tls.key", ""), start, []string{"tls.key: is missing"}},
		"a key with a word":  {with("tls.key", string(encodePEM("ENCRYPTED PRIVATE KEY", []byte{1}))), start, []string{"tls.key", "without a password"}},
		"too long":           {with("ca.crt", strings.Repeat(" ", maxGiven+1)), start, []string{"ca.crt", "more than"}},
		"no CA":              {secretOf(t, "PRIVATE KEY", root, none), start, []string{"tls.crt", "not a CA", "isCA: true"}},
		"no CA for a root":   {secretOf(t, "PRIVATE KEY", none, root), start, []string{"ca.crt", "not a CA"}},
		"another key":        {secretOf(t, "PRIVATE KEY", root, &ca{root.cert, peertest.Key(t)}), start, []string{"tls.key: does not belong to tls.crt"}},
		"path length":        {secretOf(t, "PRIVATE KEY", short, below), start, []string{"tls.crt", "path length", "raise"}},
		"another root":       {secretOf(t, "PRIVATE KEY", newCA(t, nil, peertest.Key(t), start, func(c *x509.Certificate) { c.Subject.CommonName = "x" }), root), start, []string{"ca.crt does not vouch"}},
		"may not sign":       {secretOf(t, "PRIVATE KEY", root, mute), start, []string{"tls.crt", "cert sign"}},
		"ended":              {good, start.Add(91 * 24 * time.Hour), []string{"tls.crt", "ended"}},
		"not begun":          {good, start.Add(-2 * time.Hour), []string{"tls.crt", "clocks"}},
		"for other names":    {secretOf(t, "PRIVATE KEY", elsewhere, elsewhere), start, []string{"tls.crt", "would not be accepted"}},
		"tls.crt is no PEM":  {with("tls.crt", "x"), start, []string{"tls.crt"}},
		"more than a chain":  {with("tls.crt", strings.Repeat(string(good["tls.crt"]), maxPath+1)), start, []string{"tls.crt", "certificates"}},
		"more roots than 64": {with("ca.crt", strings.Repeat(string(good["ca.crt"]), maxRoots+1)), start, []string{"ca.crt", "certificates"}},
	} {
		g, err := ParseGiven(c.data, sample, c.at)
		if err == nil || g != nil {
			t.Errorf("%s: it is taken", name)
			continue
		}
		for _, want := range c.why {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// TestAuthoritiesChangeWithoutAFailedHandshake goes from an own authority to a user's, through its renewals and changes of
// root, and back, with pods that renew at two thirds of their certificates' lives.
func TestAuthoritiesChangeWithoutAFailedHandshake(t *testing.T) {
	one := newCA(t, nil, peertest.Key(t), start, func(c *x509.Certificate) { c.NotAfter = start.Add(RootLife) })
	two := newCA(t, nil, peertest.Key(t), start, func(c *x509.Certificate) {
		c.Subject.CommonName, c.NotAfter = "two", start.Add(40*24*time.Hour+20*time.Hour)
	})
	three := newCA(t, nil, peertest.Key(t), start, func(c *x509.Certificate) { c.Subject.CommonName, c.NotAfter = "three", start.Add(RootLife) })
	under := func(root *ca) *Given {
		return given(t, secretOf(t, "EC PRIVATE KEY", root, newCA(t, root, peertest.Key(t), start, nil)), start)
	}
	const day = 24 * time.Hour
	plan := []struct {
		at time.Duration
		g  *Given
	}{
		{0, nil}, {5 * day, under(one)}, {10 * day, under(one)}, {15 * day, given(t, secretOf(t, "PRIVATE KEY", two, two), start)},
		{40 * day, under(three)}, // two ends in 20 hours: there is less time than an overlap
		{50 * day, under(one)}, {50*day + time.Hour, under(three)}, {55 * day, nil}, {56*day - time.Hour, under(three)}, {60 * day, nil},
	}
	type pod struct {
		chain  []*x509.Certificate
		bundle []byte
		due    time.Time
	}
	var pods [5]pod
	a := made(t, start)
	signers := map[string]bool{}
	for now := start; now.Before(start.Add(65 * day)); now = now.Add(30 * time.Minute) {
		var g *Given
		for _, p := range plan {
			if !now.Before(start.Add(p.at)) {
				g = p.g
			}
		}
		next, err := a.Follow(g, now)
		if err != nil {
			t.Fatal(err)
		}
		next = rotate(t, next, now)
		if next != a {
			data, err := next.Secret()
			if err != nil {
				t.Fatal(err)
			}
			if a, err = Parse(data); err != nil {
				t.Fatal(err)
			}
			if len(a.former) != len(next.former) || (a.next == nil) != (next.next == nil) {
				t.Fatal("what is kept differs")
			}
		}
		renewed := now.Hour() == 0 && now.Minute() == 0
		for i := range pods {
			if p := &pods[i]; !now.Before(p.due) {
				renewed = true
				c := leaf(t, a, now)
				*p = pod{c, a.Bundle(), now.Add(c[0].NotAfter.Sub(now) * time.Duration(58+2*i) / 100)}
				signers[string(c[0].AuthorityKeyId)] = true
			}
		}
		for i := range pods {
			for j := range pods {
				if !renewed {
					continue
				}
				if err := believes(pods[i].bundle, pods[j].chain, now); err != nil {
					t.Fatalf("%s: pod %d does not believe %d: %v", now.Sub(start), i, j, err)
				}
			}
		}
	}
	if len(signers) < 6 {
		t.Errorf("%d authorities have signed", len(signers))
	}
	if a.signer.given() || len(a.former) > 0 || bytes.Contains(a.Bundle(), encodeCertificates([]*x509.Certificate{three.cert})) {
		t.Error("5 days after it was taken away, the user's root is trusted")
	}
}

func FuzzParseGiven(f *testing.F) {
	root := newCA(f, nil, peertest.Key(f), start, nil)
	for _, data := range []map[string][]byte{secretOf(f, "PRIVATE KEY", root, root), secretOf(f, "EC PRIVATE KEY", root, newCA(f, root, peertest.Key(f), start, nil), root)} {
		f.Add(data["tls.crt"], data["tls.key"], data["ca.crt"])
	}
	f.Fuzz(func(t *testing.T, cert, key, ca []byte) {
		g, err := ParseGiven(map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca}, sample, start)
		if (g == nil) != (err != nil) {
			t.Fatalf("%v, %v", g, err)
		}
		if g == nil {
			return
		}
		a := g.Take()
		if err := believes(a.Bundle(), leaf(t, a, start), start); err != nil {
			t.Fatalf("what it signs is not believed: %v", err)
		}
	})
}
