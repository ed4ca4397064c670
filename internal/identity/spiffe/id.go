package spiffe

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// DefaultTrustDomain is the trust domain of identities, unless another one is set. SMI's examples have it.
	DefaultTrustDomain = "cluster.local"
	// Scheme is what every SPIFFE ID begins with.
	Scheme = "spiffe://"
	// maxID and maxTrustDomain are in bytes (SPIFFE-ID §2.3).
	maxID          = 2048
	maxTrustDomain = 255
)

// ID is a valid SPIFFE ID, "spiffe://trust-domain/path". The zero value is none. IDs are equal if they are the same.
type ID struct {
	text string
	path int // where the path begins in text
}

// Parse reads a SPIFFE ID. It accepts the one spelling that the standard allows (SPIFFE-ID §2): no upper case in the
// scheme and the trust domain, no port, no query, nothing percent-encoded, no empty or dot segments.
func Parse(s string) (ID, error) {
	switch {
	case len(s) > maxID:
		return ID{}, fmt.Errorf("a SPIFFE ID of %d bytes is longer than %d", len(s), maxID)
	case !strings.HasPrefix(s, Scheme):
		return ID{}, fmt.Errorf("%q is no SPIFFE ID: it does not begin with %s", s, Scheme)
	}
	domain, path, hasPath := strings.Cut(s[len(Scheme):], "/")
	if err := CheckTrustDomain(domain); err != nil {
		return ID{}, fmt.Errorf("%q is no SPIFFE ID: %w", s, err)
	}
	if hasPath {
		for segment := range strings.SplitSeq(path, "/") {
			if err := checkSegment(segment); err != nil {
				return ID{}, fmt.Errorf("%q is no SPIFFE ID: %w", s, err)
			}
		}
	}
	return ID{s, len(Scheme) + len(domain)}, nil
}

// CheckTrustDomain returns why a name is no trust domain (SPIFFE-ID §2.1).
func CheckTrustDomain(name string) error {
	switch {
	case name == "":
		return errors.New("the trust domain is empty")
	case len(name) > maxTrustDomain:
		return fmt.Errorf("a trust domain of %d bytes is longer than %d", len(name), maxTrustDomain)
	}
	for i := range len(name) {
		if c := name[i]; !small(c) {
			return fmt.Errorf("the trust domain has %q: it may have lower-case letters, digits, and the characters . - _", c)
		}
	}
	return nil
}

// checkSegment returns why a path must not have the segment (SPIFFE-ID §2.2).
func checkSegment(s string) error {
	switch s {
	case "":
		return errors.New("the path has an empty segment")
	case ".", "..":
		return fmt.Errorf("the path has the segment %q", s)
	}
	for i := range len(s) {
		if c := s[i]; !small(c) && (c < 'A' || 'Z' < c) {
			return fmt.Errorf("the path has %q: it may have letters, digits, and the characters . - _", c)
		}
	}
	return nil
}

func small(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_'
}

// String returns the ID as it is written, empty for none.
func (id ID) String() string { return id.text }

// IsZero reports whether there is no ID.
func (id ID) IsZero() bool { return id.text == "" }

// TrustDomain is the name behind the scheme; empty for none.
func (id ID) TrustDomain() string { return strings.TrimPrefix(id.text[:id.path], Scheme) }

// Path begins with a slash; it is empty for the ID of a trust domain itself.
func (id ID) Path() string { return id.text[id.path:] }

// ServiceAccount returns the namespace and the name of the ServiceAccount that the ID is, if its path has the form
// "/ns/NAMESPACE/sa/NAME".
func (id ID) ServiceAccount() (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(id.Path(), "/ns/")
	if !ok {
		return "", "", false
	}
	namespace, rest, _ = strings.Cut(rest, "/")
	name, ok = strings.CutPrefix(rest, "sa/")
	if !ok || strings.Contains(name, "/") {
		return "", "", false
	}
	return namespace, name, true
}

// Node returns the name of the node that the ID is, if its path has the form "/node/NAME".
func (id ID) Node() (name string, ok bool) {
	if name, ok = strings.CutPrefix(id.Path(), "/node/"); !ok || strings.Contains(name, "/") {
		return "", false
	}
	return name, true
}
