package cli

import (
	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/identity/spiffe"
)

// trustDomain is the name of a trust domain as a flag.
type trustDomain string

func newTrustDomain(to *string) *trustDomain {
	*to = access.DefaultTrustDomain
	return (*trustDomain)(to)
}

func (t *trustDomain) String() string { return string(*t) }

// Type implements pflag.Value; help shows it.
func (t *trustDomain) Type() string { return "domain" }

func (t *trustDomain) Set(s string) error {
	if err := spiffe.CheckTrustDomain(s); err != nil {
		return err
	}
	*t = trustDomain(s)
	return nil
}
