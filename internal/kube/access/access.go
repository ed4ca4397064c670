// Package access lists what the controller may do in a cluster: every verb that it uses of each resource, and no other.
// A test compares the chart's roles with it.
package access

//go:generate go test . -run TestTheChartsRulesAreMadeFromTheKinds -update

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/workload"
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

const definitionsGroup = "apiextensions.k8s.io"

// made are the kinds of objects that each Gateway gets (package infra).
var made = []schema.GroupResource{
	{Group: "apps", Resource: "deployments"}, {Group: "policy", Resource: "poddisruptionbudgets"},
	{Resource: "configmaps"}, {Resource: "serviceaccounts"}, {Resource: "services"},
}

// Cluster is what the controller may do in every namespace to read and serve the kinds, sorted.
func Cluster(kinds resource.Kinds) []Verb {
	var all []Verb
	add := func(group, name string, verbs ...string) {
		for _, v := range verbs {
			all = append(all, Verb{Group: group, Resource: name, Verb: v})
		}
	}
	for _, k := range kinds.InCluster() {
		add(k.Group, k.Plural, "list", "watch")
		add(k.Group, k.Plural, k.Verbs...)
		if k.OnReference {
			add(k.Group, k.Plural, "get")
		}
		if k.Status != nil { // it is read anew before each write
			add(k.Group, k.Plural, "get")
			add(k.Group, k.Plural+"/status", "update")
		}
	}
	for _, r := range made {
		add(r.Group, r.Resource, "get", "list", "watch", "create", "patch", "delete")
	}
	for _, k := range kinds.Conversions() { // where the conversion webhook is
		for _, verb := range []string{"get", "patch"} {
			all = append(all, Verb{Group: definitionsGroup, Resource: "customresourcedefinitions", Verb: verb, Name: k.Definition()})
		}
	}
	add("events.k8s.io", "events", "create")
	add("authentication.k8s.io", "tokenreviews", "create")
	return sorted(all)
}

// Traffic returns what the controller may additionally do if it serves Traffic Metrics, sorted: ask the API server who
// may ask for them, and keep the certificates by which that trusts the API.
func Traffic() []Verb {
	all := []Verb{{Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verb: "create"}}
	for _, name := range metrics.AllAPIServices() {
		for _, verb := range []string{"get", "patch"} {
			all = append(all, Verb{Group: "apiregistration.k8s.io", Resource: "apiservices", Verb: verb, Name: name})
		}
	}
	return sorted(all)
}

// Releases returns what the controller may additionally do if it carries Rollouts out, sorted: keep their status, hold
// workloads and say how many pods their revisions have, restrict Services, and change and make the objects of the providers
// that route requests.
func Releases(workloads workload.Kinds, providers rollout.Providers) []Verb {
	var all []Verb
	add := func(group, name string, verbs ...string) {
		for _, v := range verbs {
			all = append(all, Verb{Group: group, Resource: name, Verb: v})
		}
	}
	add(rollouts.Group, "rollouts", "list", "watch", "update")
	add(rollouts.Group, "rollouts/status", "update")
	for _, k := range workloads {
		add(k.Group, k.Plural, "list", "watch", "update")
		if k.Sets {
			add("apps", "replicasets", "list", "watch", "create", "patch")
		}
		if k.Revisions {
			add("apps", "controllerrevisions", "list", "watch")
		}
		if k.Pods {
			add("", "pods", "list", "watch")
			add("", "pods/eviction", "create")
		}
	}
	add("", "services", "list", "watch", "create", "update", "delete")
	add("discovery.k8s.io", "endpointslices", "list", "watch")
	for _, p := range providers {
		for _, k := range p.Kinds {
			add(k.Group, k.Plural, "list", "watch", "update")
		}
		for _, k := range p.Made {
			add(k.Group, k.Plural, "list", "watch", "create", "update", "delete")
		}
	}
	return sorted(all)
}

// Definitions returns what the controller may additionally do in the cluster if it releases custom kinds of workloads, sorted:
// read their definitions.
func Definitions(workloads workload.Kinds) []Verb {
	var all []Verb
	for _, k := range workloads {
		if name := k.Definition(); name != "" {
			all = append(all, Verb{Group: definitionsGroup, Resource: "customresourcedefinitions", Verb: "get", Name: name})
		}
	}
	return sorted(all)
}

// RolloutsWebhook is the name of the ValidatingWebhookConfiguration by which the API server asks about Rollouts.
const RolloutsWebhook = "weir-controller-rollouts"

// WorkloadsWebhook is the name of the MutatingWebhookConfiguration by which it has workloads held.
const WorkloadsWebhook = "weir-controller-workloads"

// Admission returns what the controller may additionally do if API servers ask it before they store Rollouts and
// workloads, sorted: keep the certificates by which they trust it.
func Admission() []Verb {
	var all []Verb
	for _, verb := range []string{"get", "patch"} {
		all = append(all, Verb{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Verb: verb, Name: RolloutsWebhook},
			Verb{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Verb: verb, Name: WorkloadsWebhook})
	}
	return sorted(all)
}

// SidecarsWebhook is the name of the two configurations, Mutating- and ValidatingWebhookConfiguration, by which pods get
// sidecars.
const SidecarsWebhook = "weir-controller-sidecars"

// SelectedWebhook is the name of the two configurations by which the pods of namespaces with TLSConfigs get sidecars. The
// controller writes their webhooks.
const SelectedWebhook = "weir-controller-tlsconfigs"

// Injection returns what the controller may additionally do if it puts sidecars into pods, sorted: keep the certificates by
// which API servers trust it, and the namespaces about whose pods they ask for the sake of TLSConfigs. It reads the pods
// anyway, and may make ConfigMaps.
func Injection() []Verb {
	var all []Verb
	for _, verb := range []string{"get", "patch"} {
		for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
			for _, name := range []string{SidecarsWebhook, SelectedWebhook} {
				all = append(all, Verb{Group: "admissionregistration.k8s.io", Resource: resource, Verb: verb, Name: name})
			}
		}
	}
	return sorted(all)
}

// AuthenticationNamespace is the namespace of the ConfigMap that Authentication is about.
const AuthenticationNamespace = "kube-system"

// Authentication returns what the controller may do in AuthenticationNamespace if it serves Traffic Metrics: read by which
// certificate the API server that sends requests on is known. A role of Kubernetes itself permits it.
func Authentication() []Verb {
	return []Verb{{Resource: "configmaps", Verb: "get", Name: "extension-apiserver-authentication"}}
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

// Mesh returns what the controller may additionally do in its own namespace if it signs identities of pods, sorted: keep
// the authority for these, and read the user's, if authority names its Secret.
func Mesh(authority string) []Verb {
	all := []Verb{
		{Resource: "secrets", Verb: "get", Name: "weir-identity"},
		{Resource: "secrets", Verb: "update", Name: "weir-identity"},
	}
	if authority != "" {
		all = append(all, Verb{Resource: "secrets", Verb: "get", Name: authority})
	}
	return sorted(all)
}

// Shared is what a controller of named namespaces may do that belongs to none, sorted: read GatewayClasses, say what became of them
// and keep those in use, tell the API server how SMI's versions are converted, have proxies' tokens reviewed, and read the labels of its namespaces, by which listeners select routes.
func Shared(kinds resource.Kinds, namespaces []string) []Verb {
	var all []Verb
	for _, v := range Cluster(kinds) {
		switch {
		case v.Group == "" && v.Resource == "namespaces":
			for _, n := range namespaces {
				v.Name = n
				all = append(all, v, Verb{Resource: "namespaces", Verb: "get", Name: n}) // to know whether it exists
			}
		case shared(kinds, v):
			all = append(all, v)
		}
	}
	return sorted(all)
}

// Each is what a controller of named namespaces may do in each of them, sorted.
func Each(kinds resource.Kinds) []Verb {
	return slices.DeleteFunc(Cluster(kinds), func(v Verb) bool { return shared(kinds, v) || v.Group == "" && v.Resource == "namespaces" })
}

// shared are those of resources that belong to no namespace.
func shared(kinds resource.Kinds, v Verb) bool {
	name, _, _ := strings.Cut(v.Resource, "/")
	return v.Resource == "tokenreviews" || v.Group == definitionsGroup || v.Resource != "namespaces" && slices.ContainsFunc(kinds, func(k *resource.Kind) bool {
		return k.Cluster && k.Group == v.Group && k.Plural == name
	})
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

func sorted(all []Verb) []Verb {
	slices.SortFunc(all, Verb.Compare)
	return slices.Compact(all)
}
