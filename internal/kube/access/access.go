// Package access lists what the controller may do in a cluster: every verb that it uses of each resource, and no other.
// A test compares the chart's roles with it.
package access

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/resource"
)

// Verb is one verb for the objects of a resource.
type Verb struct {
	Group, Resource, Verb string
	// Name of the only object that it is for; empty means all.
	Name string
}

// String is "verb resource.group".
func (v Verb) String() string {
	text := v.Verb + " " + schema.GroupResource{Group: v.Group, Resource: v.Resource}.String()
	if v.Name != "" {
		text += " " + v.Name
	}
	return text
}

// Compare orders by group, resource, name and verb.
func (v Verb) Compare(other Verb) int {
	return cmp.Or(cmp.Compare(v.Group, other.Group), cmp.Compare(v.Resource, other.Resource), cmp.Compare(v.Name, other.Name), cmp.Compare(v.Verb, other.Verb))
}

// reported are the kinds whose status is written, read anew before each write.
var reported = []schema.GroupResource{
	{Group: gatewayGroup, Resource: "gatewayclasses"}, {Group: gatewayGroup, Resource: "gateways"}, {Group: gatewayGroup, Resource: "listenersets"},
	{Group: gatewayGroup, Resource: "httproutes"}, {Group: gatewayGroup, Resource: "grpcroutes"}, {Group: gatewayGroup, Resource: "tcproutes"},
	{Group: gatewayGroup, Resource: "backendtlspolicies"}, {Group: "split.smi-spec.io", Resource: "trafficsplits"},
}

const gatewayGroup, definitionsGroup = "gateway.networking.k8s.io", "apiextensions.k8s.io"

// fetched are the kinds of which only metadata is watched, and whose objects are fetched when something refers to them.
var fetched = []string{"configmaps", "secrets"}

// made are the kinds of objects that each Gateway gets (package infra).
var made = []schema.GroupResource{
	{Group: "apps", Resource: "deployments"}, {Group: "policy", Resource: "poddisruptionbudgets"},
	{Resource: "configmaps"}, {Resource: "serviceaccounts"}, {Resource: "services"},
}

// Cluster returns what the controller may do in every namespace, sorted.
func Cluster() []Verb {
	var all []Verb
	add := func(group, name string, verbs ...string) {
		for _, v := range verbs {
			all = append(all, Verb{Group: group, Resource: name, Verb: v})
		}
	}
	for _, k := range resource.Kinds() {
		add(k.Group, plural(k.Name), "list", "watch")
	}
	for _, r := range reported {
		add(r.Group, r.Resource, "get")
		add(r.Group, r.Resource+"/status", "update")
	}
	add(gatewayGroup, "gatewayclasses", "patch") // the finalizer of classes in use
	for _, name := range fetched {
		add("", name, "get")
	}
	for _, r := range made {
		add(r.Group, r.Resource, "get", "list", "watch", "create", "patch", "delete")
	}
	for _, k := range slices.Concat(split.Kinds(), specs.Kinds()) { // whose definitions name the conversion webhook
		for _, verb := range []string{"get", "patch"} {
			all = append(all, Verb{Group: definitionsGroup, Resource: "customresourcedefinitions", Verb: verb, Name: k.Definition()})
		}
	}
	add("events.k8s.io", "events", "create")
	add("authentication.k8s.io", "tokenreviews", "create")
	return sorted(all)
}

// Own returns what the controller may additionally do in its own namespace, sorted: hold the lease, keep the
// certificate authority, and tell other replicas what its proxies run.
func Own() []Verb {
	return sorted([]Verb{
		{Group: "coordination.k8s.io", Resource: "leases", Verb: "get"},
		{Group: "coordination.k8s.io", Resource: "leases", Verb: "create"},
		{Group: "coordination.k8s.io", Resource: "leases", Verb: "update"},
		{Resource: "secrets", Verb: "create"},
		{Resource: "secrets", Verb: "update", Name: "weir-authority"},
		{Resource: "configmaps", Verb: "update"},
	})
}

// Shared returns what a controller of named namespaces may do with resources of no namespace, sorted: read
// GatewayClasses, write their status, protect those in use, configure the conversion of SMI's versions, have proxies'
// tokens reviewed, and read the labels of its namespaces, by which listeners select routes.
func Shared(namespaces []string) []Verb {
	var all []Verb
	for _, v := range Cluster() {
		switch {
		case v.Group == "" && v.Resource == "namespaces":
			for _, n := range namespaces {
				v.Name = n
				all = append(all, v, Verb{Resource: "namespaces", Verb: "get", Name: n}) // to know whether it exists
			}
		case shared(v):
			all = append(all, v)
		}
	}
	return sorted(all)
}

// Each returns what a controller of named namespaces may do in each of them, sorted.
func Each() []Verb {
	return slices.DeleteFunc(Cluster(), func(v Verb) bool { return shared(v) || v.Group == "" && v.Resource == "namespaces" })
}

// shared reports whether a resource belongs to no namespace.
func shared(v Verb) bool {
	return v.Resource == "tokenreviews" || v.Group == definitionsGroup || strings.HasPrefix(v.Resource, "gatewayclasses")
}

// Alone returns what a controller of named namespaces may do in its own, sorted: Own, and the part of Cluster that its
// own namespace needs, since it is not watched otherwise. The parameters of classes are read there, too.
func Alone() []Verb {
	all := append(Own(), Verb{Resource: "secrets", Verb: "get", Name: "weir-authority"})
	for _, verb := range []string{"get", "list", "watch", "create", "delete"} {
		all = append(all, Verb{Resource: "configmaps", Verb: verb})
	}
	return sorted(all)
}

// plural is the resource of a kind, as in paths.
func plural(kind string) string {
	name := strings.ToLower(kind)
	switch {
	case strings.HasSuffix(name, "s"):
		return name + "es"
	case strings.HasSuffix(name, "cy"):
		return strings.TrimSuffix(name, "y") + "ies"
	}
	return name + "s"
}

func sorted(all []Verb) []Verb {
	slices.SortFunc(all, Verb.Compare)
	return slices.Compact(all)
}
