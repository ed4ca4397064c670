package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/redirect/netfilter"
)

func newRedirect(s streams) *cobra.Command {
	var o netfilter.Command
	cmd := &cobra.Command{
		Use:   "redirect",
		Short: "Lead the connections of a pod through its sidecar",
		Long:  netfilter.Usage,
		Example: `  weir redirect --dry-run --skip-inbound-ports 22
  weir redirect --skip-outbound-networks 10.0.0.0/8`,
		Args: noArgs,
	}
	o.Flags(cmd.Flags())
	fromEnvironment(cmd)
	cmd.RunE = func(*cobra.Command, []string) error { return o.Run(s.out) }
	return cmd
}
