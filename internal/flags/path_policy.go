package flags

import (
	"fmt"

	"github.com/spf13/pflag"
	"github.com/weirmesh/weir/internal/model"
)

// PathPolicy adds the flag for the path policy of requests for which nothing else sets one.
func PathPolicy(f *pflag.FlagSet, p *model.PathPolicy) {
	*p = model.PathAsWritten
	f.Var((*pathPolicyValue)(p), "path-policy", "policy for paths that servers read in different ways, unless an annotation sets it (docs/paths.md)")
}

// pathPolicyValue is a model.PathPolicy as a flag.
type pathPolicyValue model.PathPolicy

func (p *pathPolicyValue) String() string { return string(*p) }

// Type implements pflag.Value; help shows it.
func (p *pathPolicyValue) Type() string {
	return string(model.PathAsWritten) + "|" + string(model.PathStrict)
}

func (p *pathPolicyValue) Set(s string) error {
	if !model.PathPolicy(s).Valid() {
		return fmt.Errorf("want %s or %s", model.PathAsWritten, model.PathStrict)
	}
	*p = pathPolicyValue(s)
	return nil
}
