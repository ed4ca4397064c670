package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"
)

// Bounds on an authority that is given: the certificates of tls.crt, those of ca.crt, and the bytes of each key of the data.
const (
	maxPath  = 6
	maxRoots = 8
	maxGiven = 64 << 10
)

// Given is an authority that somebody else makes and replaces, in a Secret as cert-manager writes it.
type Given struct{ root root }

// ParseGiven reads a Secret's tls.crt (the authority's certificate, and behind it those that lead to the root), tls.key
// and ca.crt (the roots). Of what cannot sign certificates with the ID sample it says so: what it signs must be good to
// those who trust ca.crt. Errors name the key of the data and what to do, never the content.
func ParseGiven(data map[string][]byte, sample string, now time.Time) (*Given, error) {
	for _, key := range []string{signerCertificate, signerKey, bundle} {
		switch n := len(data[key]); {
		case n == 0:
			return nil, fmt.Errorf("%s: is missing; it takes the keys tls.crt, tls.key and ca.crt, as an Issuer of cert-manager writes them", key)
		case n > maxGiven:
			return nil, fmt.Errorf("%s: has %d bytes, more than %d", key, n, maxGiven)
		}
	}
	r, err := parseSigner(data, signerCertificate, signerKey)
	if err != nil {
		return nil, fmt.Errorf("%w; make a Certificate with isCA: true, and copy its Secret whole", err)
	}
	if r.trusted, err = parseCertificates(data[bundle]); err == nil && (len(r.trusted) == 0 || len(r.trusted) > maxRoots) {
		err = fmt.Errorf("holds %d certificates, want 1 to %d", len(r.trusted), maxRoots)
	}
	for _, c := range r.trusted {
		if err == nil && !c.IsCA {
			err = fmt.Errorf("%s is not a CA certificate", c.Subject)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", bundle, err)
	}
	for i, c := range append([]*x509.Certificate{r.cert}, r.between...) {
		switch {
		case now.After(c.NotAfter):
			return nil, fmt.Errorf("%s: certificate %d ended at %s; have it renewed", signerCertificate, i+1, c.NotAfter.Format(time.RFC3339))
		case now.Before(c.NotBefore):
			return nil, fmt.Errorf("%s: certificate %d is good from %s on only; compare the clocks", signerCertificate, i+1, c.NotBefore.Format(time.RFC3339))
		case c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
			return nil, fmt.Errorf("%s: the key of certificate %d may not sign certificates; add the usage \"cert sign\"", signerCertificate, i+1)
		}
	}
	if err := r.try(r.trusted, sample, now); err != nil {
		return nil, fmt.Errorf("%s: %w", signerCertificate, explained(err))
	}
	return &Given{*r}, nil
}

// try signs a certificate of an ID and judges it as those do who trust the roots.
func (r *root) try(trusted []*x509.Certificate, sample string, now time.Time) error {
	id, err := url.Parse(sample)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	chain, err := r.issue(&x509.Certificate{ExtKeyUsage: both, BasicConstraintsValid: true, URIs: []*url.URL{id}}, key.Public(), time.Hour, now)
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return err
	}
	between, roots := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range append([]*x509.Certificate{r.cert}, r.between...) {
		if !has(trusted, c) {
			between.AddCert(c)
		}
	}
	for _, c := range trusted {
		roots.AddCert(c)
	}
	for _, usage := range both {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			return err
		}
	}
	return nil
}

// explained says of what a library refuses how to have it otherwise.
func explained(err error) error {
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return fmt.Errorf("ca.crt does not vouch for it: %w; put the certificates in between behind it, and the root into ca.crt", err)
	case errors.As(err, &invalid) && invalid.Reason == x509.TooManyIntermediates:
		return fmt.Errorf("an authority above it forbids it to sign (path length): %w; raise its pathLenConstraint, or use that authority itself", err)
	}
	return fmt.Errorf("what it signs would not be accepted: %w", err)
}

// Follow returns the authority that signs with what is given, nil for a root of its own; the same one if it does
// already. What is given signs at once if all trust its root. Else it is trusted first, as a next root is: see Rotate. The
// caller must store the result before using it.
func (a *Authority) Follow(g *Given, now time.Time) (*Authority, error) {
	out := *a
	out.former = slices.Clone(a.former)
	switch {
	case g == nil && !a.signer.given():
		if a.next == nil || !a.next.given() {
			return a, nil
		}
		out.next = nil
	case g == nil && a.next != nil && !a.next.given():
		return a, nil
	case g == nil:
		own, err := newRoot(now)
		if err != nil {
			return nil, err
		}
		out.prepare(*own, now)
	case a.signer.same(&g.root):
		if a.next == nil {
			return a, nil
		}
		out.next = nil
	case a.next != nil && a.next.same(&g.root):
		return a, nil
	case out.known(&g.root, now):
		out.sign(g.root, now)
	case a.next != nil && a.next.vouches(&g.root, now): // it was renewed while it waited
		out.next = &next{g.root, a.next.signs}
	default:
		out.prepare(g.root, now)
	}
	return &out, nil
}

// known reports whether all who trust the authority believe what r signs, because they trust its root already.
func (a *Authority) known(r *root, now time.Time) bool {
	trusted := slices.Clone(a.signer.roots())
	for _, f := range a.former {
		trusted = append(trusted, f.cert)
	}
	return r.try(trusted, anyone, now) == nil
}

// vouches reports whether those who trust n believe what r signs.
func (n *next) vouches(r *root, now time.Time) bool { return r.try(n.roots(), anyone, now) == nil }

// anyone is an ID for trying out. An authority that may not sign it counts as unknown, which only takes longer.
const anyone = "spiffe://anyone/"

// Take returns an authority that signs with what is given, for those who trust none yet.
func (g *Given) Take() *Authority { return &Authority{signer: g.root} }
