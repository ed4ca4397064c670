package kube

import (
	"testing"

	"github.com/weirmesh/weir/internal/resource"
)

func TestResourcesAreCalledAsTheirDefinitionsCallThem(t *testing.T) {
	names := map[string]string{
		"BackendTLSPolicy": "backendtlspolicies", "ConfigMap": "configmaps", "EndpointSlice": "endpointslices", "GRPCRoute": "grpcroutes",
		"Gateway": "gateways", "GatewayClass": "gatewayclasses", "HTTPRoute": "httproutes", "HTTPRouteGroup": "httproutegroups",
		"ListenerSet": "listenersets", "Namespace": "namespaces", "ReferenceGrant": "referencegrants", "Secret": "secrets", "Service": "services",
		"TCPRoute": "tcproutes", "TrafficSplit": "trafficsplits", "UDPRoute": "udproutes",
	}
	for _, k := range dialect.Kinds() {
		want, ok := names[k.Name]
		if got := in(k, k.Versions[0]).resource; !ok || got != want {
			t.Errorf("%s of group %q: %q, want %q", k.Name, k.Group, got, want)
		}
	}
}
