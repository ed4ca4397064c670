package provider_test

import (
	"reflect"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

// TestOfTwoConditionsOnAHeaderTheFirstCounts: a Rollout that has them is left alone, but one may be stored that was begun
// before that was so.
func TestOfTwoConditionsOnAHeaderTheFirstCounts(t *testing.T) {
	header := func(name, value string) gatewayv1.HTTPHeaderMatch {
		return gatewayv1.HTTPHeaderMatch{Name: gatewayv1.HTTPHeaderName(name), Value: value}
	}
	for kind, c := range map[string]struct{ group, object string }{
		"HTTPRoute":      {"gateway.networking.k8s.io", "spec: {rules: [{backendRefs: [{name: shop, port: 80}]}]}"},
		"GRPCRoute":      {"gateway.networking.k8s.io", "spec: {rules: [{backendRefs: [{name: shop, port: 80}]}]}"},
		"VirtualService": {"networking.istio.io", "spec: {hosts: [shop], http: [{route: [{destination: {host: shop}}]}]}"},
		"Ingress":        {"networking.k8s.io", "spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}]}}]}"},
		"TrafficSplit":   {"split.smi-spec.io", "apiVersion: split.smi-spec.io/v1alpha4\nspec: {service: shop, backends: [{service: shop, weight: 1}]}"},
	} {
		var u map[string]any
		if err := yaml.Unmarshal([]byte(c.object+"\nmetadata: {name: shop, namespace: default}\nkind: "+kind), &u); err != nil {
			t.Fatal(err)
		}
		lay := func(headers ...gatewayv1.HTTPHeaderMatch) rollout.Laid {
			laid, ok := provider.All().Lay(rollout.Request{
				Target: rollout.Target{Group: c.group, Kind: kind, Name: "shop"}, Object: u, Rollout: "shop", Namespace: "default", Stable: "shop", Canary: "shop-canary",
				Other: func(string, string, string) map[string]any { return nil },
			}, &rollout.Routing{Matches: []rollouts.Match{{Headers: headers}}})
			if !ok {
				t.Fatalf("%s: not laid", kind)
			}
			return laid
		}
		one, two := lay(header("x", "1")), lay(header("x", "1"), header("X", "2"))
		if !reflect.DeepEqual(one, two) || reflect.DeepEqual(one.Object, u) && len(one.Owned) == 0 {
			t.Errorf("%s: with two conditions it is %v, with the first alone %v", kind, two, one)
		}
	}
}
