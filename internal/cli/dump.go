package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newDump(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dump [PATH]...",
		Short: "Print the routing model that files or a cluster compile to",
		Long: `Dump prints as JSON what the proxy would be given: listeners, routes, services
and certificates with everything resolved, in a fixed order. Private keys are
redacted. Without a PATH it reads the cluster that kubectl would talk to; each
listener then names the Gateway whose proxies have it. How many findings there
are goes to stderr; "weir check" shows them.`,
		Example: `  weir dump routes/
  weir dump routes/ | jq '.services[].endpoints'`,
	}
	in := inputFlags(cmd)
	gateway := gatewayFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		what, err := in.load(cmd.Context(), args, s.in)
		if err != nil {
			return err
		}
		cfg := what.result.Config
		if *gateway != "" {
			if cfg, err = what.of(*gateway); err != nil {
				return err
			}
		}
		if r := newCheckReport(what.set, what.result); r.Errors+r.Warnings > 0 {
			fmt.Fprintf(s.err, "weir: %s; \"weir check\" shows them\n", r.summary())
		}
		return writeJSON(s.out, cfg)
	}
	return cmd
}
