package gateway

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/crds"
)

// Kinds returns the kinds of Gateway API that Weir reads.
func Kinds() resource.Kinds {
	return kinds[:len(kinds):len(kinds)]
}

// conditionTypes are the conditions of Gateway API. On an object that is ours, they are ours.
var conditionTypes = []string{
	"Accepted", "Programmed", "ResolvedRefs", "Conflicted", "PartiallyInvalid", "OverlappingTLSConfig", "SupportedVersion",
	"InsecureFrontendValidationMode", "AttachedListenerSets", "Ready", "Scheduled", "Detached",
}

func routeForm() *resource.StatusForm {
	return &resource.StatusForm{Types: conditionTypes, Parents: true}
}

// routeColumns are the columns of the table that all kinds of routes share.
var routeColumns = resource.Columns("KIND", "HOSTNAMES", "PARENTS", "ACCEPTED", "RESOLVED")

var kinds = resource.Kinds{
	kind("GatewayClass", "gatewayclasses", &resource.Kind{
		Cluster: true, Versions: []string{"v1", "v1beta1"}, Decoder: resource.Typed[gatewayv1.GatewayClass](),
		Objects:   resource.ListIn(func(s *resource.Set) *[]*gatewayv1.GatewayClass { return &s.GatewayClasses }),
		Essential: true, Missing: resource.Error, Without: "no Gateway can be Weir's, and nothing is served",
		Status: &resource.StatusForm{Types: conditionTypes, Conditions: true, Features: true, Urgency: 3},
		Verbs:  []string{"patch"}, // sets the finalizer of classes in use
		Table:  "GATEWAYCLASS", Columns: resource.Columns("ACCEPTED"),
		About: "Gateways of a class are served if its controllerName is `weirmesh.github.io/gateway-controller`; files need no class",
	}),
	kind("Gateway", "gateways", &resource.Kind{
		Versions: []string{"v1", "v1beta1"}, Decoder: resource.Typed[gatewayv1.Gateway](),
		Objects:   resource.ListIn(func(s *resource.Set) *[]*gatewayv1.Gateway { return &s.Gateways }),
		Essential: true, Missing: resource.Error, Without: "nothing is served", Common: true,
		Status: &resource.StatusForm{Types: conditionTypes, Conditions: true, Addresses: true, Listeners: true, Urgency: 2, Pending: true},
		Table:  "GATEWAY", Columns: resource.Columns("CLASS", "ADDRESSES", "LISTENERS", "ROUTES", "ACCEPTED", "PROGRAMMED", "PROXIES"),
		About: "listeners HTTP, HTTPS (Terminate) and TCP, addresses, `tls.frontend`, `tls.backend`, `allowedListeners`, `defaultScope`",
	}),
	kind("ListenerSet", "listenersets", &resource.Kind{
		Versions: []string{"v1"}, Decoder: resource.Typed[gatewayv1.ListenerSet](),
		Objects: resource.ListIn(func(s *resource.Set) *[]*gatewayv1.ListenerSet { return &s.ListenerSets }),
		Missing: resource.Warning, Without: "listeners can be in Gateways only",
		Status: &resource.StatusForm{Types: conditionTypes, Conditions: true, Listeners: true, Urgency: 1, Pending: true},
		Table:  "LISTENERSET", Columns: resource.Columns("GATEWAY", "LISTENERS", "ACCEPTED", "PROGRAMMED"),
		About: "all of it",
	}),
	kind("HTTPRoute", "httproutes", &resource.Kind{
		Versions: []string{"v1", "v1beta1"}, Decoder: resource.Typed[gatewayv1.HTTPRoute](),
		Objects: resource.ListIn(func(s *resource.Set) *[]*gatewayv1.HTTPRoute { return &s.HTTPRoutes }),
		Missing: resource.Error, Without: "HTTP cannot be routed", Unlike: []string{"TLSRoute", "UDPRoute", "HTTPRouteGroup"},
		Status: routeForm(), Table: "ROUTE", Columns: routeColumns,
		About: "all of it but the filters ExtensionRef and ExternalAuth",
	}),
	kind("GRPCRoute", "grpcroutes", &resource.Kind{
		Versions: []string{"v1"}, Decoder: resource.Typed[gatewayv1.GRPCRoute](),
		Objects: resource.ListIn(func(s *resource.Set) *[]*gatewayv1.GRPCRoute { return &s.GRPCRoutes }),
		Missing: resource.Warning, Without: "gRPC can be routed by HTTPRoutes only", Common: true,
		Status: routeForm(), Table: "ROUTE", Columns: routeColumns,
		About: "all of it but the filter ExtensionRef",
	}),
	kind("TCPRoute", "tcproutes", &resource.Kind{
		Versions: []string{"v1", "v1alpha2"}, Decoder: resource.Typed[gatewayv1.TCPRoute](),
		Objects: resource.ListIn(func(s *resource.Set) *[]*gatewayv1.TCPRoute { return &s.TCPRoutes }),
		Missing: resource.Warning, Without: "listeners of protocol TCP have no routes", Common: true,
		Status: routeForm(), Table: "ROUTE", Columns: routeColumns,
		About: "all of it",
	}),
	kind("ReferenceGrant", "referencegrants", &resource.Kind{
		Versions: []string{"v1", "v1beta1"}, Decoder: resource.Typed[gatewayv1.ReferenceGrant](),
		Objects: resource.ListIn(func(s *resource.Set) *[]*gatewayv1.ReferenceGrant { return &s.ReferenceGrants }),
		Missing: resource.Warning, Without: "nothing can refer to another namespace",
		About: "all of it",
	}),
	kind("BackendTLSPolicy", "backendtlspolicies", &resource.Kind{
		Versions: []string{"v1", "v1alpha3"}, Decoder: resource.Typed[gatewayv1.BackendTLSPolicy](),
		Objects: resource.ListIn(func(s *resource.Set) *[]*gatewayv1.BackendTLSPolicy { return &s.BackendTLSPolicies }),
		Missing: resource.Warning, Without: "backends cannot be reached by TLS",
		Status: &resource.StatusForm{Types: conditionTypes, Ancestors: true},
		Table:  "BACKENDTLSPOLICY", Columns: resource.Columns("FOR", "ACCEPTED", "RESOLVED"),
		About: "all of it but `options`",
	}),
}

// kind adds what all kinds of the API have in common.
func kind(name, plural string, k *resource.Kind) *resource.Kind {
	k.Group, k.Name, k.Plural, k.API = gatewayv1.GroupName, name, plural, "Gateway API"
	k.Definition = resource.Definition{Files: crds.Files, Name: plural + ".yaml"}
	k.Effects = resource.FieldEffects
	return k
}
