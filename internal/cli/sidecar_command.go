package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/fed"
	"github.com/weirmesh/weir/internal/process"
)

func newSidecar(s streams) *cobra.Command {
	o := fed.NewSidecar()
	cmd := &cobra.Command{
		Use:     "sidecar",
		Short:   "Serve beside the containers of a pod as the controller says",
		Long:    fed.SidecarUsage,
		Example: `  weir sidecar --controller weir-controller.weir-system.svc:18000 --pod-namespace shop --pod-name cart-7d9-x --pod-ips 10.0.0.7`,
		Args:    noArgs,
	}
	o.Flags(cmd.Flags())
	fromEnvironment(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := process.Interrupted(cmd.Context())
		defer stop()
		return o.Run(ctx, s.out, s.err)
	}
	return cmd
}
