package flags

import (
	"errors"

	"github.com/spf13/pflag"
	"github.com/weirmesh/weir/internal/model"
)

// AccessDeny adds the flag for when traffic to a workload is denied that nothing allows, in namespaces that do not say
// so themselves.
func AccessDeny(f *pflag.FlagSet, d *model.Deny) {
	f.Var((*denyValue)(d), "access-deny", "when traffic to a workload is denied that nothing allows: once a role or target names it (governed), or always (all); "+
		"the annotation weirmesh.github.io/access-deny of a Namespace sets it for the namespace")
}

// denyValue is a model.Deny as a flag.
type denyValue model.Deny

const governed = "governed"

func (d *denyValue) String() string {
	if *d == "" {
		return governed
	}
	return string(*d)
}

// Type implements pflag.Value; help shows it.
func (d *denyValue) Type() string { return governed + "|" + string(model.DenyAll) }

func (d *denyValue) Set(s string) error {
	switch s {
	case governed:
		*d = denyValue(model.DenyGoverned)
	case string(model.DenyAll):
		*d = denyValue(model.DenyAll)
	default:
		return errors.New("want governed or all")
	}
	return nil
}
