// Package gateway translates Gateway API objects (GatewayClass, Gateway, ListenerSet, HTTPRoute, GRPCRoute, TCPRoute,
// ReferenceGrant, BackendTLSPolicy) into the model's listeners and routes, and reports the result for each object in
// statuses and findings. The field comments of sigs.k8s.io/gateway-api are the specification; the comments here name
// the field they follow.
//
// It is pure: it reads a resource.Set, which it does not change, and nothing else. dialect/core makes the services that
// its backends name; for services with a BackendTLSPolicy this package adds services that extend them (model.Merge).
//
// A user's mistake never fails the translation. The bad part is left out or answers an error for its share, the rest is
// served, and a condition and a finding say why.
package gateway

import (
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// ControllerName is the spec.controllerName of GatewayClasses whose Gateways Weir serves. A class that is not in the
// set at all is taken for Weir's: files need no GatewayClass.
const ControllerName = "weirmesh.github.io/gateway-controller"

// AdminPort is where proxies that are a Gateway's own serve health and metrics. No listener of theirs may have it.
const AdminPort = 19080

// Options are settings that are not part of a set. The zero value is one data plane for all Gateways.
type Options struct {
	// ProxyPerGateway means that each Gateway is served by its own proxies, model.Listener.Owner: Gateways never conflict.
	// The operator of the proxies gives them addresses and judges the Gateways' parameters: listeners bind all
	// addresses, and statuses name none and set Programmed unless something here prevents it. A class that is not in
	// the set belongs to nobody.
	ProxyPerGateway bool
	// Partial means that the set is only a part of a cluster's objects, as manifests are: a class that is not in the
	// set is taken for Weir's, and other referenced objects may be elsewhere (resource.Set.Elsewhere).
	Partial bool
	// Names, if not nil, are the host names that backends may have; see core.Options.
	Names *resource.HostNames
	// ExclusiveHostnames means that a hostname of a listener, and those that a wildcard stands for, belong to the namespace whose route had it
	// first: routes of others do not get it. Any hostname (a route and a listener without one) belongs to nobody.
	ExclusiveHostnames bool
	// Mesh means that the clients of a mesh are served routes whose parents are Services (Translator.ServiceRoutes). Otherwise
	// such parents are ignored.
	Mesh bool
	// TrustedProxies are the networks of the proxies in front of Gateways that do not name any themselves.
	TrustedProxies []netip.Prefix
}

type key struct{ namespace, name string }

func (k key) String() string { return k.namespace + "/" + k.name }

// older orders objects by creation, then by "namespace/name" (the tie-break of the whole API). An object without a
// time is older than one with.
func older(a, b *metav1.ObjectMeta) int {
	if c := a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return model.CompareNames(a.Namespace, a.Name, b.Namespace, b.Name)
}

func created(m *metav1.ObjectMeta) time.Time {
	if m.CreationTimestamp.IsZero() {
		return time.Time{}
	}
	return m.CreationTimestamp.UTC()
}

// readClasses judges the GatewayClasses that are ours (GatewayClass.spec).
func (t *translator) readClasses() {
	for _, c := range t.set.GatewayClasses {
		if !resource.OwnsClass(ControllerName, c) {
			continue
		}
		ref := model.Ref{Kind: "GatewayClass", Name: c.Name}
		accepted := resource.True("Accepted", "Accepted", "")
		if c.Spec.ParametersRef != nil && !t.ProxyPerGateway {
			t.rejected[c.Name] = true
			p := resource.Problem(codeParameters, "InvalidParameters", "spec.parametersRef",
				"parameters are not supported", "remove the field")
			accepted = resource.False("Accepted", p.Reason, p.Text())
			t.report(ref, p)
		}
		t.statuses = append(t.statuses, resource.Status{
			Ref: ref, Generation: c.Generation, Conditions: []resource.Condition{accepted}, SupportedFeatures: t.features(),
		})
	}
}

// features are the names of the Gateway API's features (its package pkg/features) that Weir has, sorted.
func (t *translator) features() []string {
	all := slices.Clone(supported)
	if t.ProxyPerGateway {
		all = append(all, infrastructure)
		slices.Sort(all)
	}
	return all
}

// infrastructure is the feature of spec.infrastructure, which has a meaning where something is made for a Gateway.
const infrastructure = "GatewayInfrastructure"

var supported = []string{
	"BackendTLSPolicy",
	"BackendTLSPolicySANValidation",
	"GRPCRoute",
	"GRPCRouteNamedRouteRule",
	"Gateway",
	"GatewayAddressEmpty",
	"GatewayBackendClientCertificate",
	"GatewayFrontendClientCertificateValidation",
	"GatewayFrontendClientCertificateValidationInsecureFallback",
	"GatewayHTTPListenerIsolation",
	"GatewayHTTPSListenerDetectMisdirectedRequests",
	"GatewayPort8080",
	"GatewayStaticAddresses",
	"HTTPRoute",
	"HTTPRoute303RedirectStatusCode",
	"HTTPRoute307RedirectStatusCode",
	"HTTPRoute308RedirectStatusCode",
	"HTTPRouteBackendProtocolH2C",
	"HTTPRouteBackendProtocolWebSocket",
	"HTTPRouteBackendRequestHeaderModification",
	"HTTPRouteBackendTimeout",
	"HTTPRouteCORS",
	"HTTPRouteDestinationPortMatching",
	"HTTPRouteHostRewrite",
	"HTTPRouteMethodMatching",
	"HTTPRouteNamedRouteRule",
	"HTTPRouteParentRefPort",
	"HTTPRoutePathRedirect",
	"HTTPRoutePathRewrite",
	"HTTPRoutePortRedirect",
	"HTTPRouteQueryParamMatching",
	"HTTPRouteRequestMirror",
	"HTTPRouteRequestMultipleMirrors",
	"HTTPRouteRequestPercentageMirror",
	"HTTPRouteRequestTimeout",
	"HTTPRouteResponseHeaderModification",
	"HTTPRouteRetry",
	"HTTPRouteRetryBackendTimeout",
	"HTTPRouteRetryConnectionError",
	"HTTPRouteSchemeRedirect",
	"ListenerSet",
	"ReferenceGrant",
	"TCPRoute",
}
