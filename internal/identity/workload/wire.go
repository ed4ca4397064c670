package workload

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirmesh/weir/internal/identity/spiffe"
)

// Bounds on what the other end may send.
const (
	maxRequest = 4 << 10   // bytes
	maxAnswer  = 256 << 10 // bytes
	maxChain   = 8         // certificates
	maxRoots   = 64        // certificates
)

// answer is what comes back for a request, as JSON. Fields that are unknown, from a newer issuer, are ignored.
type answer struct {
	// Chain is DER, the leaf first, without the root.
	Chain [][]byte `json:"chain"`
	// Roots are those of the trust domain, as DER.
	Roots [][]byte `json:"roots"`
}

// errClocks is wrapped by errors about a certificate that is not valid at the present time, although it was signed just now.
var errClocks = errors.New("the clocks of both ends disagree")

// newRequest is a PKCS #10 request (RFC 2986), which proves that whoever asks has the key.
func newRequest(key *ecdsa.PrivateKey) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

// keyOf returns the key of a request, ECDSA on P-256; nothing else in a request counts.
func keyOf(request []byte) (*ecdsa.PublicKey, error) {
	if len(request) > maxRequest {
		return nil, fmt.Errorf("a request of %d bytes is longer than %d", len(request), maxRequest)
	}
	r, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, err
	}
	if err := r.CheckSignature(); err != nil {
		return nil, err
	}
	key, ok := r.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("its key is not one of ECDSA on P-256")
	}
	return key, nil
}

// identityOf returns the identity that an answer gives the holder of a key. It fails unless the roots of the answer have
// signed its chain, and it is good now.
func identityOf(data []byte, key *ecdsa.PrivateKey, now time.Time) (*spiffe.Identity, Issued, error) {
	var none Issued
	if len(data) > maxAnswer {
		return nil, none, fmt.Errorf("an answer of %d bytes is longer than %d", len(data), maxAnswer)
	}
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, none, err
	}
	if len(a.Chain) == 0 || len(a.Chain) > maxChain || len(a.Roots) == 0 || len(a.Roots) > maxRoots {
		return nil, none, fmt.Errorf("an answer with %d certificates and %d roots: want 1 to %d, and 1 to %d", len(a.Chain), len(a.Roots), maxChain, maxRoots)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, der := range a.Roots {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, none, fmt.Errorf("a root: %w", err)
		}
		roots.AddCert(c)
	}
	for _, der := range a.Chain[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, none, fmt.Errorf("an intermediate certificate: %w", err)
		}
		between.AddCert(c)
	}
	id, err := spiffe.New(tls.Certificate{Certificate: a.Chain, PrivateKey: key}, roots)
	if err != nil {
		return nil, none, err
	}
	leaf := id.Certificate.Leaf
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return nil, none, errors.New("the certificate is for another key")
	}
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return nil, none, fmt.Errorf("%w: the certificate is valid from %s to %s, and here it is %s", errClocks, leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			return nil, none, fmt.Errorf("the certificate: %w", err)
		}
	}
	return id, issuedOf(leaf.DNSNames, a.Roots), nil
}
