// Package pki issues the certificates of a test cluster. They are valid for a day and protect nothing.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

const validity = 24 * time.Hour

// Authority is a certificate authority.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Pair is a certificate with its key, or a public key with its private one, in PEM.
type Pair struct{ Public, Private []byte }

// NewAuthority makes a root.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{certificate, key}, nil
}

// Certificate is the authority's own, in PEM.
func (a *Authority) Certificate() []byte { return encode("CERTIFICATE", a.certificate.Raw) }

// Issue a certificate for servers and clients. To Kubernetes the common name is the user, the organizations are the
// user's groups.
func (a *Authority) Issue(commonName string, organizations []string, names []string, addresses ...net.IP) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template, err := newTemplate(pkix.Name{CommonName: commonName, Organization: organizations})
	if err != nil {
		return Pair{}, err
	}
	template.DNSNames, template.IPAddresses = names, addresses
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, err
	}
	private, err := encodeKey(key)
	return Pair{encode("CERTIFICATE", der), private}, err
}

// NewKeys makes a pair of keys without a certificate, as service account tokens are signed with.
func NewKeys() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, err
	}
	private, err := encodeKey(key)
	return Pair{encode("PUBLIC KEY", public), private}, err
}

// Kubeconfig is one with a single context: the user that the pair is of, at the server that the authority vouches for.
func (a *Authority) Kubeconfig(server string, user Pair) ([]byte, error) {
	type object = map[string]any
	const name = "weir-test"
	return json.MarshalIndent(object{ // JSON is YAML
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters": []any{object{"name": name, "cluster": object{
			"server": server, "certificate-authority-data": a.Certificate(),
		}}},
		"users": []any{object{"name": name, "user": object{
			"client-certificate-data": user.Public, "client-key-data": user.Private,
		}}},
		"contexts":        []any{object{"name": name, "context": object{"cluster": name, "user": name}}},
		"current-context": name,
	}, "", "  ")
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
	}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return encode("EC PRIVATE KEY", der), err
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
