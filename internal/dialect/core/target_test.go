package core_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect/core"
	"github.com/weirmesh/weir/internal/resource"
)

// TestAdviceAboutEndpointsFitsTheTarget checks that no fix asks for EndpointSlices that Kubernetes makes.
func TestAdviceAboutEndpointsFitsTheTarget(t *testing.T) {
	port := discoveryv1.EndpointPort{Name: to(""), Port: to[int32](8080)}
	for name, x := range map[string]struct {
		options  core.Options
		selector map[string]string
		weight   int32
		slices   []*discoveryv1.EndpointSlice
		want     string // of message and fix; empty if nothing is to be said
		endpoint string
	}{
		"files":                        {weight: 1, want: "no EndpointSlices|add an EndpointSlice"},
		"files, selector":              {weight: 1, selector: map[string]string{"app": "a"}, want: "no EndpointSlices|outside of a cluster nothing makes them"},
		"files, no weight":             {weight: 0},
		"manifests":                    {options: core.Options{Cluster: true, Partial: true}, weight: 1, selector: map[string]string{"app": "a"}, endpoint: "a.default.svc:80"},
		"manifests, no selector":       {options: core.Options{Cluster: true, Partial: true}, weight: 1, want: "no EndpointSlices|add an EndpointSlice"},
		"cluster":                      {options: core.Options{Cluster: true}, weight: 1, selector: map[string]string{"app": "a", "tier": "b"}, want: "no pod of the Service (app=a,tier=b) is ready|kubectl -n default get pods -l app=a,tier=b"},
		"cluster, no weight":           {options: core.Options{Cluster: true}, weight: 0, selector: map[string]string{"app": "a"}},
		"cluster, scaled to zero":      {options: core.Options{Cluster: true}, weight: 1, selector: map[string]string{"app": "a"}, slices: []*discoveryv1.EndpointSlice{slice("s", nil)}, want: "no pod of the Service (app=a) is ready|scale up"},
		"cluster, none ready":          {options: core.Options{Cluster: true}, weight: 1, selector: map[string]string{"app": "a"}, slices: []*discoveryv1.EndpointSlice{slice("s", []discoveryv1.EndpointPort{port}, endpoint(notReady, "192.0.2.1"))}, want: "is ready|find out why they are not ready"},
		"cluster, another port":        {options: core.Options{Cluster: true}, weight: 1, selector: map[string]string{"app": "a"}, slices: []*discoveryv1.EndpointSlice{slice("s", []discoveryv1.EndpointPort{{Name: to("b"), Port: to[int32](1)}}, endpoint(ready, "192.0.2.1"))}, want: "no EndpointSlice of the Service has a port named|let targetPort name a port of the pods"},
		"cluster, slices of one's own": {options: core.Options{Cluster: true}, weight: 1, want: "no EndpointSlices|add an EndpointSlice"},
		"cluster, ready":               {options: core.Options{Cluster: true}, weight: 1, selector: map[string]string{"app": "a"}, slices: []*discoveryv1.EndpointSlice{slice("s", []discoveryv1.EndpointPort{port}, endpoint(ready, "192.0.2.1"))}, endpoint: "192.0.2.1:8080"},
	} {
		t.Run(name, func(t *testing.T) {
			s := service(corev1.ServicePort{Port: 80})
			s.Spec.Selector = x.selector
			ref := gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: "a", Port: to[gatewayv1.PortNumber](80)}, Weight: &x.weight}
			route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r"}}
			route.Spec.Rules = []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: ref}}}}
			cfg, _, findings := (&core.Translator{Options: x.options}).Translate(&resource.Set{Services: []*corev1.Service{s}, EndpointSlices: x.slices, HTTPRoutes: []*gatewayv1.HTTPRoute{route}})
			if got := addresses(cfg.Services[0]); got != x.endpoint {
				t.Errorf("endpoints %q, want %q", got, x.endpoint)
			}
			if x.want == "" {
				if len(findings) > 0 {
					t.Errorf("findings %v, want none", findings)
				}
				return
			}
			message, fix, _ := strings.Cut(x.want, "|")
			if len(findings) != 1 || findings[0].Code != "WR480" || !strings.Contains(findings[0].Message, message) || !strings.Contains(findings[0].Fix, fix) {
				t.Errorf("findings %v, want %s", findings, x.want)
			}
		})
	}
}
