package flags

import (
	"github.com/spf13/pflag"
	"github.com/weirmesh/weir/internal/identity/spiffe"
)

// TrustDomain adds the flag for the trust domain of the own identities.
func TrustDomain(f *pflag.FlagSet, to *string) {
	*to = spiffe.DefaultTrustDomain
	f.Var((*trustDomain)(to), "trust-domain", "trust domain of the own identities, which are spiffe://`DOMAIN`/ns/NAMESPACE/sa/ACCOUNT")
}

// trustDomain is the name of a trust domain as a flag.
type trustDomain string

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
