package kube

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/identity/workload"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/replica"
)

// ownSecret is a Secret of the controller's namespace; nil if there is none.
func ownSecret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: own, Name: name}, s); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	} else if err != nil {
		return nil
	}
	return s
}

// asCertManagerWritesIt is a Secret with an authority between the user's root and the pods, its key as SEC 1.
func asCertManagerWritesIt(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	of := func(name string, serial int64) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
			KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true}
	}
	root, rootKey, between, betweenKey := of("root of ours", 1), key(), of("between", 2), key()
	sign := func(of, by *x509.Certificate, public, signer *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, of, by, public.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	sec1, err := x509.MarshalECPrivateKey(betweenKey)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: named(own, name), Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		"tls.crt": sign(between, root, betweenKey, rootKey), "tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}), "ca.crt": sign(root, root, rootKey, rootKey),
	}}
}

// TestPodsGetTheirIdentities has a controller sign for pods of a real API server: with an authority of its own, then with the
// user's. An identity of before and one of after know each other all the time.
func TestPodsGetTheirIdentities(t *testing.T) {
	at := port(t)
	const given = "mesh-authority"
	for _, name := range []string{replica.IdentityName, given} {
		if s := ownSecret(t, name); s != nil {
			t.Fatalf("there is a Secret %s already", name)
		}
		t.Cleanup(func() { _ = admin.Delete(context.Background(), &corev1.Secret{ObjectMeta: named(own, name)}) })
	}
	if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	p := startController(t, "mesh-1", "--feed-address="+at, "--mesh")
	ns := namespace(t)
	account := &corev1.ServiceAccount{ObjectMeta: named(ns, "cart")}
	create(t, account)
	pod := &corev1.Pod{ObjectMeta: named(ns, "cart-1"), Spec: corev1.PodSpec{ServiceAccountName: "cart", Containers: []corev1.Container{{Name: "c", Image: "weir:dev"}}}}
	create(t, pod)
	token := func(bound bool, audience string) []byte {
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
		if bound {
			r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
		}
		if err := admin.SubResource("token").Create(t.Context(), account, r); err != nil {
			t.Fatal(err)
		}
		return []byte(r.Status.Token)
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	err := within(t.Context(), func() error {
		s := ownSecret(t, replica.AuthorityName)
		if s == nil || ownSecret(t, replica.IdentityName) == nil {
			return errors.New("there are no authorities yet")
		}
		write("ca.crt", s.Data["ca.crt"])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &feed.Client{Address: at, ServerName: "weir-controller." + own + ".svc", CAFile: filepath.Join(dir, "ca.crt"), TokenFile: write("token", token(true, infra.Audience)), Logger: slog.New(slog.DiscardHandler)}
	signed := func() *spiffe.Identity {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		got := make(chan *spiffe.Identity, 1)
		s := &workload.Source{Sign: c.Sign, Changed: func(id *spiffe.Identity) {
			select {
			case got <- id:
			default:
			}
		}}
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx) }()
		defer func() { stop(); <-done }()
		select {
		case id := <-got:
			return id
		case <-ctx.Done():
			_, err := c.Sign(t.Context(), nil)
			t.Fatalf("no identity: %v", err)
			return nil
		}
	}
	first := signed()
	if want := "spiffe://cluster.local/ns/" + ns + "/sa/cart"; first.ID.String() != want {
		t.Errorf("the identity is %s, want %s", first.ID, want)
	}
	if claims, err := claim.Of(first.Certificate.Leaf); err != nil || claims.Pod != "cart-1" {
		t.Errorf("it claims %+v, %v", claims, err)
	}
	if s := ownSecret(t, replica.IdentityName); bytes.Equal(s.Data["ca.crt"], ownSecret(t, replica.AuthorityName).Data["ca.crt"]) {
		t.Error("the authority of the controller's own certificates signs for pods")
	}
	for name, data := range map[string][]byte{"of no pod": token(false, infra.Audience), "for somebody else": token(true, "vault"), "none": []byte("x")} {
		other := &feed.Client{Address: c.Address, ServerName: c.ServerName, CAFile: c.CAFile, TokenFile: write("other", data)}
		if _, err := other.Sign(t.Context(), []byte("x")); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a token %s: %v", name, err)
		}
	}
	p.counts(`result="signed"} 1`, `result="refused"} 3`, `result="failed"} 0`)
	p.stop()
	// The user's authority comes: it is trusted first, and signs later.
	create(t, asCertManagerWritesIt(t, given))
	p = startController(t, "mesh-2", "--feed-address="+at, "--mesh", "--mesh-authority-secret="+given)
	verify := func(who, by *spiffe.Identity) error {
		chain := []*x509.Certificate{}
		for _, der := range who.Certificate.Certificate {
			x, err := x509.ParseCertificate(der)
			if err != nil {
				return err
			}
			chain = append(chain, x)
		}
		_, err := by.Verify(chain, x509.ExtKeyUsageClientAuth)
		return err
	}
	err = within(t.Context(), func() error {
		s := ownSecret(t, replica.IdentityName)
		if n := bytes.Count(s.Data["ca.crt"], []byte("BEGIN CERTIFICATE")); n != 2 {
			return fmt.Errorf("%d roots are trusted", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	second := signed()
	for name, err := range map[string]error{"the new one by the old": verify(second, first), "the old one by the new": verify(first, second)} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A pod that is gone gets none.
	if err := admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sign(t.Context(), []byte("x")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a pod that is gone: %v", err)
	}
	p.counts(`result="signed"} 1`, `result="refused"} 1`, `result="failed"} 0`)
}

// counts checks the replica's metrics of identities.
func (p *controllerProcess) counts(want ...string) {
	p.t.Helper()
	answer, err := http.Get("http://" + p.admin + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, w := range want {
		if w = "weir_controller_identities_total{" + w; !bytes.Contains(text, []byte(w+"\n")) {
			p.t.Errorf("the metrics lack %s", w)
		}
	}
	if !bytes.Contains(text, []byte("\nweir_controller_identity_authority_expiry_timestamp_seconds ")) {
		p.t.Error("the metrics do not say when the authority ends")
	}
}
