package cli

import "github.com/weirmesh/weir/internal/resource"

// size is the number of objects of a set.
func size(s *resource.Set) int {
	return len(s.GatewayClasses) + len(s.Gateways) + len(s.ListenerSets) + len(s.HTTPRoutes) + len(s.GRPCRoutes) + len(s.TCPRoutes) +
		len(s.ReferenceGrants) + len(s.BackendTLSPolicies) + len(s.TrafficSplits) + len(s.HTTPRouteGroups) + len(s.TCPPorts) + len(s.UDPPorts) +
		len(s.Services) + len(s.EndpointSlices) + len(s.Secrets) + len(s.ConfigMaps) + len(s.Namespaces)
}
