package tls_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newECDSA(t testing.TB) crypto.Signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newRSA(t testing.TB) crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key := newECDSA(t)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

// issue makes a certificate for name, which lives for a time from now; less than zero: it is over.
func (a *authority) issue(t testing.TB, key crypto.Signer, life time.Duration) (chain, private string) {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		CRLDistributionPoints: []string{"http://crl.example/list"},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return encode("CERTIFICATE", der) + encode("CERTIFICATE", a.cert.Raw), encode("PRIVATE KEY", keyDER)
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// secret is a certificate as a Secret.
func (a *authority) secret(t testing.TB, secret string, key crypto.Signer, life time.Duration) string {
	chain, private := a.issue(t, key, life)
	return secretOf(secret, chain, private)
}

func secretOf(secret, chain, private string) string {
	indent := func(s string) string { return "    " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ") }
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n%s\n  tls.key: |\n%s\n",
		secret, indent(chain), indent(private))
}

// gateway is a Gateway with one HTTPS listener that sends everything to a site.
func gateway(port int, site *url.URL, secrets ...string) string {
	var refs strings.Builder
	for _, s := range secrets {
		fmt.Fprintf(&refs, "      - name: %s\n", s)
	}
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: edge
spec:
  gatewayClassName: weir
  listeners:
  - name: https
    port: %d
    protocol: HTTPS
    tls:
      certificateRefs:
%s---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: shop
spec:
  parentRefs:
  - name: edge
  rules:
  - backendRefs:
    - name: shop
      port: 80
---
apiVersion: v1
kind: Service
metadata:
  name: shop
spec:
  type: ExternalName
  externalName: %s
  ports:
  - port: 80
    targetPort: %s
`, port, refs.String(), site.Hostname(), site.Port())
}

// startSite is a backend.
func startSite(t testing.TB, h http.HandlerFunc) *url.URL {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	// In one step, as a reader may come at any time.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
