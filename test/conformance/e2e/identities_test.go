package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

// presented is the certificate of the sidecar at an address, to a client that has none.
func presented(ctx context.Context, address string) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// clients is how many "caller steady" has.
const clients = 6

// loaded has a workload send requests of every protocol to another one for some seconds, over short and long connections, and
// returns what waits for their end. Each must be answered.
func (w *world) loaded(from, to string, seconds int) (ended func()) {
	said := make(chan string, 1)
	go func() {
		text, err := install.Kubectl(w.Context(), "", "--namespace", w.namespace, "exec", "deployment/"+from, "--container=caller", "--", "/caller", "steady", to, strconv.Itoa(seconds))
		if err != nil {
			text += "\nerror " + err.Error()
		}
		said <- text
	}()
	return func() {
		w.Helper()
		good := 0
		for line := range strings.Lines(<-said) {
			line = strings.TrimSpace(line)
			var n int
			if _, err := fmt.Sscanf(line, "answered %d ", &n); err != nil || n < 5*seconds { // of 50 or so a second
				w.Errorf("in %d seconds: %s", seconds, line)
				continue
			}
			w.Log(line)
			good++
		}
		if good != clients {
			w.Errorf("%d of %d clients had all their requests answered", good, clients)
		}
	}
}

// newNamed is a world of two workloads whose certificates have a name. Another name has all of them renewed within 20 s, or a
// minute after the last time.
func newNamed(t *testing.T, namespace string) *world {
	w := newWorldNamed(t, namespace)
	w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	w.apply(`
apiVersion: tls.smi-spec.io/v1beta1
kind: TLSConfig
metadata: {name: all}
spec: {subjectNames: [pay], selector: {matchLabels: {}}}
`)
	w.callers("web", "pay")
	w.eventually(func() error {
		if got := w.call("web", "steady", "pay", "1"); strings.Count(got, "answered") != clients {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	return w
}

// renewed gives both workloads another name, and waits until both have other certificates, which are good.
func (w *world) renewed(name string, good func(*x509.Certificate) error) {
	w.Helper()
	w.kubectl("", "patch", "tlsconfig", "all", "--type=merge", `--patch={"spec":{"subjectNames":["`+name+`"]}}`)
	began := time.Now()
	for _, workload := range []string{"web", "pay"} {
		address := w.kubectl("", "get", "pods", "--selector=app="+workload, "--output=jsonpath={.items[0].status.podIP}") + ":8080"
		w.eventually(func() error {
			c, err := presented(w.Context(), address)
			if err == nil && strings.Join(c.DNSNames, " ") != name {
				err = fmt.Errorf("it has the names %q, want %q", c.DNSNames, name)
			}
			if err == nil {
				err = good(c)
			}
			if err != nil {
				return fmt.Errorf("the certificate of %s: %w", workload, err)
			}
			return nil
		})
	}
	w.Logf("renewed for the name %s after %v", name, time.Since(began).Round(time.Second))
}

// TestIdentitiesAreRenewedUnderLoadInPods renews the certificates and keys of all pods while they call each other.
func TestIdentitiesAreRenewedUnderLoadInPods(t *testing.T) {
	if testing.Short() {
		t.Skip("renewals are shown by internal/identity/workload")
	}
	w := newNamed(t, "e2e-identities")
	const seconds = 30
	began := time.Now()
	ended := w.loaded("web", "pay", seconds)
	w.renewed("web", func(*x509.Certificate) error { return nil })
	if took := time.Since(began); took > (seconds-3)*time.Second {
		t.Logf("the load was over when all were renewed, after %v: once more", took)
		ended()
		ended = w.loaded("web", "pay", 100)
		w.renewed("pay", func(*x509.Certificate) error { return nil })
	}
	ended()
}

// newRoot is a root certificate, as the controller makes one, and its key.
func newRoot(t *testing.T) (root, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "another root"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs})
}

// TestRootsChangeUnderLoadInPods goes through the change of a root, as the controller does it in days, while pods call each
// other: the next root is trusted, then it signs, then the former one is trusted no more. After each step all pods renew.
func TestRootsChangeUnderLoadInPods(t *testing.T) {
	if testing.Short() {
		t.Skip("takes five minutes: replicas read the authority every minute, and pods renew once a minute at most")
	}
	w := newNamed(t, "e2e-roots")
	authority := func() (data map[string][]byte) {
		var secret struct{ Data map[string][]byte }
		text := w.kubectl("", "--namespace", install.Namespace, "get", "secret", "weir-identity", "--output=json")
		if err := json.Unmarshal([]byte(text), &secret); err != nil {
			t.Fatal(err)
		}
		return secret.Data
	}
	put := func(data map[string]any) {
		patch, err := json.Marshal(map[string]any{"data": data})
		if err != nil {
			t.Fatal(err)
		}
		w.kubectl("", "--namespace", install.Namespace, "patch", "secret", "weir-identity", "--type=merge", "--patch="+string(patch))
		time.Sleep(65 * time.Second) // until all replicas have read it
	}
	times := func(signs time.Time) []byte { return fmt.Appendf(nil, `{"signs":%q}`, signs.Format(time.RFC3339)) }
	root, key := newRoot(t)
	first, err := presented(w.Context(), w.kubectl("", "get", "pods", "--selector=app=pay", "--output=jsonpath={.items[0].status.podIP}")+":8080")
	if err != nil {
		t.Fatal(err)
	}
	of := func(same bool) func(*x509.Certificate) error {
		return func(c *x509.Certificate) error {
			if bytes.Equal(c.AuthorityKeyId, first.AuthorityKeyId) != same {
				return fmt.Errorf("it is of the root %s, want the first one: %t", hex.EncodeToString(c.AuthorityKeyId), same)
			}
			return nil
		}
	}
	ended := w.loaded("web", "pay", 290)
	began := time.Now()
	put(map[string]any{
		"next.crt": root, "next.key": key, "ca.crt": append(authority()["ca.crt"], root...), "times": times(time.Now().Add(time.Hour)),
	})
	w.renewed("web", of(true))
	put(map[string]any{"times": times(time.Now())})
	w.renewed("pay", of(false))
	if now := authority(); !bytes.Equal(now["tls.crt"], root) || len(now["next.crt"]) > 0 {
		t.Error("the next root has not become the one that signs")
	}
	put(map[string]any{"ca.crt": root, "times": nil})
	w.renewed("web", of(false))
	if took := time.Since(began); took > 285*time.Second {
		t.Errorf("the load was over when all was done, after %v", took)
	}
	ended()
}
