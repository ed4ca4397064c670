package identity

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Workload is what a workload's certificate says.
type Workload struct {
	// ID is its SPIFFE ID, which the caller has judged.
	ID string
	// DNSNames may stand beside it (X509-SVID, section 2).
	DNSNames   []string
	Extensions []pkix.Extension
	// Life is how long the certificate is good.
	Life time.Duration
}

// Workload signs a certificate of a workload with the public key, by which it is a server and a client (X509-SVID,
// section 4). It ends no later than the root. The result is DER.
func (a *Authority) Workload(w Workload, public any, now time.Time) ([]byte, error) {
	id, err := url.Parse(w.ID)
	if err != nil || id.Scheme != "spiffe" {
		return nil, errors.New("identity: a workload's certificate needs a SPIFFE ID")
	}
	if now.After(a.signer.cert.NotAfter) {
		return nil, fmt.Errorf("identity: the root certificate ended at %s", a.signer.cert.NotAfter.Format(time.RFC3339))
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	end := now.Add(w.Life)
	if end.After(a.signer.cert.NotAfter) {
		end = a.signer.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		NotBefore:             now.Add(-skew),
		NotAfter:              end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{id},
		DNSNames:              w.DNSNames,
		ExtraExtensions:       w.Extensions,
	}
	return x509.CreateCertificate(rand.Reader, template, a.signer.cert, public, a.signer.key)
}
