package node

import (
	"context"
	"log/slog"
	"net/netip"
	"os"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/weirmesh/weir/test/cluster/balancer"
)

// The addresses that Services of type LoadBalancer get, beside the node's own on its bridge. The last few are only for those that
// ask for one by spec.loadBalancerIP.
var (
	FirstBalanced = netip.MustParseAddr("10.250.0.16")
	LastBalanced  = netip.MustParseAddr("10.250.0.111")
	LastAskedFor  = netip.MustParseAddr("10.250.0.127")
)

// balance runs the load balancers' controller.
func balance(ctx context.Context, dir string) error {
	c := &config{Dir: dir}
	client, err := clientcmd.BuildConfigFromFlags("", c.path("kubeconfig"))
	if err != nil {
		return err
	}
	return balancer.Run(ctx, balancer.Options{
		Config: client,
		Pool:   balancer.Pool{First: FirstBalanced, Last: LastBalanced, Asked: LastAskedFor},
		// Without an address of the node's, a port that no Service has would not refuse connections but leave them unanswered.
		Own:    func(a netip.Addr) error { return command("ip", "addr", "replace", a.String()+"/32", "dev", "node0") },
		Disown: func(a netip.Addr) error { return command("ip", "addr", "del", a.String()+"/32", "dev", "node0") },
		Log:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}
