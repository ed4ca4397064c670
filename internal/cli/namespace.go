package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/resource"
)

// knows fails for a namespace without objects, and names the existing ones.
func (l *look) knows(namespace string) error {
	if namespace == "" || l.client != nil && !l.input().Complete { // a user who may not read everything cannot know
		return nil
	}
	all := namespaces(l.set)
	for _, f := range l.Findings {
		all[f.Ref.Namespace] = true
	}
	delete(all, "")
	if all[namespace] {
		return nil
	}
	if len(all) == 0 {
		return flags.Errorf("--namespace %q: nothing is in that namespace, nor in any other", namespace)
	}
	return flags.Errorf("--namespace %q: nothing is in that namespace; there is: %s", namespace, strings.Join(finding.First(slices.Sorted(maps.Keys(all)), maxListed), ", "))
}

// namespaces are the namespaces of objects, and those that are objects themselves.
func namespaces(s *resource.Set) map[string]bool {
	all := map[string]bool{}
	for _, o := range s.Namespaces {
		all[o.Name] = true
	}
	for k := range s.Origins {
		all[k.Namespace] = true
	}
	add(all, s.Gateways)
	add(all, s.ListenerSets)
	add(all, s.HTTPRoutes)
	add(all, s.GRPCRoutes)
	add(all, s.TCPRoutes)
	add(all, s.ReferenceGrants)
	add(all, s.BackendTLSPolicies)
	add(all, s.TrafficSplits)
	add(all, s.HTTPRouteGroups)
	add(all, s.Services)
	add(all, s.EndpointSlices)
	return all
}

func add[T interface{ GetNamespace() string }](to map[string]bool, all []T) {
	for _, o := range all {
		to[o.GetNamespace()] = true
	}
}
