package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/explain"
	"github.com/weirmesh/weir/internal/explain/access"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/screen"
)

func newAccess(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access [PATH...]",
		Short: "Show who may do what to whom",
		Long: `Access shows what TrafficRoles and TrafficTargets allow, those of files or,
without any, those of the cluster that kubectl talks to: which workloads deny
what nothing allows (governed, or deny-all) and which are open to everybody, and
then a row for each source that may do something to a workload, with methods,
paths, ports, and the rule and binding that allow it. Whether one call is
allowed, and why not: "weir explain --from".

-o dot is a graph for Graphviz: workloads and other clients, with an edge where
something is allowed.`,
		Example: `  weir access mesh/
  weir access                                     in a cluster
  weir access --to service/shop/orders mesh/
  weir access --from deployment/shop/cart mesh/
  weir access -n shop -o json mesh/ | jq '.grants[].target'
  weir access -o dot mesh/ | dot -Tsvg > access.svg`,
	}
	output := outputFlag(cmd, "text", "json", "dot")
	in := newInput(s, cmd)
	in.workloads = true
	var f access.Filter
	cmd.Flags().StringVar(&f.To, "to", "", "`workload` that is called: KIND/NAMESPACE/NAME, such as service/shop/orders, or NAMESPACE/NAME")
	cmd.Flags().StringVar(&f.From, "from", "", "`client` that calls, as for \"weir explain --from\"")
	cmd.Flags().StringVarP(&f.Namespace, "namespace", "n", "", "show only what is called in the `namespace`, or from it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l, err := in.load(cmd.Context(), args, s.in)
		if err != nil {
			return err
		}
		defer l.close()
		if err := l.knows(f.Namespace); err != nil {
			return err
		}
		served := l.accessServed()
		m, err := served.Matrix(f)
		if err != nil {
			return accessFault(accessFlag(err, f), err)
		}
		switch output.Value {
		case "json":
			out, err := explain.WithOrigins(m, served.Origin)
			if err != nil {
				return err
			}
			return process.WriteJSON(s.out, out)
		case "dot":
			_, err := io.WriteString(s.out, m.DOT())
			return err
		}
		return m.Print(s.out, screen.Of(s.out))
	}
	cmd.AddCommand(newAccessGenerate(s))
	return cmd
}

// accessFlag is the flag whose value is wrong.
func accessFlag(err error, f access.Filter) string {
	if who, ok := err.(*access.WhoError); ok && who.Who == f.To {
		return "--to"
	}
	return "--from"
}
