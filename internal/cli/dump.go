package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newDump(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dump PATH...",
		Short: "Print the routing model the files compile to",
		Long: `Dump prints as JSON what the proxy would be given: listeners, routes, services
and certificates with everything resolved, in a fixed order. Private keys are
redacted. How many findings there are goes to stderr; "weir check" shows them.`,
		Example: `  weir dump routes/
  weir dump routes/ | jq '.services[].endpoints'`,
		Args: atLeastOnePath,
	}
	options := translation(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		set, result, err := load(args, s.in, *options)
		if err != nil {
			return err
		}
		if r := newCheckReport(set, result); r.Errors+r.Warnings > 0 {
			fmt.Fprintf(s.err, "weir: %s; \"weir check\" shows them\n", r.summary())
		}
		return writeJSON(s.out, result.Config)
	}
	return cmd
}
