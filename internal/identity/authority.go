package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"time"
)

const (
	// RootLife is how long a root certificate is good, RootRotation the age at which the next one is made.
	RootLife     = 365 * 24 * time.Hour
	RootRotation = RootLife * 2 / 3
	// Overlap is how long the next root is trusted before it signs, so that everyone who trusts the authority knows it.
	Overlap = 24 * time.Hour
	// ServerLife is how long a server certificate is good; at two thirds of it Server renews it.
	ServerLife = 24 * time.Hour

	// skew is by how much the clocks of two machines may differ.
	skew = 5 * time.Minute
)

// Keys of a Secret that holds an authority. The first two are those of the type kubernetes.io/tls.
const (
	signerCertificate = "tls.crt"
	signerKey         = "tls.key"
	nextCertificate   = "next.crt"
	nextKey           = "next.key"
	bundle            = "ca.crt"
)

// Authority signs certificates. It is immutable: Rotate returns another one.
type Authority struct {
	signer root
	next   *root               // trusted already, signs later
	former []*x509.Certificate // trusted still
}

// root is a self-signed certificate with its key.
type root struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority with its own root certificate.
func New(now time.Time) (*Authority, error) {
	r, err := newRoot(now)
	if err != nil {
		return nil, err
	}
	return &Authority{signer: *r}, nil
}

func newRoot(now time.Time) (*root, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "weir authority " + now.UTC().Format(time.DateOnly)},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(RootLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &root{cert: cert, key: key}, err
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

// Rotate returns the authority for that time: the same one if nothing is due. At two thirds of its root's life a next
// root is made. When that has been trusted for the overlap, it becomes the signer, and the former one is trusted until
// it expires. The caller must store the result before using it.
func (a *Authority) Rotate(now time.Time) (*Authority, error) {
	out := *a
	out.former = slices.DeleteFunc(slices.Clone(a.former), func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
	changed := len(out.former) != len(a.former)
	switch {
	case a.next != nil && !now.Before(issued(a.next.cert).Add(Overlap)):
		out.signer, out.next = *a.next, nil
		if !now.After(a.signer.cert.NotAfter) {
			out.former = append(out.former, a.signer.cert)
		}
		changed = true
	case a.next == nil && !now.Before(issued(a.signer.cert).Add(RootRotation)):
		next, err := newRoot(now)
		if err != nil {
			return nil, err
		}
		out.next, changed = next, true
		if now.After(a.signer.cert.NotAfter) { // too late for an overlap: the signer is no longer trusted
			out.signer, out.next = *next, nil
		}
	}
	if !changed {
		return a, nil
	}
	return &out, nil
}

// issued is when a root was made.
func issued(c *x509.Certificate) time.Time { return c.NotBefore.Add(skew) }

// Bundle is the certificates to trust, as PEM.
func (a *Authority) Bundle() []byte {
	var b bytes.Buffer
	write := func(c *x509.Certificate) { b.Write(encodePEM("CERTIFICATE", c.Raw)) }
	write(a.signer.cert)
	if a.next != nil {
		write(a.next.cert)
	}
	for _, c := range a.former {
		write(c)
	}
	return b.Bytes()
}

// Subject is the subject of a certificate.
type Subject struct {
	// DNSNames and IPs are the names and addresses under which it is reached; at least one is needed.
	DNSNames []string
	IPs      []net.IP
}

// Server signs a server certificate with a new key.
func (a *Authority) Server(s Subject, now time.Time) (*tls.Certificate, error) {
	if len(s.DNSNames)+len(s.IPs) == 0 {
		return nil, errors.New("identity: a server certificate needs a name")
	}
	return a.sign(&x509.Certificate{
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    s.DNSNames,
		IPAddresses: s.IPs,
	}, now)
}

// replica is the only URI of the certificates by which replicas know each other.
var replica = url.URL{Scheme: "weir", Host: "replica"}

// Replica signs a certificate with a new key by which a replica of the control plane is known to the others that it calls.
// It is no server's; and no workload's, whose IDs are SPIFFE IDs.
func (a *Authority) Replica(now time.Time) (*tls.Certificate, error) {
	return a.sign(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, URIs: []*url.URL{&replica}}, now)
}

// IsReplica reports whether a certificate, which the caller has verified, is one of Authority.Replica.
func IsReplica(c *x509.Certificate) bool { return len(c.URIs) == 1 && *c.URIs[0] == replica }

// sign makes a key and signs a certificate of it, for the life of a server's.
func (a *Authority) sign(template *x509.Certificate, now time.Time) (*tls.Certificate, error) {
	if now.After(a.signer.cert.NotAfter) {
		return nil, fmt.Errorf("identity: the root certificate ended at %s", a.signer.cert.NotAfter.Format(time.RFC3339))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = now.Add(-skew), now.Add(ServerLife)
	if template.NotAfter.After(a.signer.cert.NotAfter) {
		template.NotAfter = a.signer.cert.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.signer.cert, key.Public(), a.signer.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
