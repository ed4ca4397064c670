package resource

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// An API server accepts any bytes in a Secret or ConfigMap. Here a certificate is read with its object, so that a
// broken one does not replace a good one.

// certified is the judgement of an object's certificates. It depends only on the object.
type certified struct {
	// field is where the certificates are written, line its line from that of the object.
	field string
	line  int
	// broken means that they cannot be used, or not as intended.
	broken bool
	// from and until bound the time in which they can be used: for a key, the dates of its own certificate; for a
	// bundle of authorities, the time in which any of them is valid.
	from, until time.Time
	// chain is when the first certificate of a key's chain ends; not after until.
	chain time.Time
}

// bundleKey is the key of a ConfigMap under which Gateway API expects authorities.
const bundleKey = "ca.crt"

// certify reads the certificates of a Secret of type kubernetes.io/tls, or of a ConfigMap with a bundle of authorities.
// It returns nil for other objects. The finding, if any, says why they are broken. Its only quotes are types of PEM
// blocks.
func certify(object any, u map[string]any) (*certified, *Finding) {
	switch o := object.(type) {
	case *corev1.Secret:
		if o.Type != corev1.SecretTypeTLS {
			return nil, nil
		}
		return certifyKey(o.Data[corev1.TLSCertKey], o.Data[corev1.TLSPrivateKeyKey], func(key string) string {
			return writtenAt(u, key, "stringData", "data")
		})
	case *corev1.ConfigMap:
		text, ok := o.Data[bundleKey]
		if data, binary := o.BinaryData[bundleKey]; binary {
			text, ok = string(data), true
		}
		if !ok {
			return nil, nil
		}
		return certifyBundle([]byte(text), writtenAt(u, bundleKey, "data", "binaryData"))
	}
	return nil, nil
}

// writtenAt is the path of a key that stands in the first of the members that has it, else in the last.
func writtenAt(u map[string]any, key string, members ...string) string {
	for i, member := range members {
		values, _ := u[member].(map[string]any)
		if _, ok := values[key]; ok || i == len(members)-1 {
			return member + "[" + key + "]"
		}
	}
	return ""
}

func certifyKey(chain, key []byte, path func(string) string) (*certified, *Finding) {
	c := &certified{field: path(corev1.TLSCertKey)}
	certificates, why := readPEM(chain)
	if why != "" {
		return c.unusable(c.field, why, "put the certificate in PEM form there, followed by those of its chain")
	}
	c.from, c.until, c.chain = certificates[0].NotBefore, certificates[0].NotAfter, certificates[0].NotAfter
	for _, x := range certificates[1:] {
		c.chain = earlier(c.chain, x.NotAfter)
	}
	if _, err := tls.X509KeyPair(chain, key); err != nil {
		why := strings.TrimPrefix(err.Error(), "tls: ")
		if len(key) == 0 {
			why = "is empty"
		}
		return c.unusable(path(corev1.TLSPrivateKeyKey), why, "put the key of the certificate in PEM form there")
	}
	return c, nil
}

func certifyBundle(text []byte, field string) (*certified, *Finding) {
	c := &certified{field: field}
	certificates, why := readPEM(text)
	if why != "" {
		return c.unusable(field, why, "put only certificates in PEM form there")
	}
	for i, x := range certificates {
		if i == 0 || x.NotBefore.Before(c.from) {
			c.from = x.NotBefore
		}
		if x.NotAfter.After(c.until) {
			c.until = x.NotAfter
		}
	}
	c.chain = c.until
	return c, nil
}

func (c *certified) unusable(field, why, fix string) (*certified, *Finding) {
	c.broken = true
	f := finding(CodeCertificate, field, "cannot be used: "+why)
	f.Fix = fix
	return c, &f
}

// readPEM reads one or more certificates, or returns why they cannot all be read.
func readPEM(text []byte) (certificates []*x509.Certificate, why string) {
	if len(text) == 0 {
		return nil, "is empty"
	}
	rest := text
	for n := 1; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Sprintf("block %d is of type %q, not a certificate", n, block.Type)
		}
		x, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Sprintf("block %d: %s", n, strings.TrimPrefix(err.Error(), "x509: "))
		}
		certificates = append(certificates, x)
	}
	switch {
	case bytes.Contains(rest, []byte("-----BEGIN ")):
		return nil, fmt.Sprintf("block %d is cut short or damaged", len(certificates)+1)
	case len(certificates) == 0:
		return nil, "holds no certificate in PEM form"
	}
	return certificates, ""
}

func (c *certified) valid(now time.Time) bool { return !now.Before(c.from) && !now.After(c.until) }

// warnings are when a certificate's end is first told of, and again. Certificates with a short life are renewed later.
func (c *certified) warnings() (soon, urgent time.Time) {
	const day = 24 * time.Hour
	life := c.until.Sub(c.from)
	return c.chain.Add(-min(30*day, life/3)), c.chain.Add(-min(7*day, life/10))
}

// next is the moment from now on after which something else is to be said of the certificates; zero if there is none.
func (c *certified) next(now time.Time) (at time.Time) {
	if c.broken {
		return at
	}
	soon, urgent := c.warnings()
	if c.from.After(now) {
		at = c.from.Add(-time.Nanosecond) // it is valid at from, and no longer after the other dates
	}
	for _, t := range []time.Time{soon, urgent, c.chain, c.until} {
		if !t.Before(now) {
			at = earliest(at, t)
		}
	}
	return at
}

// expiry is what is to be said of the dates at that time.
func (c *certified) expiry(now time.Time) (f Finding, ok bool) {
	if c.broken {
		return f, false
	}
	soon, urgent := c.warnings()
	switch {
	case !c.valid(now):
		f = finding(CodeCertificateDates, c.field, c.outside(now)+", but no other one can be served")
	case now.After(c.chain):
		f = finding(CodeCertificateUrgent, c.field, "a certificate of the chain expired on "+date(c.chain))
	case now.After(urgent):
		f = finding(CodeCertificateUrgent, c.field, "expires on "+date(c.chain))
	case now.After(soon):
		f = finding(CodeCertificateSoon, c.field, "expires on "+date(c.chain))
	default:
		return f, false
	}
	return f, true
}

// outside says how a certificate is not valid at that time.
func (c *certified) outside(now time.Time) string {
	if now.Before(c.from) {
		return "is not valid before " + date(c.from)
	}
	return "expired on " + date(c.until)
}

// locate completes a finding about the certificates of an object, and says where it belongs.
func (c *certified) locate(f Finding, k Key, object Origin) (Finding, Origin) {
	f.Ref = k.Ref()
	f.Ref.Field = c.field
	return f, Origin{File: object.File, Line: object.Line + c.line}
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// earliest is the earlier of two times of which the zero one means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
