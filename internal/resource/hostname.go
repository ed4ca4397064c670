package resource

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weirmesh/weir/internal/model"
)

// DefaultClusterDomain is the domain of the own names of most clusters.
const DefaultClusterDomain = "cluster.local"

// HostNames decides which host names endpoints may have: those of ExternalName Services and of EndpointSlices of type
// FQDN. A nil one allows all.
type HostNames struct {
	// Suffixes are the domains that are allowed, with all below them; "*" is all but the cluster's own.
	Suffixes []string
	// ClusterDomain is the domain of the cluster's Services and pods; empty means DefaultClusterDomain.
	ClusterDomain string
}

// Refuse returns why an endpoint may not have a host name, and what to do; both are empty if it may. The cluster's own
// names are always refused: they lead to other namespaces without a ReferenceGrant. So are IP addresses, and numbers
// that some resolvers take for one.
func (n *HostNames) Refuse(host string) (why, fix string) {
	if n == nil {
		return "", ""
	}
	const write = "write the addresses into an EndpointSlice of a Service without selector"
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	domain := strings.ToLower(strings.Trim(n.ClusterDomain, "."))
	if domain == "" {
		domain = DefaultClusterDomain
	}
	switch {
	case host == "":
		return "the host name is empty", write
	case isNumber(host):
		return fmt.Sprintf("%q is an IP address, not a host name", host), write
	case under(host, domain) || under(host, "svc") || under(host, "localhost") || !strings.Contains(host, "."):
		return fmt.Sprintf("%q is a name of the cluster itself or of the machine", host),
			"refer to the Service itself in the route, with a ReferenceGrant if it is in another namespace"
	}
	for _, s := range n.Suffixes {
		if s == "*" || under(host, strings.ToLower(strings.Trim(s, "."))) {
			return "", ""
		}
	}
	if len(n.Suffixes) == 0 {
		return fmt.Sprintf("host names such as %q are not allowed as backends in this cluster", host),
			write + ", or have the cluster's administrator allow the name (externalNames.allow of the chart)"
	}
	return fmt.Sprintf("host name %q is under none of the domains that are allowed in this cluster (%s)", host, strings.Join(n.Suffixes, ", ")),
		write + ", or have the cluster's administrator allow the name (externalNames.allow of the chart)"
}

// under reports whether a name is the domain or below it.
func under(host, domain string) bool {
	rest, ok := strings.CutSuffix(host, domain)
	return ok && domain != "" && (rest == "" || strings.HasSuffix(rest, "."))
}

// isNumber reports whether a resolver may take the host for an IP address: its last label is a number, in decimal,
// octal or hex (URL standard, "ends in a number").
func isNumber(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	digits := strings.TrimLeft(last, "0123456789")
	if last != "" && digits == "" {
		return true
	}
	hex, ok := strings.CutPrefix(last, "0x")
	return ok && strings.TrimLeft(hex, "0123456789abcdef") == ""
}

// RefusedName is a host name of a Service's endpoints that is not allowed.
type RefusedName struct {
	// Ref is the field that holds it.
	Ref model.Ref
	// Why it is refused, and what to do about it.
	Why, Fix string
}

// RefusedNames returns the host names of a Service's endpoints that are not allowed, and whether they are all that it has.
func (s *Set) RefusedNames(service *corev1.Service, allowed *HostNames) (refused []RefusedName, all bool) {
	if allowed == nil {
		return nil, false
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		if why, fix := allowed.Refuse(service.Spec.ExternalName); why != "" {
			ref := model.Ref{Kind: "Service", Namespace: service.Namespace, Name: service.Name, Field: "spec.externalName"}
			return []RefusedName{{ref, why, fix}}, true
		}
		return nil, false
	}
	all = true
	for _, slice := range s.EndpointSlicesOf(service.Namespace, service.Name) {
		if slice.AddressType != discoveryv1.AddressTypeFQDN {
			all = all && len(slice.Endpoints) == 0
			continue
		}
		for i, e := range slice.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			why, fix := allowed.Refuse(e.Addresses[0])
			if why == "" {
				all = false
				continue
			}
			ref := model.Ref{Kind: "EndpointSlice", Namespace: slice.Namespace, Name: slice.Name, Field: model.FieldAt("endpoints", i) + ".addresses[0]"}
			refused = append(refused, RefusedName{ref, why, fix})
		}
	}
	return refused, all && len(refused) > 0
}

// NamedSlices returns the EndpointSlices of Services that have any of type FQDN, in the order of the set.
func (s *Set) NamedSlices() []*discoveryv1.EndpointSlice {
	type service struct{ namespace, name string }
	var named map[service]bool
	of := func(slice *discoveryv1.EndpointSlice) service {
		return service{slice.Namespace, slice.Labels[discoveryv1.LabelServiceName]}
	}
	for _, slice := range s.EndpointSlices {
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			if named == nil {
				named = map[service]bool{}
			}
			named[of(slice)] = true
		}
	}
	if named == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.EndpointSlices), func(slice *discoveryv1.EndpointSlice) bool { return !named[of(slice)] })
}
