package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func made(t *testing.T, now time.Time) *Authority {
	t.Helper()
	a, err := New(now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func rotate(t *testing.T, a *Authority, now time.Time) *Authority {
	t.Helper()
	out, err := a.Rotate(now)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// verify checks a certificate as a client with that bundle would.
func verify(bundle []byte, c *tls.Certificate, name string, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

func server(t *testing.T, a *Authority, now time.Time) *tls.Certificate {
	t.Helper()
	c, err := a.Server(Subject{DNSNames: []string{"weir.test"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestServerCertificateIsTrusted(t *testing.T) {
	a := made(t, start)
	c := server(t, a, start)
	if err := verify(a.Bundle(), c, "weir.test", start.Add(ServerLife-time.Second)); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"another name":      verify(a.Bundle(), c, "other.test", start),
		"later":             verify(a.Bundle(), c, "weir.test", start.Add(ServerLife+time.Second)),
		"another authority": verify(made(t, start).Bundle(), c, "weir.test", start),
	} {
		if err == nil {
			t.Errorf("%s is trusted", name)
		}
	}
	if _, err := a.Server(Subject{}, start); err == nil {
		t.Error("a certificate for nobody")
	}
	if _, err := a.Server(Subject{DNSNames: []string{"x"}}, start.Add(RootLife+time.Hour)); err == nil {
		t.Error("a root that has ended signs")
	}
}

// TestRotationNeverBreaksTrust goes through three years by the hour, with clients that learn of a bundle a day late.
func TestRotationNeverBreaksTrust(t *testing.T) {
	a := made(t, start)
	type known struct {
		at     time.Time
		bundle []byte
	}
	bundles := []known{{start, a.Bundle()}}
	signers := 1
	for now := start; now.Before(start.Add(3 * RootLife)); now = now.Add(time.Hour) {
		if next := rotate(t, a, now); next != a {
			if a.Due().After(now) {
				t.Fatalf("%s: rotated before it was due (%s)", now, a.Due())
			}
			if !next.signer.cert.Equal(a.signer.cert) {
				signers++
			}
			a = next
			bundles = append(bundles, known{now, a.Bundle()})
		} else if a.Due().Before(now) {
			t.Fatalf("%s: due at %s, and not done", now, a.Due())
		}
		if now.Hour() != 0 {
			continue
		}
		c := server(t, a, now)
		for i, b := range bundles {
			late := i+1 < len(bundles) && !bundles[i+1].at.Add(Overlap).After(now)
			if late {
				continue // replaced long ago
			}
			if err := verify(b.bundle, c, "weir.test", now); err != nil {
				t.Fatalf("%s: bundle of %s: %v", now, b.at, err)
			}
		}
		// A certificate that was signed before a rotation is trusted by those who have the bundle after it.
		if err := verify(a.Bundle(), c, "weir.test", now); err != nil {
			t.Fatal(err)
		}
	}
	if signers != 5 {
		t.Errorf("%d signers in three years", signers)
	}
}

func TestCertificatesOfTheFormerRootStayTrusted(t *testing.T) {
	a := made(t, start)
	a = rotate(t, a, start.Add(RootRotation))
	now := start.Add(RootRotation + Overlap)
	c := server(t, a, now)
	b := rotate(t, a, now)
	if b.signer.cert.Equal(a.signer.cert) || len(b.former) != 1 {
		t.Fatal("the next root does not sign")
	}
	if err := verify(b.Bundle(), c, "weir.test", now.Add(ServerLife-time.Minute)); err != nil {
		t.Error(err)
	}
	if c := rotate(t, b, start.Add(RootLife+time.Hour)); len(c.former) != 0 {
		t.Error("a root that has ended is trusted")
	}
}

func TestAuthorityThatSleptThroughItsEndIsNew(t *testing.T) {
	now := start.Add(2 * RootLife)
	a := rotate(t, made(t, start), now)
	if err := verify(a.Bundle(), server(t, a, now), "weir.test", now); err != nil {
		t.Error(err)
	}
}

func TestSecretRoundTrip(t *testing.T) {
	a := made(t, start)
	b := rotate(t, a, start.Add(RootRotation))
	c := rotate(t, b, start.Add(RootRotation+Overlap))
	for _, a := range []*Authority{a, b, c} {
		data, err := a.Secret()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bundle(), a.Bundle()) || !got.signer.same(&a.signer) || !got.Due().Equal(a.Due()) {
			t.Error("what was read differs")
		}
	}
	data, err := b.Secret()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(map[string][]byte){
		"tls.crt":  func(d map[string][]byte) { delete(d, "tls.crt") },
		"tls.key":  func(d map[string][]byte) { d["tls.key"] = d["next.key"] },
		"next.crt": func(d map[string][]byte) { d["next.crt"] = []byte("x") },
		"next.key": func(d map[string][]byte) { delete(d, "next.key") },
		"ca.crt":   func(d map[string][]byte) { d["ca.crt"] = d["tls.key"] },
	} {
		d := maps.Clone(data)
		change(d)
		if _, err := Parse(d); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Parse(nil); err == nil {
		t.Error("nothing is an authority")
	}
}

func TestServerRenewsAtTwoThirds(t *testing.T) {
	now := start
	s := &Server{Subject: Subject{DNSNames: []string{"weir.test"}}, Now: func() time.Time { return now }}
	if _, err := s.Certificate(); err == nil {
		t.Error("a certificate without an authority")
	}
	get := func() *tls.Certificate {
		t.Helper()
		c, err := s.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a := made(t, now)
	s.Use(a)
	first := get()
	now = start.Add(ServerLife*2/3 - time.Second)
	s.Use(rotate(t, a, now))
	if get() != first {
		t.Error("renewed too early")
	}
	now = now.Add(2 * time.Second)
	second := get()
	if second == first {
		t.Error("not renewed")
	}
	now = now.Add(-time.Hour)
	if get() != second {
		t.Error("renewed because the clock was put back by an hour, and the certificate is valid")
	}
	now = now.Add(-2 * time.Hour)
	if third := get(); third == second || now.Before(third.Leaf.NotBefore) {
		t.Error("the clock was put back, and the certificate begins in the future")
	}
	s.Now = time.Now // an interval would last as long as before if the clock was put forward
	s.current = nil
	if get(); strings.Contains(s.renewal.String(), "m=") {
		t.Errorf("the renewal is an interval: %s", s.renewal)
	}
	s.Now, s.current = func() time.Time { return now }, nil
	b := made(t, now)
	s.Use(b)
	if err := verify(b.Bundle(), get(), "weir.test", now); err != nil {
		t.Error("of the former authority: ", err)
	}
	now = start.Add(RootLife + 24*time.Hour)
	if _, err := s.Certificate(); err == nil {
		t.Error("signed by a root that has ended")
	}
}

func FuzzParse(f *testing.F) {
	a, err := New(start)
	if err != nil {
		f.Fatal(err)
	}
	data, err := a.Secret()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data["tls.crt"], data["tls.key"], data["ca.crt"])
	f.Add(data["tls.crt"], data["tls.key"], slices.Concat(data["ca.crt"], data["ca.crt"]))
	f.Fuzz(func(t *testing.T, cert, key, ca []byte) {
		a, err := Parse(map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca})
		if err != nil {
			return
		}
		data, err := a.Secret()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := Parse(data); err != nil || !bytes.Equal(a.Bundle(), b.Bundle()) {
			t.Fatalf("what was written is not read again: %v", err)
		}
	})
}

// Due is when Rotate has something to do.
func (a *Authority) Due() time.Time {
	due := issued(a.signer.cert).Add(RootRotation)
	if a.next != nil {
		due = a.next.signs
	}
	for _, f := range a.former {
		if f.until.Before(due) {
			due = f.until.Add(time.Second)
		}
	}
	return due
}

// TestReplicasAndWorkloadsAreNoneOfEachOther, and a replica's certificate is no server's.
func TestReplicasAndWorkloadsAreNoneOfEachOther(t *testing.T) {
	now := time.Now()
	a, err := New(now)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Replica: true, Now: func() time.Time { return now }}
	if _, err := s.Certificate(); err == nil {
		t.Error("a certificate without an authority")
	}
	s.Use(a)
	mine, err := s.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := s.Certificate(); again != mine {
		t.Error("it is made for each call")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Bundle())
	verify := func(c *x509.Certificate, usage x509.ExtKeyUsage) error {
		_, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	if !IsReplica(mine.Leaf) || verify(mine.Leaf, x509.ExtKeyUsageClientAuth) != nil || verify(mine.Leaf, x509.ExtKeyUsageServerAuth) == nil {
		t.Errorf("%v, a client %v, a server %v", mine.Leaf.URIs, verify(mine.Leaf, x509.ExtKeyUsageClientAuth), verify(mine.Leaf, x509.ExtKeyUsageServerAuth))
	}
	if !mine.Leaf.NotAfter.Equal(now.Add(ServerLife).UTC().Truncate(time.Second)) {
		t.Errorf("it is good until %s", mine.Leaf.NotAfter)
	}
	server, err := a.Server(Subject{DNSNames: []string{"a"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	if IsReplica(server.Leaf) || verify(server.Leaf, x509.ExtKeyUsageClientAuth) == nil {
		t.Error("a server's certificate is a replica's")
	}
	for id, ok := range map[string]bool{"spiffe://cluster.local/ns/a/sa/b": true, "weir://replica": false, "": false, "https://x": false} {
		der, err := a.Workload(Workload{ID: id, Life: time.Hour}, mine.Leaf.PublicKey, now)
		if (err == nil) != ok {
			t.Errorf("%q: %v", id, err)
		}
		if err != nil {
			continue
		}
		if c, err := x509.ParseCertificate(der[0]); err != nil || IsReplica(c) {
			t.Errorf("a workload is a replica: %v", err)
		}
	}
	if _, err := a.Replica(now.Add(2 * RootLife)); err == nil {
		t.Error("a certificate of a root that has ended")
	}
}
