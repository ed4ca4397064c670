package controller

import (
	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/flags"
)

// admissionFlags say what the controller judges before the API server stores it.
type admissionFlags struct {
	on bool
}

func (o *admissionFlags) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.on, "rollout-admission", false, "judge Rollouts before the API server stores them, at --conversion-address")
}

func (o *admissionFlags) check(served bool) error {
	if o.on && !served {
		return flags.Errorf("--rollout-admission: is served at --conversion-address, which is off")
	}
	return nil
}
