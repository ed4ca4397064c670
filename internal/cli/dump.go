package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
)

func newDump(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dump [PATH...]",
		Short: "Print the routing model the files compile to",
		Long: `Dump prints as JSON what the proxy would be given: listeners, routes, services
and certificates with everything resolved, in a fixed order. Private keys are
redacted. How many findings there are goes to stderr; "weir check" shows them.
Without PATHs it reads a Kubernetes cluster, as the controller would; listeners
name their Gateway there, and --gateway prints what one Gateway's proxies get.`,
		Example: `  weir dump routes/
  weir dump routes/ | jq '.services[].endpoints'
  weir dump --gateway shop/edge                what its proxies get, in a cluster`,
	}
	in := newInput(s, cmd)
	gateway := gatewayFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l, err := in.load(cmd.Context(), args, s.in)
		if err != nil {
			return err
		}
		defer l.close()
		if r := newCheckReport(l.set, l.Findings); r.Errors+r.Warnings > 0 {
			fmt.Fprintf(s.err, "weir: %s; \"weir check\" shows them\n", r.summary())
		}
		cfg := l.Config
		if *gateway != "" {
			if cfg, err = l.served().Part(model.Owner(*gateway)); err != nil {
				return gatewayFault(err)
			}
		}
		return process.WriteJSON(s.out, cfg)
	}
	return cmd
}
