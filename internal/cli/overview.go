package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/kube/inspect"
	"github.com/weirmesh/weir/internal/overview"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/screen"
)

func newStatus(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [PATH...]",
		Short: "Show Gateways, routes and splits, and what is wrong with each",
		Long: `Status lists Gateways, with addresses, listeners, attached routes and, in a
cluster, their proxies; ListenerSets; routes, with hostnames and parents;
TrafficSplits, with the weight and share of each leaf; and policies. Under each
is what is wrong with it, with reason and fix. Without PATHs it reads a
Kubernetes cluster, with your own rights, and shows the statuses that are
written there; of files it shows those that would be. "weir check" finds more
and has an exit code.`,
		Example: `  weir status
  weir status -n shop -o wide
  weir status -o json | jq '.objects[] | select(.programmed == "False")'
  weir status routes/`,
	}
	output := outputFlag(cmd, "text", "wide", "json", "yaml")
	in := newInput(s, cmd)
	in.forController(cmd.Flags())
	namespace := cmd.Flags().StringP("namespace", "n", "", "show only what is in the `namespace`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l, err := in.load(cmd.Context(), args, s.in)
		if err != nil {
			return err
		}
		defer l.close()
		if err := l.knows(*namespace); err != nil {
			return err
		}
		r, err := l.overview(cmd.Context(), in, *namespace)
		if err != nil {
			return err
		}
		switch output.Value {
		case "json":
			return process.WriteJSON(s.out, r)
		case "yaml":
			text, err := marshalYAML(r)
			if err == nil {
				_, err = s.out.Write(text)
			}
			return err
		}
		return r.Print(s.out, output.Value == "wide", screen.Of(s.out))
	}
	return cmd
}

// overview is of what was read: in a cluster of what is written there.
func (l *look) overview(ctx context.Context, in *input, namespace string) (*overview.Report, error) {
	of := overview.Input{Findings: l.Findings}
	if l.client != nil {
		c, more, err := l.inspect(ctx, in, false)
		if err != nil {
			return nil, err
		}
		of.Cluster, of.Findings = c, slices.Concat(more, l.Findings)
		of.Written = inspect.Written(l.set, dialect.ControllerName, l.Statuses)
	}
	of.Set, of.Statuses = l.set, l.Statuses // after inspect, which may have read again
	return overview.Of(of, namespace), nil
}
