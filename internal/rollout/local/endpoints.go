package local

import (
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weirmesh/weir/internal/resource"
)

// endpoints returns the endpoints of a Service, "address:port" each, sorted, and how many of them are ready. For an
// ExternalName that is its name.
func endpoints(set *resource.Set, namespace, service string) (all []string, ready int32) {
	s := set.Service(namespace, service)
	if s == nil {
		return nil, 0
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return []string{s.Spec.ExternalName}, 1
	}
	for _, slice := range set.EndpointSlicesOf(namespace, service) {
		for _, e := range slice.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			all = append(all, addresses(e.Addresses[0], slice.Ports)...)
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ready++
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), ready
}

func addresses(address string, ports []discoveryv1.EndpointPort) (all []string) {
	for _, p := range ports {
		if p.Port != nil {
			all = append(all, net.JoinHostPort(address, strconv.Itoa(int(*p.Port))))
		}
	}
	if all == nil {
		all = []string{address}
	}
	return all
}
