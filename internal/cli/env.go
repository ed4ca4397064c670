package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envName is the environment variable of a flag: "--drain-timeout" is WEIR_DRAIN_TIMEOUT.
func envName(flag string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment lets the environment set each flag that the command line does not, and says so in the flag's usage.
func fromEnvironment(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage += " [$" + envName(f.Name) + "]" })
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			value, ok := os.LookupEnv(envName(f.Name))
			if err != nil || f.Changed || !ok || f.Name == "help" {
				return
			}
			if e := cmd.Flags().Set(f.Name, value); e != nil {
				err = usageError("%s=%q: %w", envName(f.Name), value, e)
			}
		})
		return err
	}
}
