package identity

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Keys of a Secret beside those of the type kubernetes.io/tls.
const (
	signerRoots = "tls.roots"
	nextRoots   = "next.roots"
	timesKey    = "times"
)

// times is when things are due, as JSON, where that does not follow from the certificates.
type times struct {
	// Signs is when the next signer does.
	Signs time.Time `json:"signs,omitzero"`
	// Until is how long former roots are trusted, by the SHA-256 of their certificates.
	Until map[string]time.Time `json:"until,omitempty"`
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// Secret is the authority as the data of a Secret, private keys included: tls.crt and tls.key sign, next.crt and
// next.key, if there, will, and ca.crt is the bundle. tls.roots and next.roots are the roots of an authority that was given.
func (a *Authority) Secret() (map[string][]byte, error) {
	out := map[string][]byte{bundle: a.Bundle()}
	write := func(r *root, cert, key, roots string) error {
		der, err := x509.MarshalPKCS8PrivateKey(r.key)
		if err != nil {
			return err
		}
		out[cert] = encodeCertificates(append([]*x509.Certificate{r.cert}, r.between...))
		out[key] = encodePEM("PRIVATE KEY", der)
		if r.given() {
			out[roots] = encodeCertificates(r.trusted)
		}
		return nil
	}
	if err := write(&a.signer, signerCertificate, signerKey, signerRoots); err != nil {
		return nil, err
	}
	var t times
	if a.next != nil {
		if err := write(&a.next.root, nextCertificate, nextKey, nextRoots); err != nil {
			return nil, err
		}
		t.Signs = a.next.signs
	}
	for _, f := range a.former {
		if t.Until == nil {
			t.Until = map[string]time.Time{}
		}
		t.Until[fingerprint(f.cert)] = f.until
	}
	if a.next != nil || t.Until != nil {
		var err error
		if out[timesKey], err = json.Marshal(t); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Parse reads the result of Secret. Errors name the key of the data, never its content.
func Parse(data map[string][]byte) (*Authority, error) {
	signer, err := parseKept(data, signerCertificate, signerKey, signerRoots)
	if err != nil {
		return nil, err
	}
	a := &Authority{signer: *signer}
	var t times
	if len(data[timesKey]) > 0 {
		if err := json.Unmarshal(data[timesKey], &t); err != nil {
			return nil, fmt.Errorf("%s: %w", timesKey, err)
		}
	}
	if len(data[nextCertificate])+len(data[nextKey]) > 0 {
		r, err := parseKept(data, nextCertificate, nextKey, nextRoots)
		if err != nil {
			return nil, err
		}
		a.next = &next{*r, t.Signs}
		if t.Signs.IsZero() { // written by an older release
			a.next.signs = issued(r.cert).Add(Overlap)
		}
	}
	trusted, err := parseCertificates(data[bundle])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", bundle, err)
	}
	for _, c := range trusted {
		if has(a.trusted(), c) {
			continue
		}
		until, ok := t.Until[fingerprint(c)]
		if !ok || c.NotAfter.Before(until) {
			until = c.NotAfter
		}
		a.former = append(a.former, former{c, until})
	}
	return a, nil
}

// parseKept reads what signs from a Secret of the authority's own.
func parseKept(data map[string][]byte, certificate, key, roots string) (*root, error) {
	r, err := parseSigner(data, certificate, key)
	if err != nil {
		return nil, err
	}
	if r.trusted, err = parseCertificates(data[roots]); err != nil {
		return nil, fmt.Errorf("%s: %w", roots, err)
	}
	if !r.given() && len(r.between) > 0 {
		return nil, fmt.Errorf("%s: holds %d certificates, want one", certificate, 1+len(r.between))
	}
	return r, nil
}

// parseSigner reads a CA's certificate, with those that lead to its root behind it, and its key.
func parseSigner(data map[string][]byte, certificate, key string) (*root, error) {
	certs, err := parseCertificates(data[certificate])
	if err == nil && (len(certs) == 0 || len(certs) > maxPath) {
		err = fmt.Errorf("holds %d certificates, want 1 to %d", len(certs), maxPath)
	}
	if err == nil && !certs[0].IsCA {
		err = errors.New("is not a CA certificate")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certificate, err)
	}
	private, err := parseKey(data[key])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	public, ok := private.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(certs[0].PublicKey) {
		return nil, fmt.Errorf("%s: does not belong to %s", key, certificate)
	}
	return &root{cert: certs[0], key: private, between: certs[1:]}, nil
}

// parseKey reads a private key in PEM: PKCS #8, or RSA and ECDSA in forms of their own (PKCS #1, SEC 1). Its error holds
// nothing of the key.
func parseKey(data []byte) (crypto.Signer, error) {
	block, rest := pem.Decode(data)
	if block != nil && block.Type == "EC PARAMETERS" { // openssl writes them first
		block, _ = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New("holds no private key in PEM")
	}
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, errors.New("holds no private key (PKCS #8, PKCS #1 or SEC 1, without a password)")
	}
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, errors.New("cannot be read")
	}
	return signer, nil
}

func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			if len(bytes.TrimSpace(data)) > 0 {
				return nil, errors.New("is not PEM")
			}
			return out, nil
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("holds a %q", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out, data = append(out, cert), rest
	}
}
