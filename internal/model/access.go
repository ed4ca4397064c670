package model

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// Workload is pods whose incoming traffic is judged together: one Pod, or what a Deployment (or the like) runs, if its
// Pods are not known.
type Workload struct {
	Ref Ref `json:"ref"`
	// Account is the name of the ServiceAccount.
	Account string `json:"account,omitempty"`
	// Groups are what the workload belongs to, and so what policies name it by.
	Groups []Group `json:"groups,omitempty"`
	// Addresses are the pods' IP addresses.
	Addresses []string `json:"addresses,omitempty"`
	// Deny is when traffic is denied that no policy allows.
	Deny Deny `json:"deny,omitempty"`
	// Audit means that what would be denied is counted and logged, and passes.
	Audit bool `json:"audit,omitempty"`
}

// Group is a set of pods in the workload's own namespace.
type Group struct {
	// Kind is a kind of resource that selects or owns pods, or what pods are known by: "Pod", "Deployment", "Service",
	// "ServiceAccount", "IdentityBinding" and so on.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Ports are the only ports that belong to the group, such as those that a Service leads to; nil is every port.
	Ports []int32 `json:"ports,omitzero"`
}

// Deny is when traffic to a workload is denied that no policy allows.
type Deny string

const (
	// DenyGoverned denies it once a policy names the workload. It is the default.
	DenyGoverned Deny = ""
	// DenyAll denies it always (SMI's first draft: "all traffic is denied by default").
	DenyAll Deny = "all"
)

// Policy allows traffic from some workloads to others. Policies only allow, and each is judged whole: source, port and
// request must all be met by one policy. A workload that any policy names is governed, even if the policy allows
// nothing.
type Policy struct {
	// Ref is what the user allowed: a rule of a TrafficRole or of a TrafficTarget.
	Ref Ref `json:"ref"`
	// Binding is what gives the rule to clients; the zero value for a TrafficTarget, and for a role that nothing binds.
	Binding Ref `json:"binding,omitzero"`
	// Match is the HTTPRouteGroup's match that the rule refers to, if any.
	Match Ref `json:"match,omitzero"`
	// Targets are the workloads that the policy is about (OR).
	Targets []Target `json:"targets,omitempty"`
	// Sources are the clients (OR); none is nobody.
	Sources []Source `json:"sources,omitempty"`
	// Traffic is what is allowed. Methods, Paths and Headers restrict TrafficHTTP only.
	Traffic Traffic `json:"traffic,omitempty"`
	// Ports are the pods' ports; nil is any.
	Ports []int32 `json:"ports,omitzero"`
	// Methods are HTTP methods; nil is any.
	Methods []string `json:"methods,omitzero"`
	// Paths are expressions in RE2 syntax, of which one must match the path from its start, with any text after the
	// match; nil is any path.
	Paths []string `json:"paths,omitzero"`
	// Headers must all hold.
	Headers []ValueMatch `json:"headers,omitempty"`
	// Void is why the policy allows nothing: a mistake in it, or a list that names nothing. Empty means that it is in
	// force.
	Void string `json:"void,omitempty"`
}

// Target names workloads by one of their groups.
type Target struct {
	// Namespace is the workloads'; empty is any.
	Namespace string `json:"namespace,omitempty"`
	// Kind and Name are those of a Group. An empty Name is every group of the kind. No Kind, and "Pod" without a name, is
	// every workload.
	Kind string `json:"kind,omitempty"`
	Name string `json:"name,omitempty"`
}

// Source is clients, by what their certificates say. Nobody without a verified certificate is a source.
type Source struct {
	// Kind is "ServiceAccount", "Pod", a kind of what owns pods such as "Deployment", "Node" or, for a name that is a
	// whole SPIFFE ID, SPIFFE. Empty is any identity of the own trust domain.
	Kind string `json:"kind,omitempty"`
	// Namespace is the client's; empty is any. A Node has none.
	Namespace string `json:"namespace,omitempty"`
	// Name is empty for any of the kind.
	Name string `json:"name,omitempty"`
	// Field is where the user wrote the source, in the Binding or, without one, in the Ref's object.
	Field string `json:"field,omitempty"`
}

// Name identifies the workload: "namespace/Kind/name".
func (w *Workload) Name() string { return w.Ref.Namespace + "/" + w.Ref.Kind + "/" + w.Ref.Name }

// Equal is true if two workloads have the same values.
func (w *Workload) Equal(o *Workload) bool { return sameSlice([]Workload{*w}, []Workload{*o}) }

// EqualPolicies is true if two lists have the same values.
func EqualPolicies(a, b []Policy) bool { return sameSlice(a, b) }

// Workload returns the workload of a name, or nil.
func (c *Config) Workload(name string) *Workload {
	if i := slices.IndexFunc(c.Workloads, func(w Workload) bool { return w.Name() == name }); i >= 0 {
		return &c.Workloads[i]
	}
	return nil
}

// Kinds of groups and sources that code distinguishes.
const (
	KindPod            = "Pod"
	KindNode           = "Node"
	KindService        = "Service"
	KindServiceAccount = "ServiceAccount"
	// KindIdentityBinding is a group's; what it means as a source are identities.
	KindIdentityBinding = "IdentityBinding"
	// KindSPIFFE is a source's whose Name is a SPIFFE ID, which may be of another trust domain.
	KindSPIFFE = "SPIFFE"
)

// Traffic is what a policy allows.
type Traffic string

const (
	// TrafficHTTP is HTTP requests that meet the policy's conditions.
	TrafficHTTP Traffic = "http"
	// TrafficTCP is everything over TCP, HTTP requests among it.
	TrafficTCP Traffic = "tcp"
	TrafficUDP Traffic = "udp"
	// TrafficAny is everything.
	TrafficAny Traffic = "any"
)

// Requests reports whether HTTP requests can be allowed.
func (t Traffic) Requests() bool { return t == TrafficHTTP || t == TrafficTCP || t == TrafficAny }

// Connections reports whether TCP connections that are passed on without being understood are allowed.
func (t Traffic) Connections() bool { return t == TrafficTCP || t == TrafficAny }

// Datagrams reports whether UDP is allowed.
func (t Traffic) Datagrams() bool { return t == TrafficUDP || t == TrafficAny }

// Names reports whether the target names a workload, and on which ports; nil is every port.
func (t *Target) Names(w *Workload) (ports []int32, ok bool) {
	if t.Namespace != "" && t.Namespace != w.Ref.Namespace {
		return nil, false
	}
	if t.Name == "" && (t.Kind == "" || t.Kind == KindPod) {
		return nil, true
	}
	for i := range w.Groups {
		g := &w.Groups[i]
		if t.Kind != g.Kind || t.Name != "" && t.Name != g.Name {
			continue
		}
		if g.Ports == nil {
			return nil, true
		}
		if ok = true; ports == nil {
			ports = []int32{} // of a group without ports there is none, which is not every
		}
		ports = append(ports, g.Ports...)
	}
	slices.Sort(ports)
	return slices.Compact(ports), ok
}

func (v *validator) workload(w *Workload) {
	if w.Ref.Kind == "" || w.Ref.Name == "" || w.Ref.Namespace == "" {
		v.fail(w.Ref, "ref", "has no kind, namespace or name")
	}
	if w.Deny != DenyGoverned && w.Deny != DenyAll {
		v.fail(w.Ref, "deny", "%q is unknown", w.Deny)
	}
	for i, a := range w.Addresses {
		if _, err := netip.ParseAddr(a); err != nil {
			v.fail(w.Ref, v.at("addresses", i), "%q is not an IP address", brief(a))
		}
	}
	for i, g := range w.Groups {
		if g.Kind == "" || g.Name == "" {
			v.fail(w.Ref, v.at("groups", i), "has no kind or name")
		}
		v.ports(w.Ref, v.at("groups", i), g.Ports)
	}
}

func (v *validator) policy(p *Policy) {
	patterns := &PatternBudget{}
	if p.Ref.Name == "" {
		v.fail(p.Ref, "ref", "has no name")
	}
	switch p.Traffic {
	case TrafficHTTP, TrafficTCP, TrafficUDP, TrafficAny:
	default:
		v.fail(p.Ref, "traffic", "%q is unknown", p.Traffic)
	}
	if p.Traffic != TrafficHTTP && (p.Methods != nil || p.Paths != nil || p.Headers != nil) {
		v.fail(p.Ref, "traffic", "%q cannot be restricted by methods, paths or headers", p.Traffic)
	}
	v.ports(p.Ref, "ports", p.Ports)
	for i, m := range p.Methods {
		if m == "" {
			v.fail(p.Ref, v.at("methods", i), "is empty")
		}
	}
	for i, pattern := range p.Paths {
		v.pattern(p.Ref, v.at("paths", i), pattern, patterns)
	}
	for i, h := range p.Headers {
		v.value(p.Ref, v.at("headers", i), h, patterns)
	}
	for i, s := range p.Sources {
		if s.Kind == KindSPIFFE && s.Name == "" {
			v.fail(p.Ref, v.at("sources", i), "has no SPIFFE ID")
		}
		if s.Kind == "" && s.Name != "" {
			v.fail(p.Ref, v.at("sources", i), "has a name and no kind")
		}
	}
	for i, t := range p.Targets {
		if t.Kind == "" && t.Name != "" {
			v.fail(p.Ref, v.at("targets", i), "has a name and no kind")
		}
	}
}

// workload closes a workload that is not valid.
func (s *sounder) workload(out *Config, w Workload) {
	if s.ok(w.Ref, func() { s.v.workload(&w) }, "everything is denied there") {
		out.Workloads = append(out.Workloads, w)
	} else if w.Ref.Kind != "" && w.Ref.Namespace != "" && w.Ref.Name != "" {
		out.Workloads = append(out.Workloads, Workload{Ref: w.Ref, Deny: DenyAll})
	}
}

// policy keeps what a policy that is not valid governs, and lets it allow nothing.
func (s *sounder) policy(out *Config, p Policy) {
	if !s.ok(p.Ref, func() { s.v.policy(&p) }, "it allows nothing") {
		targets := slices.DeleteFunc(slices.Clone(p.Targets), func(t Target) bool { return t.Kind == "" && t.Name != "" })
		if p = (Policy{Ref: p.Ref, Binding: p.Binding, Match: p.Match, Targets: targets, Traffic: TrafficAny, Void: "it is not valid"}); p.Ref.Name == "" {
			p.Ref = Ref{Kind: "Policy", Name: "unnamed"}
		}
	}
	out.Policies = append(out.Policies, p)
}

// workloads gives each part the workloads in front of which its listeners stand.
func (d *division) workloads(all []Workload) {
	if len(all) == 0 {
		return
	}
	for _, part := range d.parts {
		names := map[string]bool{}
		for i := range part.Listeners {
			if name := part.Listeners[i].Workload; name != "" {
				names[name] = true
			}
		}
		for i := range all {
			if len(names) > 0 && names[all[i].Name()] {
				part.Workloads = append(part.Workloads, all[i])
			}
		}
	}
}

// policies gives each part the policies that name its workloads.
func (d *division) policies(all []Policy) {
	for _, part := range d.parts {
		for i := range all {
			if slices.ContainsFunc(part.Workloads, func(w Workload) bool { return all[i].Names(&w) }) {
				part.Policies = append(part.Policies, all[i])
			}
		}
	}
}

func comparePolicies(a, b Policy) int {
	return cmp.Or(a.Ref.Compare(b.Ref), a.Binding.Compare(b.Binding), a.Match.Compare(b.Match))
}

// Names reports whether the policy names a workload.
func (p *Policy) Names(w *Workload) bool {
	return slices.ContainsFunc(p.Targets, func(t Target) bool { _, ok := t.Names(w); return ok })
}

func (v *validator) ports(where Ref, field string, ports []int32) {
	for _, n := range ports {
		if n < 1 || n > math.MaxUint16 {
			v.fail(where, field, "port %d is not from 1 to 65535", n)
		}
	}
}

// String is the kind, then the namespace and name, "*" for any.
func (t *Target) String() string { return subjectText(t.Kind, t.Namespace, t.Name) }

// String is the kind, then the namespace and name, "*" for any.
func (s *Source) String() string {
	if s.Kind == KindSPIFFE {
		return s.Name
	}
	if s.Kind == KindNode {
		return KindNode + " " + orAny(s.Name)
	}
	return subjectText(s.Kind, s.Namespace, s.Name)
}

// Words name the source in a sentence: "any Node", "Deployment shop/cart".
func (s *Source) Words() string {
	switch {
	case s.Kind == KindSPIFFE:
		return s.Name
	case s.Kind == "" && s.Namespace == "":
		return "everybody of the trust domain"
	case s.Kind == "":
		return "everybody of namespace " + s.Namespace
	case s.Name == "" && (s.Namespace == "" || s.Kind == KindNode):
		return "any " + s.Kind
	case s.Name == "":
		return "any " + s.Kind + " of namespace " + s.Namespace
	case s.Kind == KindNode:
		return s.Kind + " " + s.Name
	case s.Namespace == "":
		return s.Kind + " " + s.Name + " of any namespace"
	}
	return s.Kind + " " + s.Namespace + "/" + s.Name
}

func subjectText(kind, namespace, name string) string {
	return strings.Join([]string{orAny(kind), " ", orAny(namespace), "/", orAny(name)}, "")
}

func orAny(s string) string {
	if s == "" {
		return "*"
	}
	return s
}
