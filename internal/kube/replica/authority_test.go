package replica_test

import (
	"context"
	"crypto/x509"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/weirmesh/weir/internal/kube/replica"
)

// runAuthority runs one until the test ends.
func runAuthority(t *testing.T, c client.Client, host string) *replica.Authority {
	t.Helper()
	a := &replica.Authority{Client: c, Namespace: "weir-system", Hosts: []string{host}, Logger: discard}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := wait(t, ended, "the end"); err != nil {
			t.Error(err)
		}
	})
	wait(t, a.Ready(), "a certificate")
	return a
}

func TestReplicasShareOneAuthority(t *testing.T) {
	c := fake.NewFakeClient()
	one, other := runAuthority(t, c, "one.example"), runAuthority(t, c, "other.example")
	if one.Bundle() == "" || one.Bundle() != other.Bundle() {
		t.Error("two replicas have different authorities")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(one.Bundle()))
	cert, err := other.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "other.example"}); err != nil {
		t.Errorf("the certificate of one replica is not good to who trusts the other's authority: %v", err)
	}
}

func TestAuthorityThatCannotBeReadIsNotOverwritten(t *testing.T) {
	broken := &corev1.Secret{Data: map[string][]byte{"tls.crt": []byte("mine")}}
	broken.Namespace, broken.Name = "weir-system", replica.AuthorityName
	c := fake.NewClientBuilder().WithObjects(broken).Build()
	a := &replica.Authority{Client: c, Namespace: "weir-system", Hosts: []string{"one.example"}, Logger: discard}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	defer func() { cancel(); wait(t, ended, "the end") }()
	// It is made anew once it was deleted.
	if err := c.Get(ctx, client.ObjectKeyFromObject(broken), broken); err != nil || string(broken.Data["tls.crt"]) != "mine" {
		t.Errorf("%v, %q: want the Secret as it was", err, broken.Data["tls.crt"])
	}
	if err := c.Delete(ctx, broken); err != nil {
		t.Fatal(err)
	}
	wait(t, a.Ready(), "a new authority")
}
