package overview

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/kube/inspect"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Report is the output of "weir status". Its JSON form is the output of -o json.
type Report struct {
	// Cluster is omitted for files.
	Cluster *inspect.Summary `json:"cluster,omitempty"`
	// Objects are sorted by kind, in the order of shownKinds, then by namespace and name.
	Objects []*objectStatus `json:"objects"`
	// Problems are those that belong to no object above.
	Problems []resource.Finding `json:"problems,omitempty"`

	kinds resource.Kinds // the kinds shown, in order
}

// objectStatus is one object that has a status. Fields that its kind does not have are left out.
type objectStatus struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Origin is where the object was read, for files.
	Origin string `json:"origin,omitempty"`
	// Accepted, Programmed, Resolved and Effective are the statuses of these conditions, the worst of all parents'. They are empty
	// if no parent reports one.
	Accepted   string        `json:"accepted,omitempty"`
	Programmed string        `json:"programmed,omitempty"`
	Resolved   string        `json:"resolved,omitempty"`
	Effective  string        `json:"effective,omitempty"`
	Class      string        `json:"class,omitempty"`
	Addresses  []string      `json:"addresses,omitempty"`
	Listeners  []listenerRow `json:"listeners,omitempty"`
	Routes     *int          `json:"routes,omitempty"`
	Hostnames  []string      `json:"hostnames,omitempty"`
	Parents    []string      `json:"parents,omitempty"`
	Split      *splitRow     `json:"split,omitempty"`
	// Columns are the other columns of its kind, by header.
	Columns    map[string][]string `json:"columns,omitempty"`
	Proxies    *proxiesStatus      `json:"proxies,omitempty"`
	Problems   []objectProblem     `json:"problems,omitempty"`
	conditions []namedCondition    // the bad ones
}

type listenerRow struct {
	Name     string `json:"name"`
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`
	Hostname string `json:"hostname,omitempty"`
	Routes   int32  `json:"routes"`
}

// proxiesStatus is the progress of a Gateway's proxies.
type proxiesStatus struct {
	Wanted int32 `json:"wanted"`
	Ready  int32 `json:"ready"`
	// Current is how many run the newest configuration, Version; nil if unknown.
	Current *int   `json:"current,omitempty"`
	Version string `json:"version,omitempty"`
}

// objectProblem is a condition or a finding.
type objectProblem struct {
	Severity resource.Severity `json:"severity"`
	// Code is a finding's. A condition has Condition and Reason instead: "Accepted: NotAllowedByListeners".
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

// shownKinds returns the kinds that have a status, in the order of output: policies last.
func shownKinds(all resource.Kinds) (shown resource.Kinds) {
	for _, policies := range []bool{false, true} {
		for _, k := range all {
			if k.Status != nil && k.Status.Ancestors == policies {
				shown = append(shown, k)
			}
		}
	}
	return shown
}

// Input is the input of an overview.
type Input struct {
	// Set is the set that was read. Statuses and Findings are the result of translating it.
	Set      *resource.Set
	Statuses []resource.Status
	Findings []resource.Finding
	// Cluster is the state of the cluster that was read, and Written are the statuses stored there; nil for files.
	Cluster *inspect.Cluster
	Written []resource.Status
}

// Of makes the overview of a namespace, or of all if namespace is empty. It does not change its input.
func Of(in Input, namespace string) *Report {
	r := &Report{Objects: []*objectStatus{}, kinds: shownKinds(in.Set.Kinds())}
	statuses := in.Statuses
	var gateways map[model.Owner]*inspect.Gateway // nil if their state is unknown
	if c := in.Cluster; c != nil {
		r.Cluster = c.Summary(namespace)
		if c.Seen {
			gateways = c.Gateways
		}
		statuses = shown(in.Statuses, in.Written)
	}
	b := statusBuilder{set: in.Set, gateways: gateways, by: map[resource.Key]*objectStatus{}}
	for i := range statuses {
		if s := &statuses[i]; r.kinds.Of(s.Ref) != nil {
			b.add(s)
		}
	}
	b.count()
	b.problems(in.Findings)
	for _, o := range b.all {
		if namespace == "" || o.Namespace == namespace {
			r.Objects = append(r.Objects, o)
		}
	}
	place := map[string]int{}
	for i, k := range r.kinds {
		place[k.RefName()] = i
	}
	slices.SortStableFunc(r.Objects, func(x, y *objectStatus) int {
		return cmp.Or(cmp.Compare(place[x.Kind], place[y.Kind]),
			cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	r.Problems = finding.Within(b.others, namespace)
	return r
}

// shown returns the written statuses, with an empty one for objects without.
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
	gateways map[model.Owner]*inspect.Gateway
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

// take notes conditions. It notes those of a listener or parent only if they are bad.
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
		case "Effective":
			o.Effective = worse(o.Effective, status)
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

// listener records the bad conditions of a listener. They do not change its Gateway's columns.
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

// parentName returns "namespace/name". It adds the kind if that is not Gateway, and the section if there is one.
func parentName(ref gatewayv1.ParentReference, namespace string) string {
	k := resource.ParentRefOf(ref, namespace)
	name := k.Namespace + "/" + k.Name
	if k.Kind != "Gateway" {
		name = k.Kind + " " + name
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

// spec adds the fields of the object's own spec.
func (b *statusBuilder) spec(o *objectStatus, attached map[string]int32) {
	k := b.set.Kinds().Of(model.Ref{Kind: o.Kind})
	if k == nil {
		return
	}
	object := b.set.Object(k.Key(o.Namespace, o.Name))
	if object == nil {
		return
	}
	for _, c := range k.Columns {
		if c.Cell == nil {
			continue
		}
		if o.Columns == nil {
			o.Columns = map[string][]string{}
		}
		o.Columns[c.Header] = c.Cell(object)
	}
	switch s := object.(type) {
	case *gatewayv1.Gateway:
		o.Class = string(s.Spec.GatewayClassName)
		for _, l := range s.Spec.Listeners {
			o.Listeners = append(o.Listeners, row(string(l.Name), l.Port, l.Protocol, l.Hostname, attached))
		}
		b.proxies(o)
	case *gatewayv1.ListenerSet:
		if parent, ok := resource.ParentOf(s); ok {
			o.Parents = []string{parent.Namespace + "/" + parent.Name}
		}
		for _, l := range s.Spec.Listeners {
			o.Listeners = append(o.Listeners, row(string(l.Name), l.Port, l.Protocol, l.Hostname, attached))
		}
	case *split.TrafficSplit:
		o.Split = newSplitRow(s.Spec)
	case *gatewayv1.HTTPRoute:
		o.hostnames(s.Spec.Hostnames)
	case *gatewayv1.GRPCRoute:
		o.hostnames(s.Spec.Hostnames)
	}
}

func row(name string, port int32, protocol gatewayv1.ProtocolType, host *gatewayv1.Hostname, attached map[string]int32) listenerRow {
	r := listenerRow{Name: name, Port: port, Protocol: string(protocol), Routes: attached[name]}
	if host != nil {
		r.Hostname = string(*host)
	}
	return r
}

func (o *objectStatus) hostnames(hosts []gatewayv1.Hostname) {
	for _, h := range hosts {
		o.Hostnames = append(o.Hostnames, string(h))
	}
}

func (b *statusBuilder) proxies(o *objectStatus) {
	g := b.gateways[model.GatewayOwner(o.Namespace, o.Name)]
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

// problems lists findings and bad conditions under their objects. It omits a condition that a finding explains.
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
				Severity: resource.Error, Condition: c.Type, Reason: c.Reason, Field: c.where, Message: cmp.Or(c.Message, c.Type+" is "+string(c.Status)),
			})
		}
	}
}

// follows reports whether a condition only repeats another one or a finding. A Gateway's condition repeats those of its
// listeners, a listener's condition repeats the Gateway's, and PartiallyInvalid repeats the invalid part.
func follows(c namedCondition) bool {
	return c.Type == "PartiallyInvalid" || strings.HasPrefix(c.Reason, "ListenersNot") || c.Type == "Programmed" && strings.HasPrefix(c.where, "listener ")
}
