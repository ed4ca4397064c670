package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/demo"
)

func newDemo(s streams) *cobra.Command {
	o := demo.NewOptions()
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See a split and a mirror at work: services, load and gateway in one process",
		Long:  "Demo " + demo.About,
		Example: `  weir demo                           until Ctrl-C
  weir demo --for 10s                 and a summary
  weir demo --break mirror            the mirror target hangs: copies are dropped, clients notice nothing
  weir demo --rollout                 a version goes through the steps of a release, and all shares follow
  weir demo --mesh                    calls between workloads, allowed or denied by a role
  weir demo --print                   the manifests it runs`,
		Args: noArgs,
	}
	o.Flags(cmd.Flags())
	cmd.RunE = lasting(func(ctx context.Context, _ []string) error { return o.Run(ctx, s.out, s.err) })
	return cmd
}
