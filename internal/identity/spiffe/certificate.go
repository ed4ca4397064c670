package spiffe

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// CertificateError is why a certificate cannot prove a SPIFFE ID, whoever signed it.
type CertificateError struct{ Err error }

func (e *CertificateError) Error() string {
	return "the certificate is no X.509-SVID: " + e.Err.Error()
}

func (e *CertificateError) Unwrap() error { return e.Err }

// DomainError is the refusal of a certificate because of its trust domain.
type DomainError struct {
	ID   ID
	Want string // the trust domain whose roots are known
}

func (e *DomainError) Error() string {
	return fmt.Sprintf("the certificate is for %s, and only those of the trust domain %q are accepted", e.ID, e.Want)
}

// Of returns the ID that a leaf certificate claims. It checks everything about the certificate except who signed it and
// when it is valid (X509-SVID §2, §3, §4.3): one URI among the alternative names, which is a SPIFFE ID; no authority;
// keys that sign neither certificates nor revocations. DNS names and addresses may stand beside the URI. Errors are
// *CertificateError.
func Of(leaf *x509.Certificate) (ID, error) {
	fail := func(err error) (ID, error) { return ID{}, &CertificateError{err} }
	switch {
	case len(leaf.URIs) != 1:
		return fail(fmt.Errorf("it has %d URIs among its alternative names instead of one", len(leaf.URIs)))
	case leaf.IsCA:
		return fail(errors.New("it is an authority's"))
	case leaf.KeyUsage&x509.KeyUsageCertSign != 0:
		return fail(errors.New("its key may sign certificates"))
	case leaf.KeyUsage&x509.KeyUsageCRLSign != 0:
		return fail(errors.New("its key may sign revocations"))
	case leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return fail(errors.New("its key may not sign handshakes"))
	}
	id, err := Parse(leaf.URIs[0].String())
	if err != nil {
		return fail(err)
	}
	return id, nil
}

// Identity is what a workload presents, and whom it believes, at one moment. It is immutable: a renewed certificate and
// changed roots are another Identity.
type Identity struct {
	// ID is the workload's own.
	ID ID
	// Certificate is the chain that proves it, with its key and the parsed leaf.
	Certificate *tls.Certificate
	// Roots are the authorities of ID's trust domain.
	Roots *x509.CertPool
}

// New makes an identity from a chain with its key, and the roots of its trust domain. It does not check that the roots
// have signed the chain: while authorities are replaced, each side may know other ones.
func New(chain tls.Certificate, roots *x509.CertPool) (*Identity, error) {
	switch {
	case len(chain.Certificate) == 0 || chain.PrivateKey == nil:
		return nil, errors.New("an identity needs a certificate and its key")
	case roots == nil:
		return nil, errors.New("an identity needs the roots of its trust domain")
	}
	if chain.Leaf == nil {
		leaf, err := x509.ParseCertificate(chain.Certificate[0])
		if err != nil {
			return nil, err
		}
		chain.Leaf = leaf
	}
	id, err := Of(chain.Leaf)
	if err != nil {
		return nil, err
	}
	return &Identity{id, &chain, roots}, nil
}

// Verify judges the certificates that a peer presented, leaf first, at the present time. usage is the peer's role:
// x509.ExtKeyUsageServerAuth or x509.ExtKeyUsageClientAuth. The peer must be of the identity's own trust domain. Errors
// are *CertificateError, *DomainError, or of x509. The handshake has proved that the peer has the leaf's key.
func (i *Identity) Verify(chain []*x509.Certificate, usage x509.ExtKeyUsage) (ID, error) {
	if len(chain) == 0 {
		return ID{}, &CertificateError{errors.New("none was presented")}
	}
	id, err := Of(chain[0])
	if err != nil {
		return ID{}, err
	}
	if want := i.ID.TrustDomain(); id.TrustDomain() != want {
		return ID{}, &DomainError{id, want}
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	options := x509.VerifyOptions{Roots: i.Roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}}
	if _, err := chain[0].Verify(options); err != nil {
		return ID{}, fmt.Errorf("the certificate for %s: %w", id, err)
	}
	return id, nil
}
