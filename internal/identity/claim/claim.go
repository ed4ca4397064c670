// Package claim is what a certificate says about a workload beyond its SPIFFE ID: which pod it is, and what runs the
// pod. Pods of several Deployments may share a ServiceAccount, and so a SPIFFE ID; access policies can tell them apart.
//
// Whoever signs the certificate vouches for it. It is pure.
package claim

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ID is the object identifier of the extension that has the claims. It is in the arc for experiments (RFC 1155 §3.1.3),
// as it is for programs of one kind among themselves.
var ID = asn1.ObjectIdentifier{1, 3, 6, 1, 3, 1719, 1}

// Bounds on what a certificate may claim.
const (
	maxSize   = 4 << 10
	maxOwners = 8
	maxName   = 253
)

// Claims say who a pod is. Its namespace is that of the SPIFFE ID.
type Claims struct {
	Pod string `json:"pod,omitempty"`
	UID string `json:"uid,omitempty"`
	// Owners are what runs the pod, the nearest first.
	Owners []Owner `json:"owners,omitempty"`
}

// Owner is an object that runs a pod.
type Owner struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Extension returns the claims as an extension of a certificate. It fails for claims that Of would not read.
func (c Claims) Extension() (pkix.Extension, error) {
	if err := c.check(); err != nil {
		return pkix.Extension{}, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return pkix.Extension{}, err
	}
	value, err := asn1.MarshalWithParams(string(text), "utf8")
	if err != nil {
		return pkix.Extension{}, err
	}
	if len(value) > maxSize {
		return pkix.Extension{}, fmt.Errorf("claims of %d bytes are more than %d", len(value), maxSize)
	}
	return pkix.Extension{Id: ID, Value: value}, nil
}

// Of returns the claims of a certificate; the zero value if it has none. Claims that cannot be read whole are an error:
// none of them counts then. Members that are unknown, from a newer issuer, are ignored: they only say more.
func Of(leaf *x509.Certificate) (Claims, error) {
	found := false
	var c Claims
	for i := range leaf.Extensions {
		if !leaf.Extensions[i].Id.Equal(ID) {
			continue
		}
		if found {
			return Claims{}, errors.New("the certificate has claims twice")
		}
		found = true
		var err error
		if c, err = parse(leaf.Extensions[i].Value); err != nil {
			return Claims{}, fmt.Errorf("the certificate's claims: %w", err)
		}
	}
	return c, nil
}

func parse(value []byte) (Claims, error) {
	if len(value) > maxSize {
		return Claims{}, fmt.Errorf("%d bytes are more than %d", len(value), maxSize)
	}
	var text string
	rest, err := asn1.UnmarshalWithParams(value, &text, "utf8")
	if err != nil {
		return Claims{}, err
	}
	if len(rest) > 0 {
		return Claims{}, errors.New("there is something behind them")
	}
	var c Claims
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	if err := d.Decode(&c); err != nil {
		return Claims{}, err
	}
	if _, err := d.Token(); err != io.EOF {
		return Claims{}, errors.New("there is something behind them")
	}
	if err := c.check(); err != nil {
		return Claims{}, err
	}
	return c, nil
}

func (c *Claims) check() error {
	if len(c.Pod) > maxName || len(c.UID) > maxName {
		return fmt.Errorf("a name is longer than %d", maxName)
	}
	if len(c.Owners) > maxOwners {
		return fmt.Errorf("%d owners are more than %d", len(c.Owners), maxOwners)
	}
	for _, o := range c.Owners {
		if o.Kind == "" || o.Name == "" || len(o.Kind) > maxName || len(o.Name) > maxName {
			return errors.New("an owner needs a kind and a name")
		}
	}
	if c.Pod == "" && len(c.Owners) > 0 {
		return errors.New("there are owners, and no pod")
	}
	return nil
}
