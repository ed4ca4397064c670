package identity

import (
	"bytes"
	"crypto"
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
	// Linger is how long a root is trusted after it has signed for the last time: twice the life of the certificates that it
	// may have signed.
	Linger = 48 * time.Hour
	// ServerLife is how long a server certificate is good; at two thirds of it Server renews it.
	ServerLife = 24 * time.Hour

	// skew is by how much the clocks of two machines may differ: an hour, as where one was set to another time zone, and more.
	// Certificates are valid for as long before they are signed.
	skew = 2 * time.Hour
)

// Keys of a Secret that holds an authority. The first two are those of the type kubernetes.io/tls.
const (
	signerCertificate = "tls.crt"
	signerKey         = "tls.key"
	nextCertificate   = "next.crt"
	nextKey           = "next.key"
	bundle            = "ca.crt"
)

// Authority signs certificates. It is immutable: Rotate and Follow return another one.
type Authority struct {
	signer root
	next   *next
	former []former
}

// root is what signs: a self-signed certificate with its key, or one that was given.
type root struct {
	cert *x509.Certificate
	key  crypto.Signer
	// Those of an authority that was given: between are the certificates that lead from cert to trusted. Else they are empty,
	// and cert itself is trusted.
	between, trusted []*x509.Certificate
}

// given reports whether somebody else made it, and replaces it.
func (r *root) given() bool { return len(r.trusted) > 0 }

// roots are the certificates to trust.
func (r *root) roots() []*x509.Certificate {
	if r.given() {
		return r.trusted
	}
	return []*x509.Certificate{r.cert}
}

// ends is when the first of the certificates ends by which its signatures are good.
func (r *root) ends() time.Time {
	end := r.cert.NotAfter
	for _, c := range r.between {
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	var last time.Time
	for _, c := range r.roots() {
		if c.NotAfter.After(last) {
			last = c.NotAfter
		}
	}
	if last.Before(end) {
		return last
	}
	return end
}

// path is what is presented behind a certificate that it has signed: up to a root, which the peer has.
func (r *root) path() (out [][]byte) {
	for _, c := range append([]*x509.Certificate{r.cert}, r.between...) {
		if has(r.roots(), c) {
			break
		}
		out = append(out, c.Raw)
	}
	return out
}

// same reports whether both sign alike and are trusted alike.
func (r *root) same(o *root) bool {
	return r.given() == o.given() && r.cert.Equal(o.cert) && slices.EqualFunc(r.between, o.between, (*x509.Certificate).Equal) &&
		slices.EqualFunc(r.trusted, o.trusted, (*x509.Certificate).Equal)
}

// next is trusted already, and signs later.
type next struct {
	root
	signs time.Time
}

// former signs no more, and is trusted until then.
type former struct {
	cert  *x509.Certificate
	until time.Time
}

func has(all []*x509.Certificate, c *x509.Certificate) bool { return slices.ContainsFunc(all, c.Equal) }

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

// Rotate returns the authority for that time: the same one if nothing is due. At two thirds of the life of a root that
// it made itself, it makes the next one. When that has been trusted for the overlap, it becomes the signer, and the former
// one is trusted for Linger. The caller must store the result before using it.
func (a *Authority) Rotate(now time.Time) (*Authority, error) {
	out := *a
	out.former = slices.DeleteFunc(slices.Clone(a.former), func(f former) bool { return now.After(f.until) })
	changed := len(out.former) != len(a.former)
	switch {
	case a.next != nil && (!now.Before(a.next.signs) || now.After(a.signer.ends())):
		out.sign(a.next.root, now)
		changed = true
	case a.next == nil && !a.signer.given() && !now.Before(issued(a.signer.cert).Add(RootRotation)):
		own, err := newRoot(now)
		if err != nil {
			return nil, err
		}
		out.prepare(*own, now)
		changed = true
	}
	if !changed {
		return a, nil
	}
	return &out, nil
}

// prepare has r trusted now and sign later: when everybody who has a certificate has had it renewed, and knows r by that. A
// signer that ends before the overlap is over leaves less time; one that has ended leaves none.
func (a *Authority) prepare(r root, now time.Time) {
	wait := min(Overlap, a.signer.ends().Sub(now)*3/4)
	if wait <= 0 {
		a.sign(r, now)
		return
	}
	a.next = &next{r, now.Add(wait)}
}

// sign makes r the signer, and keeps what the former one needs to be trusted.
func (a *Authority) sign(r root, now time.Time) {
	before := a.signer.roots()
	a.signer, a.next = r, nil
	a.former = slices.DeleteFunc(a.former, func(f former) bool { return has(r.roots(), f.cert) })
	for _, c := range before {
		until := now.Add(Linger)
		if c.NotAfter.Before(until) {
			until = c.NotAfter
		}
		if !has(r.roots(), c) && !now.After(until) {
			a.former = append(a.former, former{c, until})
		}
	}
	if n := len(a.former) - maxFormer; n > 0 { // somebody plays with what is given
		a.former = slices.Clone(a.former[n:])
	}
}

// maxFormer bounds how many former roots are trusted.
const maxFormer = 16

// issued is when a root was made.
func issued(c *x509.Certificate) time.Time { return c.NotBefore.Add(skew) }

// Ends is when what it signs with ends, unless that is replaced before.
func (a *Authority) Ends() time.Time { return a.signer.ends() }

// Bundle is the certificates to trust, as PEM.
func (a *Authority) Bundle() []byte { return encodeCertificates(a.trusted()) }

func (a *Authority) trusted() (all []*x509.Certificate) {
	add := func(more ...*x509.Certificate) {
		for _, c := range more {
			if !has(all, c) {
				all = append(all, c)
			}
		}
	}
	add(a.signer.roots()...)
	if a.next != nil {
		add(a.next.roots()...)
	}
	for _, f := range a.former {
		add(f.cert)
	}
	return all
}

func encodeCertificates(all []*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, c := range all {
		b.Write(encodePEM("CERTIFICATE", c.Raw))
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
	return a.issue(&x509.Certificate{
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
	return a.issue(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, URIs: []*url.URL{&replica}}, now)
}

// IsReplica reports whether a certificate, which the caller has verified, is one of Authority.Replica.
func IsReplica(c *x509.Certificate) bool { return len(c.URIs) == 1 && *c.URIs[0] == replica }

// issue makes a key and signs a certificate of it, for the life of a server's.
func (a *Authority) issue(template *x509.Certificate, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	chain, err := a.signer.issue(template, key.Public(), ServerLife, now)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, nil
}

// issue signs a certificate of a key that ends no later than the signer. The result is DER, the certificate first.
func (r *root) issue(template *x509.Certificate, public any, life time.Duration, now time.Time) (chain [][]byte, err error) {
	ends := r.ends()
	if now.After(ends) {
		return nil, fmt.Errorf("identity: the root certificate ended at %s", ends.Format(time.RFC3339))
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = now.Add(-skew), now.Add(life)
	if template.NotAfter.After(ends) {
		template.NotAfter = ends
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, r.cert, public, r.key)
	if err != nil {
		return nil, err
	}
	return append([][]byte{der}, r.path()...), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
