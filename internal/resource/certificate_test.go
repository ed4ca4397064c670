package resource

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const day = 24 * time.Hour

// newPair makes a certificate with its key.
func newPair(t testing.TB, from, until time.Time) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"shop.example"}, NotBefore: from, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// secretOf is the manifest of a Secret of type kubernetes.io/tls.
func secretOf(t testing.TB, chain, key string) string {
	return manifestOf(t, &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: "cert"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: []byte(chain), corev1.TLSPrivateKeyKey: []byte(key)},
	})
}

// bundleOf is the manifest of a ConfigMap with authorities.
func bundleOf(t testing.TB, text string) string {
	return manifestOf(t, &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "ca"},
		Data: map[string]string{bundleKey: text},
	})
}

func manifestOf(t testing.TB, object any) string {
	t.Helper()
	text, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rereading returns a function that reads a folder once more after its only file has changed, at a time.
func rereading(t *testing.T) (read func(content string, at time.Time) *Set) {
	dir := t.TempDir()
	r := newReader(everything, []string{dir})
	return func(content string, at time.Time) *Set {
		t.Helper()
		r.now = func() time.Time { return at }
		replace(t, dir, "a.yaml", content)
		l, err := r.open(nil)
		if err != nil {
			t.Fatal(err)
		}
		r.read(l)
		return r.set(l)
	}
}

// told is the codes, fields and messages of a set's findings.
func told(set *Set) string {
	var b strings.Builder
	for _, f := range set.Findings {
		b.WriteString(f.Code + " " + f.Ref.Kind + "/" + f.Ref.Name + " " + f.Ref.Field + ": " + f.Message + "\n")
	}
	return b.String()
}

func TestBrokenCertificateKeepsTheLastGoodOne(t *testing.T) {
	now := time.Now()
	chain, key := newPair(t, now.Add(-day), now.Add(365*day))
	other, otherKey := newPair(t, now.Add(-day), now.Add(365*day))
	good := secretOf(t, chain, key)
	for name, c := range map[string]struct{ text, field, reason string }{
		"no PEM":                {secretOf(t, "garbage", key), "data[tls.crt]", "no certificate in PEM form"},
		"empty":                 {secretOf(t, "", ""), "data[tls.crt]", "is empty"},
		"certificate cut short": {secretOf(t, other[:len(other)/2], otherKey), "data[tls.crt]", "block 1 is cut short"},
		"chain cut short":       {secretOf(t, other+chain[:len(chain)/2], otherKey), "data[tls.crt]", "block 2 is cut short"},
		"bytes overwritten": {secretOf(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("0123456789")})), otherKey),
			"data[tls.crt]", "block 1: malformed certificate"},
		"key in the chain": {secretOf(t, otherKey, otherKey), "data[tls.crt]", "not a certificate"},
		"key of another":   {secretOf(t, other, key), "data[tls.key]", "does not match"},
		"key cut short":    {secretOf(t, other, otherKey[:len(otherKey)/2]), "data[tls.key]", "PEM"},
		"no key":           {secretOf(t, other, ""), "data[tls.key]", "is empty"},
		"in plain": {"apiVersion: v1\nkind: Secret\nmetadata: {name: cert}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: garbage\n  tls.key: garbage\n",
			"stringData[tls.crt]", "no certificate in PEM form"},
	} {
		t.Run(name, func(t *testing.T) {
			read := rereading(t)
			// Without an earlier version, the objects that refer to it decide.
			first := read(c.text, now)
			if len(first.Secrets) != 1 || found(first) != CodeCertificate {
				t.Fatalf("at first: %d Secrets, %s", len(first.Secrets), told(first))
			}
			if set := read(good, now); found(set) != "" || string(set.Secrets[0].Data["tls.crt"]) != chain {
				t.Fatalf("the good one: %s", told(set))
			}
			for range 2 {
				set := read(c.text, now)
				if string(set.Secrets[0].Data["tls.crt"]) != chain || string(set.Secrets[0].Data["tls.key"]) != key {
					t.Error("the last good one is not kept")
				}
				if f := set.Findings; len(f) != 2 || f[0].Code != CodeLastGood || f[1].Code != CodeCertificate ||
					f[1].Ref.Field != c.field || !strings.Contains(f[1].Message, c.reason) || f[1].Fix == "" || f[1].Origin.Line < 2 {
					t.Errorf("findings:\n%s", told(set))
				}
				for _, f := range set.Findings {
					if strings.Contains(f.String(), "garbage") || strings.Contains(f.String(), "MHcC") || strings.Contains(f.String(), otherKey[40:60]) {
						t.Errorf("tells what is in the Secret: %s", f)
					}
				}
			}
			if set := read(secretOf(t, other, otherKey), now); found(set) != "" || string(set.Secrets[0].Data["tls.crt"]) != other {
				t.Errorf("the next good one is not taken:\n%s", told(set))
			}
		})
	}
}

func TestBrokenAuthoritiesKeepTheLastGoodOnes(t *testing.T) {
	now := time.Now()
	one, _ := newPair(t, now.Add(-day), now.Add(365*day))
	two, key := newPair(t, now.Add(-day), now.Add(365*day))
	for name, broken := range map[string]string{"no PEM": "garbage", "empty": "", "cut short": one + two[:len(two)/2], "key": key} {
		t.Run(name, func(t *testing.T) {
			read := rereading(t)
			read(bundleOf(t, one), now)
			set := read(bundleOf(t, broken), now)
			if set.ConfigMaps[0].Data[bundleKey] != one || found(set) != CodeLastGood+" "+CodeCertificate {
				t.Errorf("the last good ones are not kept:\n%s", told(set))
			}
			if set := read(bundleOf(t, one+two), now); set.ConfigMaps[0].Data[bundleKey] != one+two || found(set) != "" {
				t.Errorf("the next good ones are not taken:\n%s", told(set))
			}
		})
	}
}

func TestExpiredCertificateDoesNotReplaceAValidOne(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	valid, validKey := newPair(t, now.Add(-day), now.Add(99*day))
	expired, expiredKey := newPair(t, now.Add(-9*day), now.Add(-day))
	future, futureKey := newPair(t, now.Add(day), now.Add(400*day))
	read := rereading(t)
	serves := func(set *Set, what, chain, codes, expiry string) {
		t.Helper()
		if string(set.Secrets[0].Data["tls.crt"]) != chain {
			t.Errorf("%s: another certificate is served", what)
		}
		if found(set) != codes {
			t.Errorf("%s: want %q, got\n%s", what, codes, told(set))
		}
		if f := set.Expiries[Key{Kind: "Secret", Namespace: "default", Name: "cert"}]; f.Code != expiry {
			t.Errorf("%s: of the dates %q is told, want %s", what, f.String(), expiry)
		}
	}
	kept := CodeLastGood + " " + CodeCertificate
	serves(read(secretOf(t, expired, expiredKey), now), "nothing before", expired, "", CodeCertificateDates)
	serves(read(secretOf(t, valid, validKey), now), "valid", valid, "", "")
	serves(read(secretOf(t, expired, expiredKey), now), "expired", valid, kept, "")
	serves(read(secretOf(t, future, futureKey), now), "not valid yet", valid, kept, "")
	serves(read(secretOf(t, future, futureKey), now.Add(day)), "valid by now", future, "", "")
	serves(read(secretOf(t, expired, expiredKey), now.Add(500*day)), "both expired", expired, "", CodeCertificateDates)
}

func TestChainExpiresWithItsFirstCertificate(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	leaf, key := newPair(t, now.Add(-day), now.Add(300*day))
	above, _ := newPair(t, now.Add(-day), now.Add(100*day))
	text := secretOf(t, leaf+above, key)
	read := rereading(t)
	for after, want := range map[time.Duration]string{0: "", 71 * day: CodeCertificateSoon, 94 * day: CodeCertificateUrgent, 101 * day: CodeCertificateUrgent, 301 * day: CodeCertificateDates} {
		set := read(text, now.Add(after))
		if f := set.Expiries[Key{Kind: "Secret", Namespace: "default", Name: "cert"}]; f.Code != want {
			t.Errorf("after %v: %q, want %s", after, f.String(), want)
		}
	}
}

// TestDirTellsOfCertificatesAsTimePasses changes no file.
func TestDirTellsOfCertificatesAsTimePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		start := time.Now()
		chain, key := newPair(t, start, start.Add(60*day))
		write(t, dir, "a.yaml", secretOf(t, chain, key))
		authority, _ := newPair(t, start, start.Add(9*day)) // told of after 6, 8.1 and 9 days
		write(t, dir, "b.yaml", bundleOf(t, authority))
		d := NewDir(everything, []string{dir}, nil)
		d.blind = true // the kernel does not live in the bubble
		d.timing.blind = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		sets := make(chan *Set, 100)
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx, func(s *Set) { sets <- s }) }()
		secret, bundle := Key{Kind: "Secret", Namespace: "default", Name: "cert"}, Key{Kind: "ConfigMap", Namespace: "default", Name: "ca"}
		for _, want := range []struct {
			after          time.Duration
			secret, bundle string
		}{
			{0, "", ""},
			{6 * day, "", CodeCertificateSoon},
			{9*day - 9*day/10, "", CodeCertificateUrgent},
			{9 * day, "", CodeCertificateDates},
			{40 * day, CodeCertificateSoon, CodeCertificateDates},
			{54 * day, CodeCertificateUrgent, CodeCertificateDates},
			{60 * day, CodeCertificateDates, CodeCertificateDates},
		} {
			set := <-sets
			if late := time.Since(start) - want.after; late < 0 || late > d.timing.blind {
				t.Errorf("told after %v, want after %v", time.Since(start), want.after)
			}
			if got := set.Expiries[secret].Code; got != want.secret {
				t.Errorf("after %v the Secret has %q, want %q", want.after, got, want.secret)
			}
			if got := set.Expiries[bundle].Code; got != want.bundle {
				t.Errorf("after %v the ConfigMap has %q, want %q", want.after, got, want.bundle)
			}
		}
		time.Sleep(10 * day)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(sets) != 0 {
			t.Errorf("%d more sets although nothing has changed", len(sets))
		}
	})
}

func TestClockThatIsSetBackIsNoticed(t *testing.T) {
	now := time.Now()
	chain, key := newPair(t, now, now.Add(99*day))
	dir := t.TempDir()
	write(t, dir, "a.yaml", secretOf(t, chain, key))
	r := newReader(everything, []string{dir})
	r.now = func() time.Time { return now.Add(200 * day) }
	l, err := r.open(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.read(l)
	if set := r.set(l); len(set.Expiries) != 1 || r.due() {
		t.Errorf("%d findings, due again: %t", len(set.Expiries), r.due())
	}
	r.now = func() time.Time { return now }
	if !r.due() {
		t.Error("the clock was set back, but nothing is due")
	}
	if set := r.set(l); len(set.Expiries) != 0 || r.due() {
		t.Errorf("%d findings, due again: %t", len(set.Expiries), r.due())
	}
}

// FuzzCertificates checks that TLS accepts every pair that is not judged broken, and that every such bundle yields
// authorities.
func FuzzCertificates(f *testing.F) {
	chain, key := newPair(f, time.Now(), time.Now().Add(day))
	f.Add([]byte(chain), []byte(key))
	f.Add([]byte(chain+chain), []byte(key[:99]))
	f.Add([]byte(chain[:99]), []byte(key))
	f.Fuzz(func(t *testing.T, chain, key []byte) {
		c, why := certifyKey(chain, key, func(key string) string { return key })
		if c.broken != (why != nil) {
			t.Fatalf("broken: %t, because of %v", c.broken, why)
		}
		if _, err := tls.X509KeyPair(chain, key); err != nil && !c.broken {
			t.Errorf("taken, but: %v", err)
		}
		if c, _ := certifyBundle(chain, ""); !c.broken && !x509.NewCertPool().AppendCertsFromPEM(chain) {
			t.Error("a bundle without authorities is taken")
		}
	})
}
