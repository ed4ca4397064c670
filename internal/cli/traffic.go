package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/topology"
	"github.com/weirmesh/weir/internal/traffic"
	"github.com/weirmesh/weir/internal/visible"
)

func newTraffic(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "traffic COMMAND",
		Short: "Show live traffic: rates, success and latency, and who talks to whom",
		Long: `Traffic shows what was measured of the traffic of pods, and of what contains
pods (deployments, services, namespaces and so on), lately: SMI's Traffic
Metrics. It asks the admin endpoint of a "weir run". docs/traffic.md says more.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.DisableFlagsInUseLine = true
	cmd.AddCommand(newTrafficTop(s), newTrafficEdges(s), newTrafficTopology(s), newTrafficTap(s))
	return cmd
}

// trafficAPI is where Traffic Metrics are read.
type trafficAPI struct {
	admin
	namespace string
	every     bool
	selector  string
	window    time.Duration
}

func newTrafficAPI(s streams) *trafficAPI { return &trafficAPI{admin: admin{streams: s}} }

func (a *trafficAPI) flags(cmd *cobra.Command, lists bool) {
	f := cmd.Flags()
	a.admin.flags(f)
	f.DurationVar(&a.window, "window", 30*time.Second, "`time` up to now that is looked at; what is kept may be less")
	if lists {
		f.StringVarP(&a.namespace, "namespace", "n", "", "only what is in the `namespace` (default: all)")
		f.BoolVarP(&a.every, "all-namespaces", "A", false, "all namespaces, with a column for them")
		f.StringVarP(&a.selector, "selector", "l", "", "only resources whose labels match the `selector`; it does not restrict what was measured")
	} else {
		f.StringVarP(&a.namespace, "namespace", "n", "", "`namespace` of the resource (default \"default\")")
	}
	fromEnvironment(cmd)
}

// check fails for flags that cannot be meant.
func (a *trafficAPI) check() error {
	if a.every && a.namespace != "" {
		return flags.Errorf("--all-namespaces and --namespace %s: give one of them", a.namespace)
	}
	if a.window <= 0 {
		return flags.Errorf("--window %s: want more than 0", a.window)
	}
	if _, err := labels.Parse(a.selector); err != nil {
		return flags.Errorf("--selector %q: %w", a.selector, err)
	}
	return nil
}

// kindOf is the kind of an argument.
func kindOf(word string) (metrics.Resource, error) {
	r, ok := traffic.Kind(word)
	if !ok {
		return r, flags.Errorf("%q is no kind that has metrics: there are %s", word, strings.Join(traffic.Kinds(), ", "))
	}
	return r, nil
}

// oneOf is the resource of arguments: KIND/NAME, KIND NAME, or with the name as NAMESPACE/NAME.
func (a *trafficAPI) oneOf(args []string) (r metrics.Resource, namespace, name string, err error) {
	parts := strings.Split(strings.Join(args, "/"), "/")
	if r, err = kindOf(parts[0]); err != nil {
		return r, "", "", err
	}
	wrong := flags.Errorf("%q names no resource: write KIND/NAME", strings.Join(args, " "))
	if slices.Contains(parts, "") {
		return r, "", "", wrong
	}
	switch {
	case len(parts) == 2 && !r.Namespaced:
		return r, "", parts[1], nil
	case len(parts) == 2:
		return r, cmp.Or(a.namespace, "default"), parts[1], nil
	case len(parts) == 3 && r.Namespaced && (a.namespace == "" || a.namespace == parts[1]):
		return r, parts[1], parts[2], nil
	}
	return r, "", "", wrong
}

// get reads a path below the API's version.
func (a *trafficAPI) get(ctx context.Context, path string, query url.Values, out any) error {
	query.Set("window", a.window.String())
	const version = metrics.DraftGroup + "/" + metrics.Draft
	resp, err := a.do(ctx, http.MethodGet, "/apis/"+version+"/"+path, query)
	if err != nil {
		return err
	}
	if resp.status == http.StatusOK {
		return resp.into(out)
	}
	return refusal(resp)
}

// refusal is the error that an answer of the API is.
func refusal(resp *answer) error {
	var status metav1.Status
	if json.Unmarshal(resp.body, &status) == nil && status.Message != "" {
		return errors.New(visible.Text(status.Message))
	}
	if resp.status == http.StatusNotFound {
		return fmt.Errorf("%s has no Traffic Metrics: is it the admin endpoint of weir run?", resp.host)
	}
	return fmt.Errorf("%s answers %d: %s", resp.host, resp.status, resp.text())
}

// list reads what was measured at the resources of a kind.
func (a *trafficAPI) list(ctx context.Context, r metrics.Resource) (l metrics.TrafficMetricsList, err error) {
	query := url.Values{}
	if a.selector != "" {
		query.Set("labelSelector", a.selector)
	}
	path := r.Plural
	if a.namespace != "" && r.Namespaced {
		path = "namespaces/" + a.namespace + "/" + path
	}
	err = a.get(ctx, path, query, &l)
	return l, err
}

// pathOf is the path of one resource.
func pathOf(r metrics.Resource, namespace, name string) string {
	path := r.Plural + "/" + name
	if r.Namespaced {
		path = "namespaces/" + namespace + "/" + path
	}
	return path
}

// edges reads the edges of a resource, with the other sides as resources of a kind where they can be.
func (a *trafficAPI) edges(ctx context.Context, r metrics.Resource, namespace, name string, as metrics.Resource) (l metrics.TrafficMetricsList, err error) {
	query := url.Values{}
	if as.Plural != r.Plural {
		query.Set("kind", as.Plural)
	}
	err = a.get(ctx, pathOf(r, namespace, name)+"/"+metrics.SubResource, query, &l)
	return l, err
}

// format prints a list or another value for programs; ok is false for text.
func (a *trafficAPI) format(format string, v any) (ok bool, err error) {
	if format != "json" && format != "yaml" {
		return false, nil
	}
	return true, a.print(format, v, "", screen.Screen{})
}

// show prints text once, or again and again with watch, on a terminal in place of what was there.
func (a *trafficAPI) show(ctx context.Context, watch bool, look func(s screen.Screen) (string, error)) error {
	s := screen.Of(a.streams.out)
	if !watch {
		text, err := look(s)
		if err != nil {
			return err
		}
		return s.Print(a.streams.out, text)
	}
	return a.watch(ctx, func(time.Time) (any, string, bool, error) {
		s := screen.Of(a.streams.out)
		text, err := look(s)
		return text, text, false, err
	})
}

// trafficOrder is a flag of an order.
func trafficOrder(f *pflag.FlagSet) *flags.Choice {
	c := flags.NewChoice(traffic.Orders()...)
	f.Var(&c, "sort", "what to sort by; what should be looked at first comes first")
	return &c
}

func newTrafficTop(s streams) *cobra.Command {
	a := newTrafficAPI(s)
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
	output := outputFlag(cmd, "text", "wide", "json", "yaml")
	watch := cmd.Flags().BoolP("watch", "w", false, "show it again and again")
	order := trafficOrder(cmd.Flags())
	a.flags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.check(); err != nil {
			return err
		}
		r, err := kindOf(strings.Split(args[0], "/")[0])
		if err != nil {
			return err
		}
		var of, name string
		if len(args) > 1 || strings.Contains(args[0], "/") {
			if r, of, name, err = a.oneOf(args); err != nil {
				return err
			}
		}
		read := func() (v any, rows []traffic.Row, err error) {
			if name == "" {
				l, err := a.list(cmd.Context(), r)
				return l, traffic.Rows(&l), err
			}
			var one metrics.TrafficMetrics
			err = a.get(cmd.Context(), pathOf(r, of, name), url.Values{}, &one)
			return one, traffic.Rows(&metrics.TrafficMetricsList{Items: []metrics.TrafficMetrics{one}}), err
		}
		if !*watch {
			v, _, err := read()
			if err != nil {
				return err
			}
			if ok, err := a.format(output.Value, v); ok {
				return err
			}
		}
		return a.show(cmd.Context(), *watch, func(s screen.Screen) (string, error) {
			_, rows, err := read()
			if err != nil {
				return "", err
			}
			if len(rows) == 0 {
				return fmt.Sprintf("There are no %s.\n", r.Plural), nil
			}
			traffic.Sort(rows, traffic.Order(order.Value))
			o := traffic.Options{Wide: output.Value == "wide", Namespaces: r.Namespaced && (a.every || traffic.Namespaces(rows) > 1)}
			if *watch && s.Height > 0 {
				o.Most = max(s.Height-3, 1) // the head, what is left out, and the prompt
			}
			return traffic.Top(rows, o, s), nil
		})
	}
	return cmd
}

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

func newTrafficEdges(s streams) *cobra.Command {
	a := newTrafficAPI(s)
	cmd := &cobra.Command{
		Use: "edges KIND/NAME", Short: "Show with whom a resource exchanges traffic",
		Long: `Edges shows the traffic of one resource with each other one, in both
directions: "from" is what it received from the other, "to" what it sent there.
The others are resources of the same kind where they can be, or of --as; else
what runs their pods, else their namespace.`,
		Example: "  weir traffic edges deployment/cart -n shop\n  weir traffic edges pod/cart-7d9 --as deployments",
		Args:    kindAndName,
	}
	output := outputFlag(cmd, "text", "wide", "json", "yaml")
	watch := cmd.Flags().BoolP("watch", "w", false, "show it again and again")
	as := cmd.Flags().String("as", "", "`kind` of the other sides")
	a.flags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.check(); err != nil {
			return err
		}
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
		read := func() (metrics.TrafficMetricsList, error) { return a.edges(cmd.Context(), r, namespace, name, other) }
		if !*watch && output.Value != "text" && output.Value != "wide" {
			l, err := read()
			if err != nil {
				return err
			}
			_, err = a.format(output.Value, l)
			return err
		}
		return a.show(cmd.Context(), *watch, func(s screen.Screen) (string, error) {
			l, err := read()
			if err != nil {
				return "", err
			}
			rows := traffic.Rows(&l)
			if len(rows) == 0 {
				return fmt.Sprintf("%s exchanged no traffic in the last %s.\n", traffic.Side(&l.Resource), a.window), nil
			}
			o := traffic.Options{Wide: output.Value == "wide"}
			if *watch && s.Height > 0 {
				o.Most = max(s.Height-3, 1)
			}
			return traffic.Edges(rows, o, s), nil
		})
	}
	return cmd
}

func newTrafficTopology(s streams) *cobra.Command {
	a := newTrafficAPI(s)
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
		if err := a.check(); err != nil {
			return err
		}
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
			return writeGraph(s.out, output.Value, g)
		}
		return a.show(cmd.Context(), *watch, func(s screen.Screen) (string, error) {
			g, err := traffic.Topology(cmd.Context(), reader{a}, r)
			if err != nil {
				return "", err
			}
			if len(g.Nodes) == 0 {
				return fmt.Sprintf("No %s exchanged traffic in the last %s.\n", r.Plural, a.window), nil
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

// reader is the API with the flags of a command, as traffic.Topology reads it.
type reader struct{ *trafficAPI }

// List implements traffic.API.
func (a reader) List(ctx context.Context, of metrics.Resource) (metrics.TrafficMetricsList, error) {
	return a.list(ctx, of)
}

// Edges implements traffic.API.
func (a reader) Edges(ctx context.Context, of metrics.Resource, namespace, name string) (metrics.TrafficMetricsList, error) {
	return a.edges(ctx, of, namespace, name, of)
}
