package control

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weirmesh/weir/internal/resource"
)

// Target is the environment for which manifests are written.
type Target string

const (
	// TargetFiles is "weir run": objects that are not in the files do not exist.
	TargetFiles Target = "files"
	// TargetCluster is a cluster, which makes EndpointSlices and has objects that are not among the manifests.
	TargetCluster Target = "cluster"
)

// For returns the options for translating manifests of a target. Options.Serve and Options.Names, if set, stay.
func (o Options) For(target Target) Options {
	if target != TargetCluster {
		return o
	}
	o.ProxyPerGateway, o.Partial = true, true
	if len(o.Serve) == 0 {
		o.Serve = []string{"none"}
	}
	if o.Names == nil {
		o.Names = &resource.HostNames{}
	}
	return o
}

// GuessTarget returns the most likely target of a set that was read from files, and why.
func GuessTarget(set *resource.Set) (target Target, why string) {
	sliced := map[string]*discoveryv1.EndpointSlice{} // by Service
	for _, s := range set.EndpointSlices {
		sliced[s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName]] = s
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				if loopback(a) {
					return TargetFiles, fmt.Sprintf("EndpointSlice %s/%s has the address %s", s.Namespace, s.Name, a)
				}
			}
		}
	}
	for _, s := range set.Services {
		if loopback(s.Spec.ExternalName) {
			return TargetFiles, fmt.Sprintf("Service %s/%s stands for %s", s.Namespace, s.Name, s.Spec.ExternalName)
		}
	}
	for _, g := range set.Gateways {
		for _, a := range g.Spec.Addresses {
			if loopback(a.Value) {
				return TargetFiles, fmt.Sprintf("Gateway %s/%s listens on %s", g.Namespace, g.Name, a.Value)
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(set.PassedOver)) {
		if version, name, _ := strings.Cut(kind, " "); inClusters(version) {
			return TargetCluster, fmt.Sprintf("there is a %s", name)
		}
	}
	for _, k := range set.Kinds() {
		if !k.Custom() && resource.Kubernetes().Find(k.Group, k.Name) == nil { // what runs pods
			for range set.Of(k) {
				return TargetCluster, fmt.Sprintf("there is a %s", k.Name)
			}
		}
	}
	for _, c := range set.GatewayClasses {
		if c.Spec.ParametersRef != nil {
			return TargetCluster, fmt.Sprintf("GatewayClass %s has a parametersRef", c.Name)
		}
	}
	for _, g := range set.Gateways {
		if i := g.Spec.Infrastructure; i != nil {
			return TargetCluster, fmt.Sprintf("Gateway %s/%s has spec.infrastructure", g.Namespace, g.Name)
		}
	}
	for _, s := range set.Services {
		if len(s.Spec.Selector) > 0 && sliced[s.Namespace+"/"+s.Name] == nil {
			return TargetCluster, fmt.Sprintf("Service %s/%s has a selector and no EndpointSlice", s.Namespace, s.Name)
		}
	}
	if len(set.EndpointSlices) > 0 {
		s := set.EndpointSlices[0]
		return TargetFiles, fmt.Sprintf("EndpointSlice %s/%s is written by hand", s.Namespace, s.Name)
	}
	for _, n := range set.Namespaces {
		return TargetCluster, fmt.Sprintf("Namespace %s is to be made", n.Name)
	}
	return TargetFiles, "nothing in them is for a cluster alone"
}

// loopback reports whether an address or a host name is the machine's own.
func loopback(address string) bool {
	a, err := netip.ParseAddr(address)
	return address == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// inClusters reports whether an apiVersion that Weir does not read belongs to Kubernetes: workloads, access rights, and
// so on.
func inClusters(apiVersion string) bool {
	group, _, named := strings.Cut(apiVersion, "/")
	if !named {
		return true
	}
	return group == "apps" || group == "batch" || group == "autoscaling" || group == "policy" || strings.HasSuffix(group, ".k8s.io") && group != "gateway.networking.k8s.io" &&
		!strings.HasSuffix(group, ".x-k8s.io") && group != "kustomize.config.k8s.io"
}
