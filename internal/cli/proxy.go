package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/fed"
	"github.com/weirmesh/weir/internal/process"
)

func newProxy(s streams) *cobra.Command {
	o := fed.New()
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Serve a Gateway of a Kubernetes cluster as the controller says",
		Long: `Proxy is the data plane of one Gateway: it connects to a controller, serves the
configuration from it, and reports what it runs. "weir controller" starts it for
each Gateway. It proves its identity by the token of its pod. It keeps its last
configuration in --state-dir, and serves that while no controller can be reached,
also after a restart. /readyz is 200 once a configuration is served. SIGTERM or
SIGINT drains as "weir run" does.`,
		Example: `  weir proxy --gateway shop/edge --controller weir-controller.weir-system.svc:18000 --state-dir /var/lib/weir`,
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
