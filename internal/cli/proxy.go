package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/fed"
)

func newProxy(s streams) *cobra.Command {
	return dataPlane(s, fed.New(), &cobra.Command{
		Use:   "proxy",
		Short: "Serve a Gateway of a Kubernetes cluster as the controller says",
		Long: `Proxy is the data plane of one Gateway: it connects to a controller, serves the
configuration from it, and reports what it runs. "weir controller" starts it for
each Gateway. It proves its identity by the token of its pod. It keeps its last
configuration in --state-dir, and serves that while no controller can be reached,
also after a restart. /readyz is 200 once a configuration is served. SIGTERM or
SIGINT drains as "weir run" does.`,
		Example: `  weir proxy --gateway shop/edge --controller weir-controller.weir-system.svc:18000 --state-dir /var/lib/weir`,
	})
}

func newSidecar(s streams) *cobra.Command {
	return dataPlane(s, fed.NewSidecar(), &cobra.Command{
		Use:     "sidecar",
		Short:   "Serve beside the containers of a pod as the controller says",
		Long:    fed.SidecarUsage,
		Example: `  weir sidecar --controller weir-controller.weir-system.svc:18000 --pod-namespace shop --pod-name cart-7d9-x --pod-ips 10.0.0.7`,
	})
}

// dataPlane completes a command that serves what a controller says.
func dataPlane(s streams, o interface {
	Flags(*pflag.FlagSet)
	Run(ctx context.Context, stdout, stderr io.Writer) error
}, cmd *cobra.Command) *cobra.Command {
	cmd.Args = noArgs
	o.Flags(cmd.Flags())
	fromEnvironment(cmd)
	cmd.RunE = lasting(func(ctx context.Context, _ []string) error { return o.Run(ctx, s.out, s.err) })
	return cmd
}
