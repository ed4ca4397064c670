package model

import "strings"

// Owner is who has a part of a configuration: a Gateway, whose own proxies serve it, or a workload, whose sidecars do.
// It is empty for nobody, and then whoever has the whole configuration serves the part.
//
// Its value is its text form, in JSON (Listener.Owner, statuses), in the feed (a proxy's name for whom it serves, state
// files) and in logs: "NAMESPACE/NAME" for a Gateway, as all releases know it, and "workload/NAMESPACE/NAME" for a
// workload. Neither namespaces nor names contain a slash, so the number of parts tells them apart, also in a namespace
// of the name "workload". A release that knows no workloads takes a workload's form for no Gateway's.
type Owner string

// OwnerKind is what an Owner is, as the Kind of its Ref.
type OwnerKind string

const (
	OwnerGateway  OwnerKind = "Gateway"
	OwnerWorkload OwnerKind = "Workload"
)

// workloadPrefix begins the text form of a workload.
const workloadPrefix = "workload/"

// GatewayOwner returns a Gateway as an owner.
func GatewayOwner(namespace, name string) Owner { return Owner(namespace + "/" + name) }

// WorkloadOwner returns a workload as an owner.
func WorkloadOwner(namespace, name string) Owner {
	return Owner(workloadPrefix + namespace + "/" + name)
}

// OwnerOfListener returns the owner of a listener by its name in the model (Listener.Name) and the object that it was written in; empty for one
// that no Gateway has.
func OwnerOfListener(name string, ref Ref) Owner {
	if ref.Kind != "Gateway" && ref.Kind != "ListenerSet" {
		return ""
	}
	namespace, rest, _ := strings.Cut(name, "/")
	gateway, _, _ := strings.Cut(rest, "/")
	return GatewayOwner(namespace, gateway)
}

// cut takes the text form apart.
func (o Owner) cut() (kind OwnerKind, namespace, name string) {
	if o == "" {
		return "", "", ""
	}
	if rest, ok := strings.CutPrefix(string(o), workloadPrefix); ok {
		if namespace, name, ok = strings.Cut(rest, "/"); ok {
			return OwnerWorkload, namespace, name
		}
	}
	namespace, name, _ = strings.Cut(string(o), "/")
	return OwnerGateway, namespace, name
}

// Kind is what the owner is; empty for nobody.
func (o Owner) Kind() OwnerKind {
	kind, _, _ := o.cut()
	return kind
}

// Namespace is the owner's.
func (o Owner) Namespace() string {
	_, namespace, _ := o.cut()
	return namespace
}

// Name is the owner's, without the namespace.
func (o Owner) Name() string {
	_, _, name := o.cut()
	return name
}

// Valid is true for text forms of a Gateway or a workload whose parts are all there.
func (o Owner) Valid() bool {
	_, namespace, name := o.cut()
	return namespace != "" && name != "" && !strings.Contains(name, "/")
}

// Ref is the owner as provenance.
func (o Owner) Ref() Ref {
	kind, namespace, name := o.cut()
	return Ref{Kind: string(kind), Namespace: namespace, Name: name}
}
