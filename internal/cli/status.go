package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/kube/inspect"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
)

func newStatus(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [PATH...]",
		Short: "Show Gateways, routes and splits, and what is wrong with each",
		Long: `Status lists Gateways, with addresses, listeners, attached routes and, in a
cluster, their proxies; ListenerSets; routes, with hostnames and parents;
TrafficSplits, with the weight and share of each leaf; and policies. Problems
are shown under each object, with reason and fix. Without PATHs it reads a
Kubernetes cluster, with your own rights, and shows the statuses that are
written there. For files it shows the statuses that a cluster would have.
"weir check" finds more and has an exit code.`,
		Example: `  weir status
  weir status -n shop -o wide
  weir status -o json | jq '.objects[] | select(.programmed == "False")'
  weir status routes/`,
	}
	output := outputFlag(cmd, "text", "wide", "json", "yaml")
	in := newInput(cmd)
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
		r, err := l.status(cmd.Context(), in, *namespace)
		if err != nil {
			return err
		}
		switch output.Value {
		case "json":
			return process.WriteJSON(s.out, r)
		case "yaml":
			text, err := yaml.Marshal(r)
			if err == nil {
				_, err = s.out.Write(text)
			}
			return err
		}
		return r.print(s.out, output.Value == "wide", screenOf(s.out))
	}
	return cmd
}

// statusReport is the result of status.
type statusReport struct {
	// Cluster is left out for files.
	Cluster *clusterSummary `json:"cluster,omitempty"`
	// Objects are by kind, in the order of statusKinds, then by namespace and name.
	Objects []*objectStatus `json:"objects"`
	// Problems are the problems of no object above.
	Problems []resource.Finding `json:"problems,omitempty"`
}

// objectStatus is one object that has a status. Fields that its kind does not have are left out.
type objectStatus struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Origin is where it was read, for files.
	Origin string `json:"origin,omitempty"`
	// Accepted, Programmed and Resolved are the statuses of these conditions, the worst of all parents'; empty if there
	// is none.
	Accepted   string           `json:"accepted,omitempty"`
	Programmed string           `json:"programmed,omitempty"`
	Resolved   string           `json:"resolved,omitempty"`
	Class      string           `json:"class,omitempty"`
	Addresses  []string         `json:"addresses,omitempty"`
	Listeners  []listenerRow    `json:"listeners,omitempty"`
	Routes     *int             `json:"routes,omitempty"`
	Hostnames  []string         `json:"hostnames,omitempty"`
	Parents    []string         `json:"parents,omitempty"`
	Split      *splitRow        `json:"split,omitempty"`
	Proxies    *proxiesStatus   `json:"proxies,omitempty"`
	Problems   []objectProblem  `json:"problems,omitempty"`
	conditions []namedCondition // the bad ones
}

type listenerRow struct {
	Name     string `json:"name"`
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`
	Hostname string `json:"hostname,omitempty"`
	Routes   int32  `json:"routes"`
}

// proxiesStatus is how far a Gateway's proxies are.
type proxiesStatus struct {
	Wanted int32 `json:"wanted"`
	Ready  int32 `json:"ready"`
	// Current run the newest configuration, Version; nil if that is not known.
	Current *int   `json:"current,omitempty"`
	Version string `json:"version,omitempty"`
}

// objectProblem is a condition or a finding.
type objectProblem struct {
	Severity resource.Severity `json:"severity"`
	// Code of a finding, or Condition and Reason, "Accepted: NotAllowedByListeners".
	Code      string `json:"code,omitempty"`
	Condition string `json:"condition,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Field     string `json:"field,omitempty"`
	Message   string `json:"message"`
	Fix       string `json:"fix,omitempty"`
}

type namedCondition struct {
	where string // a listener or a parent
	resource.Condition
}

// statusKinds is the order in which kinds are shown.
var statusKinds = []string{"GatewayClass", "Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute", "TCPRoute", splitKind, "BackendTLSPolicy"}

// status reports on what was read: in a cluster by the statuses that are written there.
func (l *look) status(ctx context.Context, in *input, namespace string) (*statusReport, error) {
	r := &statusReport{Objects: []*objectStatus{}}
	statuses, findings := l.Statuses, l.Findings
	var gateways map[model.GatewayKey]*inspect.Gateway // nil if they are not known
	if l.client != nil {
		c, more, err := l.inspect(ctx, in, false)
		if err != nil {
			return nil, err
		}
		r.Cluster = summarise(c)
		if c.Seen {
			gateways = c.Gateways
		}
		findings = slices.Concat(more, l.Findings)
		statuses = shown(l.Statuses, inspect.Written(l.set, dialect.ControllerName, l.Statuses))
	}
	b := statusBuilder{set: l.set, gateways: gateways, by: map[resource.Key]*objectStatus{}}
	for i := range statuses {
		if s := &statuses[i]; slices.Contains(statusKinds, s.Ref.Kind) {
			b.add(s)
		}
	}
	b.count()
	b.problems(findings)
	for _, o := range b.all {
		if namespace == "" || o.Namespace == namespace {
			r.Objects = append(r.Objects, o)
		}
	}
	slices.SortStableFunc(r.Objects, func(x, y *objectStatus) int {
		return cmp.Or(cmp.Compare(slices.Index(statusKinds, x.Kind), slices.Index(statusKinds, y.Kind)),
			cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	r.Problems = within(b.others, namespace)
	return r, nil
}

// shown are the written statuses, with an empty one for objects without.
func shown(all, written []resource.Status) []resource.Status {
	of := make(map[model.Ref]resource.Status, len(written))
	for _, w := range written {
		of[w.Ref] = w
	}
	out := make([]resource.Status, 0, len(all))
	for _, s := range all {
		show, ok := of[s.Ref]
		if !ok {
			show = resource.Status{Ref: s.Ref}
		}
		out = append(out, show)
	}
	return out
}

// statusBuilder turns statuses and findings into rows.
type statusBuilder struct {
	set      *resource.Set
	gateways map[model.GatewayKey]*inspect.Gateway
	all      []*objectStatus
	by       map[resource.Key]*objectStatus
	others   []resource.Finding
}

func (b *statusBuilder) add(s *resource.Status) {
	o := &objectStatus{Kind: s.Ref.Kind, Namespace: s.Ref.Namespace, Name: s.Ref.Name, Origin: b.set.Origin(s.Ref).String()}
	b.all = append(b.all, o)
	b.by[key(o.Kind, o.Namespace, o.Name)] = o
	o.take("", s.Conditions)
	for _, a := range s.Addresses {
		o.Addresses = append(o.Addresses, a.Value)
	}
	for _, p := range s.Parents {
		o.parent(p.ParentRef, p.Conditions)
	}
	for _, a := range s.Ancestors {
		o.parent(a.AncestorRef, a.Conditions)
	}
	attached := map[string]int32{}
	for _, l := range s.Listeners {
		attached[l.Name] = l.AttachedRoutes
		o.listener(l)
	}
	b.spec(o, attached)
}

func key(kind, namespace, name string) resource.Key {
	return resource.Key{Kind: kind, Namespace: namespace, Name: name}
}

// take notes conditions; those of a listener or parent are only noted if they are bad.
func (o *objectStatus) take(where string, conditions []resource.Condition) {
	for _, c := range conditions {
		status := string(c.Status)
		switch c.Type {
		case "Accepted":
			o.Accepted = worse(o.Accepted, status)
		case "Programmed":
			o.Programmed = worse(o.Programmed, status)
		case "ResolvedRefs":
			o.Resolved = worse(o.Resolved, status)
		case "PartiallyInvalid", "OverlappingTLSConfig":
			if status == "True" {
				o.conditions = append(o.conditions, namedCondition{where, c})
			}
			continue
		default:
			continue
		}
		if status == "False" {
			o.conditions = append(o.conditions, namedCondition{where, c})
		}
	}
}

// listener notes the bad conditions of a listener. They do not change its Gateway's columns.
func (o *objectStatus) listener(l resource.ListenerStatus) {
	var inner objectStatus
	inner.take("listener "+l.Name, l.Conditions)
	o.conditions = append(o.conditions, inner.conditions...)
}

func (o *objectStatus) parent(ref gatewayv1.ParentReference, conditions []resource.Condition) {
	name := parentName(ref, o.Namespace)
	o.Parents = append(o.Parents, name)
	o.take("parent "+name, conditions)
}

// parentName is "namespace/name", with the kind if that is not Gateway, and the section if there is one.
func parentName(ref gatewayv1.ParentReference, namespace string) string {
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	name := namespace + "/" + string(ref.Name)
	if ref.Kind != nil && *ref.Kind != "Gateway" {
		name = string(*ref.Kind) + " " + name
	}
	if ref.SectionName != nil {
		name += "/" + string(*ref.SectionName)
	}
	return name
}

// worse returns the worse of two statuses of a condition; empty means none.
func worse(a, b string) string {
	for _, s := range []string{"False", "Unknown", "True"} {
		if a == s || b == s {
			return s
		}
	}
	return cmp.Or(a, b)
}

// spec adds what is in the object itself.
func (b *statusBuilder) spec(o *objectStatus, attached map[string]int32) {
	switch o.Kind {
	case "Gateway":
		g := b.set.Gateway(o.Namespace, o.Name)
		if g == nil {
			return
		}
		o.Class = string(g.Spec.GatewayClassName)
		for _, l := range g.Spec.Listeners {
			o.Listeners = append(o.Listeners, row(string(l.Name), l.Port, l.Protocol, l.Hostname, attached))
		}
		b.proxies(o)
	case "ListenerSet":
		for _, s := range b.set.ListenerSets {
			if s.Namespace != o.Namespace || s.Name != o.Name {
				continue
			}
			parent := s.Namespace
			if n := s.Spec.ParentRef.Namespace; n != nil {
				parent = string(*n)
			}
			o.Parents = []string{parent + "/" + string(s.Spec.ParentRef.Name)}
			for _, l := range s.Spec.Listeners {
				o.Listeners = append(o.Listeners, row(string(l.Name), l.Port, l.Protocol, l.Hostname, attached))
			}
		}
	case splitKind:
		for _, t := range b.set.TrafficSplits {
			if t.Namespace == o.Namespace && t.Name == o.Name {
				o.Split = newSplitRow(t.Spec)
			}
		}
	case "HTTPRoute":
		for _, r := range b.set.HTTPRoutes {
			o.hostnames(r.Namespace, r.Name, r.Spec.Hostnames)
		}
	case "GRPCRoute":
		for _, r := range b.set.GRPCRoutes {
			o.hostnames(r.Namespace, r.Name, r.Spec.Hostnames)
		}
	}
}

func row(name string, port int32, protocol gatewayv1.ProtocolType, host *gatewayv1.Hostname, attached map[string]int32) listenerRow {
	r := listenerRow{Name: name, Port: port, Protocol: string(protocol), Routes: attached[name]}
	if host != nil {
		r.Hostname = string(*host)
	}
	return r
}

func (o *objectStatus) hostnames(namespace, name string, hosts []gatewayv1.Hostname) {
	if namespace != o.Namespace || name != o.Name {
		return
	}
	for _, h := range hosts {
		o.Hostnames = append(o.Hostnames, string(h))
	}
}

func (b *statusBuilder) proxies(o *objectStatus) {
	g := b.gateways[model.GatewayOf(o.Namespace, o.Name)]
	if g == nil {
		return
	}
	p := &proxiesStatus{Version: g.Version}
	if d := g.Deployment; d != nil {
		p.Wanted, p.Ready = 1, d.Status.ReadyReplicas
		if d.Spec.Replicas != nil {
			p.Wanted = *d.Spec.Replicas
		}
	}
	if g.Version != "" {
		current := 0
		for _, proxy := range g.Proxies {
			if proxy.Version == g.Version && proxy.Err == "" {
				current++
			}
		}
		p.Current = &current
	}
	o.Proxies = p
}

// count counts the routes of each Gateway, including those of its ListenerSets.
func (b *statusBuilder) count() {
	gateway := map[string]string{}
	for _, o := range b.all {
		switch {
		case o.Kind == "Gateway":
			o.Routes = new(int)
			gateway[o.Namespace+"/"+o.Name] = o.Namespace + "/" + o.Name
		case o.Kind == "ListenerSet" && len(o.Parents) > 0:
			gateway["ListenerSet "+o.Namespace+"/"+o.Name] = o.Parents[0]
		}
	}
	for _, o := range b.all {
		if !strings.HasSuffix(o.Kind, "Route") {
			continue
		}
		seen := map[string]bool{}
		for _, p := range o.Parents {
			if parts := strings.SplitN(p, "/", 3); len(parts) == 3 {
				p = parts[0] + "/" + parts[1]
			}
			refused := slices.ContainsFunc(o.conditions, func(c namedCondition) bool {
				return c.Type == "Accepted" && (c.where == "parent "+p || strings.HasPrefix(c.where, "parent "+p+"/"))
			})
			name := gateway[p]
			namespace, short, _ := strings.Cut(name, "/")
			if g := b.by[key("Gateway", namespace, short)]; g != nil && !refused && !seen[name] {
				seen[name] = true
				*g.Routes++
			}
		}
	}
}

// problems puts findings and bad conditions under their objects. A condition that a finding explains is not told twice.
func (b *statusBuilder) problems(findings []resource.Finding) {
	for _, f := range findings {
		o := b.by[key(f.Ref.Kind, f.Ref.Namespace, f.Ref.Name)]
		if o == nil {
			b.others = append(b.others, f)
			continue
		}
		o.Problems = append(o.Problems, objectProblem{
			Severity: f.Severity, Code: f.Code, Field: f.Ref.Field, Message: f.Message, Fix: f.Fix,
		})
	}
	for _, o := range b.all {
		for _, c := range o.conditions {
			told := slices.ContainsFunc(o.Problems, func(p objectProblem) bool {
				return c.Message != "" && (strings.Contains(p.Message, c.Message) || strings.Contains(c.Message, p.Message))
			})
			if told || len(o.Problems) > 0 && follows(c) {
				continue
			}
			o.Problems = append(o.Problems, objectProblem{
				Severity: resource.Error, Condition: c.Type, Reason: c.Reason, Field: c.where, Message: cmpOr(c.Message, c.Type+" is "+string(c.Status)),
			})
		}
	}
}

// follows means that a condition only repeats another one or a finding: a Gateway's condition those of its listeners,
// their conditions its own, PartiallyInvalid the invalid part.
func follows(c namedCondition) bool {
	return c.Type == "PartiallyInvalid" || strings.HasPrefix(c.Reason, "ListenersNot") || c.Type == "Programmed" && strings.HasPrefix(c.where, "listener ")
}
