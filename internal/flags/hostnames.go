package flags

import "github.com/spf13/pflag"

// ExclusiveHostnames adds the flag by which a hostname of a listener belongs to one namespace.
func ExclusiveHostnames(f *pflag.FlagSet, exclusive *bool) {
	f.BoolVar(exclusive, "exclusive-hostnames", false, "let a hostname of a listener belong to the namespace whose route had it first; routes of others are not accepted for it")
}
