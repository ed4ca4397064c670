package resource

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/api/split"
)

// kind is a kind that can be read. All its versions decode into one Go type.
type kind struct {
	group, name string
	// cluster means that its objects belong to no namespace.
	cluster bool
	// versions are the versions that can be read, the one of the Go type first.
	versions []string
	// crd is the name of the embedded definition; empty for core kinds.
	crd string
	// decode makes the typed object of u, which it may change, or reports why it cannot; findings without error
	// severity come with an object. Lines are left to the caller. An object of a kind that has a definition is
	// admitted first.
	decode func(k *kind, version string, u map[string]any, admit admission) (object any, findings []Finding)
}

// admission completes and validates u, or reports why it is not valid. One that an API server has admitted needs less.
type admission func(k *kind, version string, u map[string]any) (findings []Finding, ok bool)

const gatewayGroup = gatewayv1.GroupName

var kinds = []*kind{
	{group: gatewayGroup, name: "GatewayClass", cluster: true, versions: []string{"v1", "v1beta1"}, crd: "gatewayclasses", decode: custom[gatewayv1.GatewayClass]},
	{group: gatewayGroup, name: "Gateway", versions: []string{"v1", "v1beta1"}, crd: "gateways", decode: custom[gatewayv1.Gateway]},
	{group: gatewayGroup, name: "ListenerSet", versions: []string{"v1"}, crd: "listenersets", decode: custom[gatewayv1.ListenerSet]},
	{group: gatewayGroup, name: "HTTPRoute", versions: []string{"v1", "v1beta1"}, crd: "httproutes", decode: custom[gatewayv1.HTTPRoute]},
	{group: gatewayGroup, name: "GRPCRoute", versions: []string{"v1"}, crd: "grpcroutes", decode: custom[gatewayv1.GRPCRoute]},
	{group: gatewayGroup, name: "TCPRoute", versions: []string{"v1", "v1alpha2"}, crd: "tcproutes", decode: custom[gatewayv1.TCPRoute]},
	{group: gatewayGroup, name: "ReferenceGrant", versions: []string{"v1", "v1beta1"}, crd: "referencegrants", decode: custom[gatewayv1.ReferenceGrant]},
	{group: gatewayGroup, name: "BackendTLSPolicy", versions: []string{"v1", "v1alpha3"}, crd: "backendtlspolicies", decode: custom[gatewayv1.BackendTLSPolicy]},

	{group: split.Group, name: "TrafficSplit", versions: split.Versions, crd: "split.smi-spec.io_trafficsplits", decode: versioned(split.Decode)},
	{group: specs.Group, name: "HTTPRouteGroup", versions: specs.Versions, crd: "specs.smi-spec.io_httproutegroups", decode: versioned(specs.DecodeHTTPRouteGroup)},
	{group: specs.Group, name: "TCPRoute", versions: specs.Versions, crd: "specs.smi-spec.io_tcproutes", decode: versioned(specs.DecodeTCPRoute)},
	{group: specs.Group, name: "UDPRoute", versions: specs.Versions[:1], crd: "specs.smi-spec.io_udproutes", decode: versioned(specs.DecodeUDPRoute)},

	{name: "Service", versions: []string{"v1"}, decode: core(checkService)},
	{name: "Endpoints", versions: []string{"v1"}, decode: decodeEndpoints},
	{name: "Secret", versions: []string{"v1"}, decode: core(checkSecret)},
	{name: "ConfigMap", versions: []string{"v1"}, decode: core(checkConfigMap)},
	{name: "Namespace", cluster: true, versions: []string{"v1"}, decode: core(checkNamespace)},
	{group: discoveryv1.GroupName, name: "EndpointSlice", versions: []string{"v1"}, decode: decodeEndpointSlice},
}

func findKind(group, name string) *kind {
	for _, k := range kinds {
		if k.group == group && k.name == name {
			return k
		}
	}
	return nil
}

// kindNamed returns the first kind of a name, whatever its group, or nil.
func kindNamed(name string) *kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	return nil
}

// known are kinds that Weir does not read and that are near to some that it does.
var known = map[string]bool{
	"TLSRoute": true, "UDPRoute": true, "HTTPRouteGroup": true, "ServiceEntry": true, "ServiceImport": true, "ServiceAccount": true,
}

// shared are names of kinds that other APIs have, too.
var shared = map[string]bool{"Gateway": true, "TCPRoute": true, "UDPRoute": true, "GRPCRoute": true}

// siblings lists the kinds that can be read of an apiVersion's group, or of the same specification; empty if there are
// none.
func siblings(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	_, specification, _ := strings.Cut(group, ".")
	var names []string
	for _, k := range kinds {
		if k.crd != "" && (k.group == group || strings.HasSuffix(k.group, "."+specification) && specification == "smi-spec.io") {
			names = append(names, k.name)
		}
	}
	return strings.Join(names, ", ")
}

// misspelt returns the kind that an unknown one was most likely meant to be, or nil: one of the same group whose name
// is almost the same, or one of the same name whose group is almost the same.
func misspelt(group, name string) *kind {
	var names []string
	for _, k := range kinds {
		switch {
		case k.group == group:
			names = append(names, k.name)
		case k.name == name && k.group != "" && (distance(group, k.group) <= 3 || group == "" || !shared[name]):
			return k
		}
	}
	if known[name] || len(names) == 0 {
		return nil
	}
	for _, n := range names {
		if distance(strings.ToLower(name), strings.ToLower(n)) <= min(2, len(n)/4) {
			return findKind(group, n)
		}
	}
	return nil
}

// apiVersion joins the kind's group with a version.
func (k *kind) apiVersion(version string) string {
	if k.group == "" {
		return version
	}
	return k.group + "/" + version
}

// versionList is for messages: "group/v1 or group/v1beta1".
func (k *kind) versionList() string {
	var list []string
	for _, v := range k.versions {
		list = append(list, k.apiVersion(v))
	}
	return strings.Join(list, " or ")
}

// add puts a typed object into the list of its kind.
func (s *Set) add(object any) {
	switch o := object.(type) {
	case *gatewayv1.GatewayClass:
		s.GatewayClasses = append(s.GatewayClasses, o)
	case *gatewayv1.Gateway:
		s.Gateways = append(s.Gateways, o)
	case *gatewayv1.ListenerSet:
		s.ListenerSets = append(s.ListenerSets, o)
	case *gatewayv1.HTTPRoute:
		s.HTTPRoutes = append(s.HTTPRoutes, o)
	case *gatewayv1.GRPCRoute:
		s.GRPCRoutes = append(s.GRPCRoutes, o)
	case *gatewayv1.TCPRoute:
		s.TCPRoutes = append(s.TCPRoutes, o)
	case *gatewayv1.ReferenceGrant:
		s.ReferenceGrants = append(s.ReferenceGrants, o)
	case *gatewayv1.BackendTLSPolicy:
		s.BackendTLSPolicies = append(s.BackendTLSPolicies, o)
	case *split.TrafficSplit:
		s.TrafficSplits = append(s.TrafficSplits, o)
	case *specs.HTTPRouteGroup:
		s.HTTPRouteGroups = append(s.HTTPRouteGroups, o)
	case *specs.TCPRoute:
		s.TCPPorts = append(s.TCPPorts, o)
	case *specs.UDPRoute:
		s.UDPPorts = append(s.UDPPorts, o)
	case *corev1.Service:
		s.Services = append(s.Services, o)
	case *discoveryv1.EndpointSlice:
		s.EndpointSlices = append(s.EndpointSlices, o)
	case *corev1.Secret:
		s.Secrets = append(s.Secrets, o)
	case *corev1.ConfigMap:
		s.ConfigMaps = append(s.ConfigMaps, o)
	case *corev1.Namespace:
		s.Namespaces = append(s.Namespaces, o)
	}
}

func (s *Set) sort() {
	sortObjects(s.GatewayClasses)
	sortObjects(s.Gateways)
	sortObjects(s.ListenerSets)
	sortObjects(s.HTTPRoutes)
	sortObjects(s.GRPCRoutes)
	sortObjects(s.TCPRoutes)
	sortObjects(s.ReferenceGrants)
	sortObjects(s.BackendTLSPolicies)
	sortObjects(s.TrafficSplits)
	sortObjects(s.HTTPRouteGroups)
	sortObjects(s.TCPPorts)
	sortObjects(s.UDPPorts)
	sortObjects(s.Services)
	sortObjects(s.EndpointSlices)
	sortObjects(s.Secrets)
	sortObjects(s.ConfigMaps)
	sortObjects(s.Namespaces)
	SortFindings(s.Findings)
}

func sortObjects[T interface {
	GetNamespace() string
	GetName() string
}](objects []T) {
	slices.SortFunc(objects, func(a, b T) int {
		if c := strings.Compare(a.GetNamespace(), b.GetNamespace()); c != 0 {
			return c
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
}
