//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificate is the server certificate of all proxies: ECDSA P-256, from a CA made for this run.
type certificate struct {
	chain, key []byte // PEM
	chainFile  string
	keyFile    string
	bothFile   string // HAProxy wants both in one
	roots      *x509.CertPool
}

// newCertificate makes a CA and a certificate and writes the files that the peers read.
func newCertificate(dir string) (c certificate, err error) {
	caKey, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(err1, err2); err != nil {
		return c, err
	}
	from, to := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench CA"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: hostname}, NotBefore: from, NotAfter: to,
		DNSNames: []string{hostname}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caDER, err1 := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	leafDER, err2 := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	keyDER, err3 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err1, err2, err3); err != nil {
		return c, err
	}
	root, err := x509.ParseCertificate(caDER)
	if err != nil {
		return c, err
	}
	c.roots = x509.NewCertPool()
	c.roots.AddCert(root)
	c.chain = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leafDER})
	c.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	for _, file := range []struct {
		path *string
		name string
		data []byte
	}{
		{&c.chainFile, "tls.crt", c.chain},
		{&c.keyFile, "tls.key", c.key},
		{&c.bothFile, "tls.pem", append(append([]byte(nil), c.chain...), c.key...)},
	} {
		*file.path = filepath.Join(dir, file.name)
		if err := os.WriteFile(*file.path, file.data, 0o600); err != nil {
			return c, err
		}
	}
	return c, nil
}
