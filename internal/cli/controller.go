package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/controller"
)

func newController(s streams) *cobra.Command {
	o := controller.NewOptions()
	o.Dialects = s.dialects
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the control plane of a Kubernetes cluster",
		Long: `Controller watches Gateway API and SMI objects of a Kubernetes cluster, gives each
Gateway of its classes proxies of their own (weir proxy) and tells them what to
serve. Of several replicas every one feeds proxies; one, the leader, writes
statuses and events and makes the proxies' Deployments and Services. SIGTERM
or SIGINT gives up the lead at once and closes the feed after --drain-delay;
proxies go to another replica, or serve on with what they have. Every replica
also converts SMI objects between their versions for the API server.`,
		Example: `  weir controller --proxy-image weir-proxy:1.0
  weir controller --proxy-image weir-proxy:1.0 --namespaces shop,blog   nothing else is read
  weir controller --kubeconfig ~/.kube/config --leader-elect=false     outside the cluster, for a try`,
		Args: noArgs,
	}
	o.Flags(cmd.Flags())
	fromEnvironment(cmd)
	cmd.RunE = lasting(func(ctx context.Context, _ []string) error { return o.Run(ctx, s.err) })
	return cmd
}
