package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/topology"
	"github.com/weirmesh/weir/internal/traffic"
)

// trafficPlugin is the name of the hidden command that "kubectl traffic" is: "weir traffic" that asks a cluster.
const trafficPlugin = "kubectl-traffic"

func newTraffic(s streams, name string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name + " COMMAND",
		Short: "Show live traffic: rates, success and latency, and who talks to whom",
		Long: `Traffic shows what was measured of the traffic of pods, and of what contains
pods (deployments, services, namespaces and so on), lately: SMI's Traffic
Metrics. It asks the admin endpoint of a "weir run"; with --kubeconfig or
--context it asks a cluster that Weir's controller serves, with your rights
there. As "kubectl traffic" or "kubectl weir traffic" it asks the cluster unless
--admin names a run. docs/traffic.md says more.`,
		Args:   onlyCommands,
		RunE:   func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Hidden: name == trafficPlugin,
	}
	cmd.DisableFlagsInUseLine = true
	for _, c := range []func(*trafficAPI) *cobra.Command{newTrafficTop, newTrafficEdges, newTrafficTopology, newTrafficTap} {
		cmd.AddCommand(c(&trafficAPI{place: place{admin: admin{streams: s}, plugin: s.plugin || name == trafficPlugin}}))
	}
	return cmd
}

// show prints text once, or again and again with watch, on a terminal in place of what was there.
func (a *trafficAPI) show(ctx context.Context, watch bool, look func(s screen.Screen) (string, error)) error {
	s := screen.Of(a.streams.out)
	if !watch {
		text, err := look(s)
		if err != nil {
			return err
		}
		a.printWarned()
		return s.Print(a.streams.out, text)
	}
	return a.watch(ctx, func(time.Time) (any, string, bool, error) {
		s := screen.Of(a.streams.out)
		text, err := look(s)
		text += a.warned()
		return text, text, false, err
	})
}

// trafficReport is how top and edges show resources: a table, again and again with --watch, or the objects for programs.
type trafficReport struct {
	api    *trafficAPI
	output *flags.Choice
	watch  *bool
	// read asks for what is shown: the answer itself, for programs, and as a list.
	read func() (answer any, items *metrics.TrafficMetricsList, err error)
	// text is their table.
	text func(items *metrics.TrafficMetricsList, o traffic.Options, s screen.Screen) string
}

// reportFlags adds the flags of a report.
func (a *trafficAPI) reportFlags(cmd *cobra.Command, lists bool) trafficReport {
	r := trafficReport{api: a, output: outputFlag(cmd, "text", "wide", "json", "yaml"), watch: cmd.Flags().BoolP("watch", "w", false, "show it again and again")}
	a.flags(cmd, lists)
	return r
}

func (r trafficReport) show(ctx context.Context) error {
	if !*r.watch && r.output.Value != "text" && r.output.Value != "wide" {
		v, _, err := r.read()
		if err != nil {
			return err
		}
		r.api.printWarned()
		return r.api.print(r.output.Value, v, "", screen.Screen{})
	}
	return r.api.show(ctx, *r.watch, func(s screen.Screen) (string, error) {
		_, items, err := r.read()
		if err != nil {
			return "", err
		}
		o := traffic.Options{Wide: r.output.Value == "wide"}
		if *r.watch && s.Height > 0 {
			o.Most = max(s.Height-3, 1) // the head, what is left out, and the prompt
		}
		return r.text(items, o, s), nil
	})
}

// trafficOrder is a flag of an order.
func trafficOrder(f *pflag.FlagSet) *flags.Choice {
	c := flags.NewChoice(traffic.Orders()...)
	f.Var(&c, "sort", "what to sort by; what should be looked at first comes first")
	return &c
}

func newTrafficTop(a *trafficAPI) *cobra.Command {
	cmd := &cobra.Command{
		Use: "top KIND [NAME]", Short: "Show success, rate and latency of resources",
		Long: `Top shows the traffic that pods received lately, or that the pods of a
deployment, a service, a namespace and so on received together: which share of
the requests succeeded (an answer below 500), how many there were a second, and
the percentiles of their latencies. KIND is pods, deployments, services,
namespaces, nodes, replicasets, statefulsets, daemonsets, jobs or
replicationcontrollers, or a short name of these as kubectl has them.`,
		Example: "  weir traffic top pods\n  weir traffic top deploy -n shop --sort success\n  weir traffic top pods --watch\n  weir traffic top svc cart -o yaml",
		Args:    kindAndName,
	}
	order := trafficOrder(cmd.Flags())
	report := a.reportFlags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.open(); err != nil {
			return err
		}
		defer a.close()
		r, err := kindOf(strings.Split(args[0], "/")[0])
		if err != nil {
			return err
		}
		var of, name string
		if len(args) > 1 || strings.Contains(args[0], "/") {
			if r, of, name, err = a.oneOf(args); err != nil {
				return err
			}
			if a.every {
				return flags.Errorf("--all-namespaces is for lists, and %s names one resource: leave one of them out, or give its namespace by --namespace", quotedArgs(args))
			}
		}
		report.read = func() (any, *metrics.TrafficMetricsList, error) {
			if name == "" {
				l, err := a.list(cmd.Context(), r)
				return l, &l, err
			}
			var one metrics.TrafficMetrics
			err := a.get(cmd.Context(), pathOf(r, of, name), url.Values{}, &one)
			return one, &metrics.TrafficMetricsList{Items: []metrics.TrafficMetrics{one}}, err
		}
		report.text = func(items *metrics.TrafficMetricsList, o traffic.Options, s screen.Screen) string {
			rows := traffic.Rows(items)
			if len(rows) == 0 {
				return fmt.Sprintf("There are no %s%s.\n", r.Plural, a.within(r))
			}
			traffic.Sort(rows, traffic.Order(order.Value))
			o.Namespaces = r.Namespaced && (a.every || traffic.Namespaces(rows) > 1)
			return traffic.Top(rows, o, s)
		}
		return report.show(cmd.Context())
	}
	return cmd
}

// quotedArgs are arguments as one text for a message.
func quotedArgs(args []string) string { return strconv.Quote(strings.Join(args, " ")) }

// kindAndName is the Args of commands about resources of a kind, or about one.
func kindAndName(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return flags.Errorf("of what? Give a kind: %s", strings.Join(traffic.Kinds(), ", "))
	case 1, 2:
		return nil
	}
	return flags.Errorf("unexpected argument %q", args[2])
}

func newTrafficEdges(a *trafficAPI) *cobra.Command {
	cmd := &cobra.Command{
		Use: "edges KIND/NAME", Short: "Show with whom a resource exchanges traffic",
		Long: `Edges shows the traffic of one resource with each other one, in both
directions: "from" is what it received from the other, "to" what it sent there.
The others are resources of the same kind where they can be, or of --kind; else
what runs their pods, else their namespace.`,
		Example: "  weir traffic edges deployment/cart -n shop\n  weir traffic edges pod/cart-7d9 --kind deployments",
		Args:    kindAndName,
	}
	as := cmd.Flags().String("kind", "", "`kind` of the other sides")
	report := a.reportFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.open(); err != nil {
			return err
		}
		defer a.close()
		r, namespace, name, err := a.oneOf(args)
		if err != nil {
			return err
		}
		other := r
		if *as != "" {
			if other, err = kindOf(*as); err != nil {
				return err
			}
		}
		report.read = func() (any, *metrics.TrafficMetricsList, error) {
			l, err := a.edges(cmd.Context(), r, namespace, name, other)
			return l, &l, err
		}
		report.text = func(items *metrics.TrafficMetricsList, o traffic.Options, s screen.Screen) string {
			rows := traffic.Rows(items)
			if len(rows) == 0 {
				return fmt.Sprintf("%s exchanged no traffic in the last %s.\n", traffic.Side(&items.Resource), a.window)
			}
			return traffic.Edges(rows, o, s)
		}
		return report.show(cmd.Context())
	}
	return cmd
}

func newTrafficTopology(a *trafficAPI) *cobra.Command {
	cmd := &cobra.Command{
		Use: "topology KIND", Short: "Draw who talks to whom",
		Long: `Topology draws the resources of a kind that had traffic lately, and an arrow
for all traffic between two of them, with its rate and, if not all of it
succeeded, its success. -o dot is for Graphviz, svg for browsers.`,
		Example: "  weir traffic topology deployment\n  weir traffic topology pods -n shop -o svg > shop.svg",
		Args:    kindAndName,
	}
	output := outputFlag(cmd, "text", "dot", "json", "svg")
	watch := cmd.Flags().BoolP("watch", "w", false, "draw it again and again")
	a.flags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.open(); err != nil {
			return err
		}
		defer a.close()
		if len(args) > 1 {
			return flags.Errorf("unexpected argument %q", args[1])
		}
		r, err := kindOf(args[0])
		if err != nil {
			return err
		}
		if output.Value != "text" {
			if *watch {
				return flags.Errorf("--watch is for text")
			}
			g, err := traffic.Topology(cmd.Context(), reader{a}, r)
			if err != nil {
				return err
			}
			a.printWarned()
			return writeGraph(a.streams.out, output.Value, g)
		}
		return a.show(cmd.Context(), *watch, func(s screen.Screen) (string, error) {
			g, err := traffic.Topology(cmd.Context(), reader{a}, r)
			if err != nil {
				return "", err
			}
			if len(g.Nodes) == 0 {
				return fmt.Sprintf("No %s%s exchanged traffic in the last %s.\n", r.Plural, a.within(r), a.window), nil
			}
			return topology.Text(g, topology.Options{Width: s.Width}), nil
		})
	}
	return cmd
}

// writeGraph writes a graph for programs. What others wrote in it is made visible there.
func writeGraph(out io.Writer, format string, g topology.Graph) error {
	var text string
	switch format {
	case "dot":
		text = topology.DOT(g)
	case "svg":
		text = topology.SVG(g, topology.Options{})
	default:
		b, err := topology.JSON(g)
		if err != nil {
			return err
		}
		text = string(b)
	}
	_, err := io.WriteString(out, text)
	return err
}
