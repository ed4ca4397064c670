package gateway_test

import (
	"slices"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/features"

	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/resource"
)

func supportedFeatures(options gateway.Options) []string {
	class := &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: gateway.ControllerName}}
	class.Name = "weir"
	return translateWith(&resource.Set{GatewayClasses: []*gatewayv1.GatewayClass{class}}, options).statuses[0].SupportedFeatures
}

// TestAllFeaturesOfGatewaysAreSupported names every feature, core and extended, of the API's profiles for HTTP and gRPC through Gateways.
func TestAllFeaturesOfGatewaysAreSupported(t *testing.T) {
	got := supportedFeatures(gateway.Options{ProxyPerGateway: true})
	for name := range features.SetsToNamesSet(
		features.GatewayCoreFeatures, features.GatewayExtendedFeatures, features.ReferenceGrantCoreFeatures,
		features.HTTPRouteCoreFeatures, features.HTTPRouteExtendedFeatures, features.GRPCRouteCoreFeatures, features.GRPCRouteExtendedFeatures,
		features.BackendTLSPolicyCoreFeatures, features.BackendTLSPolicyExtendedFeatures,
	) {
		if !slices.Contains(got, string(name)) {
			t.Errorf("%s is not supported", name)
		}
	}
}

func TestSupportedFeaturesAreKnownSortedAndOfTheMode(t *testing.T) {
	for _, separate := range []bool{false, true} {
		got := supportedFeatures(gateway.Options{ProxyPerGateway: separate})
		if len(got) > 64 {
			t.Errorf("%d features, and the API allows 64", len(got))
		}
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("not sorted or not unique: %q", got)
		}
		for _, name := range got {
			if features.GetFeature(features.FeatureName(name)).Name == "" {
				t.Errorf("the API has no feature %q", name)
			}
		}
		if slices.Contains(got, "GatewayInfrastructure") != separate {
			t.Errorf("separate %v: %q", separate, got)
		}
	}
}
