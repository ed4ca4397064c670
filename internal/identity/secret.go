package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Secret is the authority as the data of a Secret, private keys included: tls.crt and tls.key sign, next.crt and
// next.key, if there, will, and ca.crt is the bundle.
func (a *Authority) Secret() (map[string][]byte, error) {
	out := map[string][]byte{bundle: a.Bundle()}
	write := func(r *root, cert, key string) error {
		der, err := x509.MarshalPKCS8PrivateKey(r.key)
		if err != nil {
			return err
		}
		out[cert], out[key] = encodePEM("CERTIFICATE", r.cert.Raw), encodePEM("PRIVATE KEY", der)
		return nil
	}
	if err := write(&a.signer, signerCertificate, signerKey); err != nil {
		return nil, err
	}
	if a.next != nil {
		if err := write(a.next, nextCertificate, nextKey); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Parse reads the result of Secret. Errors name the key of the data, never its content.
func Parse(data map[string][]byte) (*Authority, error) {
	signer, err := parseRoot(data, signerCertificate, signerKey)
	if err != nil {
		return nil, err
	}
	a := &Authority{signer: *signer}
	if len(data[nextCertificate])+len(data[nextKey]) > 0 {
		if a.next, err = parseRoot(data, nextCertificate, nextKey); err != nil {
			return nil, err
		}
	}
	trusted, err := parseCertificates(data[bundle])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", bundle, err)
	}
	for _, c := range trusted {
		if !c.Equal(a.signer.cert) && (a.next == nil || !c.Equal(a.next.cert)) {
			a.former = append(a.former, c)
		}
	}
	return a, nil
}

func parseRoot(data map[string][]byte, certificate, key string) (*root, error) {
	certs, err := parseCertificates(data[certificate])
	if err == nil && len(certs) != 1 {
		err = fmt.Errorf("holds %d certificates, want one", len(certs))
	}
	if err == nil && !certs[0].IsCA {
		err = errors.New("is not a CA certificate")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certificate, err)
	}
	block, _ := pem.Decode(data[key])
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s: holds no private key (PKCS #8, PEM)", key)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read", key)
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: is not an ECDSA key", key)
	}
	if !private.PublicKey.Equal(certs[0].PublicKey) {
		return nil, fmt.Errorf("%s: does not belong to %s", key, certificate)
	}
	return &root{cert: certs[0], key: private}, nil
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
