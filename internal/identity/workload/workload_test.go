package workload

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/peertest"
)

var cart = Pod{Namespace: "shop", Name: "cart-1", UID: "u-1", Account: "cart", Owners: []claim.Owner{{Kind: "ReplicaSet", Name: "cart-9f"}, {Kind: "Deployment", Name: "cart"}}}

// world is an authority with an Issuer that takes the token "good".
type world struct {
	testing.TB
	mu        sync.Mutex
	authority *identity.Authority
	down      error // what Sign answers instead
	signed    int
	issuer    Issuer
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t}
	var err error
	if w.authority, err = identity.New(time.Now()); err != nil {
		t.Fatal(err)
	}
	w.issuer = Issuer{TrustDomain: "td", Authority: func() *identity.Authority {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.authority
	}, Attest: func(_ context.Context, token string) (*Pod, error) {
		if token != "good" {
			return nil, ErrRefused
		}
		pod := cart
		return &pod, nil
	}, Names: func(*Pod) ([]string, error) { return []string{"cart.shop.svc"}, nil }}
	return w
}

func (w *world) sign(ctx context.Context, request []byte) ([]byte, error) {
	w.mu.Lock()
	down := w.down
	w.signed++
	w.mu.Unlock()
	if down != nil {
		return nil, down
	}
	return w.ask(ctx, "good", request)
}

// ask has the Issuer answer a request of whoever has a token.
func (w *world) ask(ctx context.Context, token string, request []byte) ([]byte, error) {
	sign, err := w.issuer.For(ctx, token)
	if err != nil {
		return nil, err
	}
	return sign(request)
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.signed
}

func (w *world) set(down error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

func (w *world) rotate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	next, err := w.authority.Rotate(time.Now())
	if err != nil {
		w.Fatal(err)
	}
	w.authority = next
}

// run begins a Source, which ends with the test.
func (w *world) run(log *slog.Logger) *Source {
	s := &Source{Sign: w.sign, Logger: log}
	w.start(s)
	return s
}

// start has a Source run until the test ends.
func (w *world) start(s *Source) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
}

func TestACertificateSaysWhatWasAttested(t *testing.T) {
	w := newWorld(t)
	var signed []byte
	s := &Source{Sign: func(ctx context.Context, request []byte) ([]byte, error) {
		signed = request
		return w.sign(ctx, request)
	}}
	id, is, err := s.ask(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	leaf := id.Certificate.Leaf
	claims, err := claim.Of(leaf)
	want := claim.Claims{Pod: cart.Name, UID: cart.UID, Owners: cart.Owners}
	if id.ID.String() != "spiffe://td/ns/shop/sa/cart" || !slices.Equal(leaf.DNSNames, []string{"cart.shop.svc"}) || err != nil || !reflect.DeepEqual(claims, want) {
		t.Errorf("%s, names %v, claims %+v, %v", id.ID, leaf.DNSNames, claims, err)
	}
	if want := IssuedOf([]string{"cart.shop.svc"}, w.authority.Bundle()); is != want || want.Names == "" || want.Roots == "" {
		t.Errorf("the digests are %+v, and the authority says %+v", is, want)
	}
	if life := time.Until(leaf.NotAfter); life > Life || life < Life-time.Minute {
		t.Errorf("it is good for %s", life)
	}
	request, err := x509.ParseCertificateRequest(signed)
	if err != nil || len(request.Subject.Names)+len(request.URIs)+len(request.DNSNames)+len(request.Extensions) != 0 {
		t.Errorf("the request claims something: %+v, %v", request, err)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if peer, err := id.Verify([]*x509.Certificate{leaf}, usage); err != nil || peer != id.ID {
			t.Errorf("%s, %v", peer, err)
		}
	}
}

// TestOnlyTheKeyOfARequestCounts, whatever else it asks for.
func TestOnlyTheKeyOfARequestCounts(t *testing.T) {
	w := newWorld(t)
	key := peertest.Key(t)
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"pay.bank.svc"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	data, err := w.ask(t.Context(), "good", request)
	if err != nil {
		t.Fatal(err)
	}
	id, _, err := identityOf(data, key, time.Now())
	if err != nil || !slices.Equal(id.Certificate.Leaf.DNSNames, []string{"cart.shop.svc"}) {
		t.Errorf("%+v, %v", id, err)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	request := func(key crypto.Signer) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := request(peertest.Key(t))
	stolen := slices.Clone(good)
	stolen[len(stolen)-1] ^= 1 // the signature, by which the requester proves to have the key
	for name, r := range map[string][]byte{
		"nothing": nil, "no request": []byte("x"), "something behind it": append(slices.Clone(good), 0), "a key that it does not have": stolen,
		"P-384": request(other), "RSA": request(weak), "too long": slices.Concat(good, make([]byte, maxRequest)),
	} {
		if data, err := w.ask(t.Context(), "good", r); !errors.Is(err, ErrRefused) || data != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.ask(t.Context(), "bad", good); !errors.Is(err, ErrRefused) {
		t.Errorf("a token that is not good: %v", err)
	}
	w.issuer.Attest = func(context.Context, string) (*Pod, error) {
		return &Pod{Namespace: "shop", Name: "x", Account: "a/b"}, nil
	}
	if _, err := w.ask(t.Context(), "good", good); !errors.Is(err, ErrRefused) {
		t.Errorf("an account that is no part of an ID: %v", err)
	}
	w.authority = nil
	if _, err := w.ask(t.Context(), "good", good); !errors.Is(err, ErrNotReady) || errors.Is(err, ErrRefused) {
		t.Errorf("without an authority: %v", err)
	}
}

func TestAnswersThatAreNotUsed(t *testing.T) {
	w := newWorld(t)
	key := peertest.Key(t)
	request, err := newRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	data, err := w.ask(t.Context(), "good", request)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if _, _, err := identityOf(data, key, now); err != nil {
		t.Fatal(err)
	}
	foreign, err := identity.New(now)
	if err != nil {
		t.Fatal(err)
	}
	w.authority = foreign
	elsewhere, err := w.ask(t.Context(), "good", request)
	if err != nil {
		t.Fatal(err)
	}
	var mine, theirs answer
	if err := errors.Join(json.Unmarshal(data, &mine), json.Unmarshal(elsewhere, &theirs)); err != nil {
		t.Fatal(err)
	}
	text := func(a answer) []byte {
		data, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, c := range map[string]struct {
		data []byte
		key  *ecdsa.PrivateKey
		at   time.Time
		why  string
	}{
		"nothing":                     {nil, key, now, "JSON"},
		"no certificate":              {text(answer{Roots: mine.Roots}), key, now, "0 certificates"},
		"no root":                     {text(answer{Chain: mine.Chain}), key, now, "0 roots"},
		"many certificates":           {text(answer{Chain: slices.Repeat(mine.Chain, maxChain+1), Roots: mine.Roots}), key, now, "9 certificates"},
		"many roots":                  {text(answer{Chain: mine.Chain, Roots: slices.Repeat(mine.Roots, maxRoots+1)}), key, now, "65 roots"},
		"a root that is none":         {text(answer{Chain: mine.Chain, Roots: [][]byte{{1}}}), key, now, "a root"},
		"a chain that is none":        {text(answer{Chain: [][]byte{mine.Chain[0], {1}}, Roots: mine.Roots}), key, now, "intermediate"},
		"the root for a leaf":         {text(answer{Chain: mine.Roots, Roots: mine.Roots}), key, now, "X.509-SVID"},
		"roots that did not sign it":  {text(answer{Chain: mine.Chain, Roots: theirs.Roots}), key, now, "unknown authority"},
		"a certificate of other keys": {data, peertest.Key(t), now, "another key"},
		"one that has ended":          {data, key, now.Add(Life + time.Minute), "clocks"},
		"one that has not begun":      {data, key, now.Add(-3 * time.Hour), "clocks"},
		"too long":                    {append(slices.Clone(data), slices.Repeat([]byte(" "), maxAnswer)...), key, now, "longer"},
	} {
		if id, _, err := identityOf(c.data, c.key, c.at); err == nil || !strings.Contains(err.Error(), c.why) || id != nil {
			t.Errorf("%s: %v, want %s", name, err, c.why)
		}
	}
}

// TestRootsRotateWithoutAFailedHandshake goes through the lives of several roots with two pods, which renew at times of
// their own: each believes the other at any time, and what was renewed has another key.
func TestRootsRotateWithoutAFailedHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.run(nil), w.run(nil)
		synctest.Wait()
		roots, step, lives := map[string]bool{}, 3*time.Hour, 3
		if testing.Short() {
			step, lives = 13*time.Hour, 1
		}
		for end := time.Now().Add(time.Duration(lives) * identity.RootLife); time.Now().Before(end); time.Sleep(step) {
			w.rotate()
			synctest.Wait()
			for _, pair := range [][2]*Source{{a, b}, {b, a}} {
				client, server := pair[0].Identity(), pair[1].Identity()
				if client == nil || server == nil {
					t.Fatalf("%s: no identity", time.Now())
				}
				roots[string(server.Certificate.Leaf.AuthorityKeyId)] = true
				if _, err := client.Verify([]*x509.Certificate{server.Certificate.Leaf}, x509.ExtKeyUsageServerAuth); err != nil {
					t.Fatalf("%s: %v", time.Now(), err)
				}
				if left := time.Until(client.Certificate.Leaf.NotAfter); left < Life/3-time.Minute {
					t.Fatalf("%s: a certificate has %s left, and is not renewed", time.Now(), left)
				}
			}
		}
		if len(roots) < lives+1 {
			t.Errorf("%d roots have signed", len(roots))
		}
		before := a.Identity()
		a.Renew()
		synctest.Wait()
		after := a.Identity()
		key := func(id *spiffe.Identity) *ecdsa.PrivateKey { return id.Certificate.PrivateKey.(*ecdsa.PrivateKey) }
		if after == before || key(after).Equal(key(before)) {
			t.Error("asked to renew, the source has the same certificate or key")
		}
	})
}

// levels collects the levels of a log.
type levels struct {
	slog.Handler
	mu   sync.Mutex
	seen []slog.Level
}

func (l *levels) Enabled(context.Context, slog.Level) bool { return true }

func (l *levels) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.seen); n == 0 || l.seen[n-1] != r.Level {
		l.seen = append(l.seen, r.Level)
	}
	return nil
}

// TestAnIdentityOutlivesItsAuthority until its certificate ends; the log says so before, and it comes back at once.
func TestAnIdentityOutlivesItsAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(errors.New("nobody there"))
		log := &levels{}
		s := w.run(slog.New(log))
		time.Sleep(10 * time.Second)
		if s.Identity() != nil || !s.Ends().IsZero() {
			t.Fatal("an identity that nobody signed")
		}
		if n := w.count(); n < 6 || n > 20 {
			t.Errorf("asked %d times in 10 s", n)
		}
		w.set(nil)
		time.Sleep(retryWithout)
		first := s.Identity()
		if first == nil {
			t.Fatal("no identity 2 s after the authority came")
		}
		w.set(errors.New("nobody there"))
		asked := w.count()
		time.Sleep(time.Until(s.Ends()))
		if s.Identity() != first {
			t.Error("the identity went before it ended")
		}
		if n := w.count() - asked; n < 300 || n > 1300 {
			t.Errorf("asked %d times in the last 8 hours or so", n)
		}
		time.Sleep(time.Minute)
		if s.Identity() != nil {
			t.Error("an identity that has ended is presented")
		}
		w.set(nil)
		time.Sleep(retryWithout)
		if s.Identity() == nil {
			t.Error("no identity 2 s after the authority came back")
		}
		want := []slog.Level{slog.LevelWarn, slog.LevelInfo, slog.LevelWarn, slog.LevelError, slog.LevelInfo}
		log.mu.Lock()
		defer log.mu.Unlock()
		if !slices.Equal(log.seen, want) {
			t.Errorf("the log has %v, want %v", log.seen, want)
		}
	})
}

// Whatever a request holds, a key comes of it only if its requester has that.
func FuzzRequest(f *testing.F) {
	request, err := newRequest(peertest.Key(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(request)
	f.Add([]byte{0x30, 0x80})
	f.Fuzz(func(t *testing.T, data []byte) {
		key, err := keyOf(data)
		if (key == nil) != (err != nil) {
			t.Fatalf("%v, %v", key, err)
		}
	})
}

// Whatever an answer holds, an identity comes of it only if it is for the key, and sound.
func FuzzAnswer(f *testing.F) {
	w := newWorld(f)
	key := peertest.Key(f)
	request, err := newRequest(key)
	if err != nil {
		f.Fatal(err)
	}
	data, err := w.ask(f.Context(), "good", request)
	if err != nil {
		f.Fatal(err)
	}
	now := time.Now()
	f.Add(data)
	f.Add([]byte(`{"chain":["AA=="],"roots":["AA=="]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		id, _, err := identityOf(data, key, now)
		if (id == nil) != (err != nil) {
			t.Fatalf("%v, %v", id, err)
		}
		if id != nil && (!key.PublicKey.Equal(id.Certificate.Leaf.PublicKey) || id.ID.IsZero()) {
			t.Fatalf("an identity of another: %s", id.ID)
		}
	})
}
