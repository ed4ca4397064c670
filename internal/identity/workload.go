package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
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
// section 4). It ends no later than the root. The result is DER, the certificate first, without the root.
func (a *Authority) Workload(w Workload, public any, now time.Time) ([][]byte, error) {
	id, err := url.Parse(w.ID)
	if err != nil || id.Scheme != "spiffe" {
		return nil, errors.New("identity: a workload's certificate needs a SPIFFE ID")
	}
	return a.signer.issue(&x509.Certificate{
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{id},
		DNSNames:              w.DNSNames,
		ExtraExtensions:       w.Extensions,
	}, public, w.Life, now)
}
