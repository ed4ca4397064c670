package flags

import (
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// EnvName is the environment variable of a flag: "--drain-timeout" is WEIR_DRAIN_TIMEOUT.
func EnvName(flag string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

const notFromEnvironment = "not-from-environment"

// NotFromEnvironment keeps flags from the environment: NameEnvironment and ReadEnvironment pass them over.
func NotFromEnvironment(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := f.SetAnnotation(name, notFromEnvironment, nil); err != nil {
			panic(err) // no flag of the command is called so
		}
	}
}

func fromEnvironment(f *pflag.Flag) bool {
	_, not := f.Annotations[notFromEnvironment]
	return !not && f.Name != "help"
}

// NameEnvironment adds the environment variable that sets a flag to each flag's usage.
func NameEnvironment(f *pflag.FlagSet) {
	f.VisitAll(func(f *pflag.Flag) {
		if fromEnvironment(f) {
			f.Usage += " [$" + EnvName(f.Name) + "]"
		}
	})
}

// ReadEnvironment lets the environment set each flag that the command line does not.
func ReadEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := os.LookupEnv(EnvName(f.Name))
		if err != nil || f.Changed || !ok || !fromEnvironment(f) {
			return
		}
		if e := flags.Set(f.Name, value); e != nil {
			err = Errorf("%s=%q: %w", EnvName(f.Name), value, e)
		}
	})
	return err
}
